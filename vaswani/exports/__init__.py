"""Other parts of ``vaswani export``: proofs, their text, cards, fairseq's checkpoint."""
