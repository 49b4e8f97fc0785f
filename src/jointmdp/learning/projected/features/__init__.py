"""Linear features of states and actions: what an estimator projects onto."""
