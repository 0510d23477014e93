"""Scores of translations: what is read, BLEU and chrF, published figures, significance."""
