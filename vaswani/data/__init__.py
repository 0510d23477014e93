"""Text, from archives down to binarised data: ``vaswani prepare``'s stages, test sets."""
