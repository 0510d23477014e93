"""What a training takes and what suits a text: memory, batch, hours, disk; new experiments."""
