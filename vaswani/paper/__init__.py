"""What a result of the paper takes, and what it is compared with."""
