"""Texts to train on: the demo's own phrases, and the public corpora of the recipes."""
