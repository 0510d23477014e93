"""What ``vaswani export`` makes besides: proofs, their text, cards, fairseq's checkpoint."""
