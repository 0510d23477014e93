"""Speed and memory of our model and fairseq's, in the same run: ``python -m benchmarks.run``."""
