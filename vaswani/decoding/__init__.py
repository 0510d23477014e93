"""Translating: what searches (the engines), and its input and output."""
