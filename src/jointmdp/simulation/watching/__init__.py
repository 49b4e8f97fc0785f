"""Watching a run: what is drawn, from which generators, what is kept, what the clock says; asked again and compared."""
