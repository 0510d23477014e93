"""The model folder that ``vaswani pack`` makes: gathered, written, read, built again."""
