"""Runs a module as ``python -m`` would, until the process that started it is gone.

    python …/run_with_parent.py MODULE [ARGUMENT …]

in a session of its own, with a pipe as standard input.

When the pipe closes, which it does however the parent died, this process and its own workers are
killed: nothing is left behind that could write into the next run's files.
"""

import os
import runpy
import signal
import sys
import threading


def end_with_parent() -> None:
    """Wait for the end of standard input, then kill the whole process group."""
    while os.read(0, 1024):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        sys.exit("run_with_parent: must be started in a session of its own")
    threading.Thread(target=end_with_parent, daemon=True).start()
    del sys.argv[0], sys.path[0]  # this folder's files are not for other modules
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
