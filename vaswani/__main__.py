"""``python -m vaswani VERB …``: the command ``vaswani`` of this very Python, on PATH or not."""

import sys

from vaswani.cli import main

if __name__ == "__main__":
    sys.exit(main())
