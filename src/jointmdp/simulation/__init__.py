"""Samples: simulators of any kind, where they run, and joint simulation under shared noise."""
