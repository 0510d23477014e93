"""An experiment: its configuration, checked; its training's start, progress and end; its run."""
