"""Runs the commands that make a result of the paper, each in a process of its own.

A result is a list of commands, without those whose work is done. It may be a generator: what it
yields next then depends on what the commands before have made.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable

#: seconds after which an interrupted command is told to stop as well
PATIENCE = 10


def run_commands(commands: Iterable[list[str]], dry_run: bool = False) -> int:
    """Run ``vaswani VERB …`` one after another until one fails; in a dry run only print them.

    Returns:
        The exit code of the one that failed, or 0.
    """
    for words in commands:
        line = shlex.join(["vaswani", *words])
        if dry_run:
            print(f"  {line}")
            continue
        print(f"\n== {words[0]}: {line}", file=sys.stderr, flush=True)
        code = run_command([sys.executable, "-m", "vaswani", *words])
        if code:
            print(f"reproduce: '{words[0]}' ended with exit code {code}", file=sys.stderr)
            return abs(code)
    return 0


def run_command(command: list[str]) -> int:
    """Run a command and return its exit code; after an interrupt, wait until it has saved.

    Interrupted again, it is killed.
    """
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:  # perhaps only we were told to stop
            process.terminate()
            process.wait()
        raise
    finally:
        process.kill()  # does nothing to one that has ended
        process.wait()
