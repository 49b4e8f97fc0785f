"""The equations, and nothing else: everything above solves, samples, projects, learns or certifies them."""
