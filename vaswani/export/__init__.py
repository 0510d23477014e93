"""An export to another program: proofs, their text, cards, fairseq's checkpoint."""
