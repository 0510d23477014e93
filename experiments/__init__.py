"""The paper's claims at a small size, and later changes to its model."""
