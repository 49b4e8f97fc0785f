"""The certified law of gaps: outcomes → ties and support → brackets on grids → the law of one gap → the book of all."""
