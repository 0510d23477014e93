"""Configurations, checked; the start, progress and end of a training; the run that it leaves."""
