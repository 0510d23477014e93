"""``python -m experiments``."""

import sys

from experiments.harness import main

sys.exit(main(sys.argv[1:]))
