"""Speed and memory, ours beside fairseq's own in the same run: ``python -m benchmarks.run``."""
