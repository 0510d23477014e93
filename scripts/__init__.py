"""Programs of the project itself: the demo, its text and report, the tables of docs/, downloads."""
