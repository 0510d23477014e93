"""The start, progress and end of a training, and the run that it leaves."""
