"""Folders that users name, as types: each module alone knows the names of its folder's files."""
