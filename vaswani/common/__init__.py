"""What every command may need, and no file of which knows the subject."""
