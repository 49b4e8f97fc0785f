"""Arrays, checks of input, errors, intervals, progress and files: what every floor above stands on."""
