"""Translating: the search, its processes, and its input and output."""
