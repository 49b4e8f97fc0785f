"""For people: reports, plots, files, the command line."""
