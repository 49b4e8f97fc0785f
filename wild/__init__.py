"""`make wild`: third-party environments, each with the verdict that a person expects of it, and why."""
