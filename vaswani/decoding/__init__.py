"""Translating: the search, its processes, and what is read and written around it."""
