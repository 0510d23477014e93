"""What surrounds fairseq's training: the processes, the progress, the run's records."""
