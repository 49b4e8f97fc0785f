"""Given what was seen, what would another action have given: the posterior of the noise, and a recursion over it."""
