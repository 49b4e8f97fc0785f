"""Certified laws: outcomes → ties and support → brackets on grids → the law of one gap → the laws of all gaps."""
