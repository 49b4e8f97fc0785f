"""Which action, policy or decision is best: the answer, when to stop, and what is promised."""
