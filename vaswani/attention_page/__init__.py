"""Where every head looks: the weights, the page, the pictures."""
