"""The model folder that ``vaswani pack`` makes: collected, written, read, built again."""
