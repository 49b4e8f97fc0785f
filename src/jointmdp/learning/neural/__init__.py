"""Neural JIPE-2: means and covariances of returns as networks of what is observed, trained on recorded queries."""
