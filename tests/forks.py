"""Runs ``vaswani`` commands in a fork of the test's process, so they can be limited or killed."""

import ctypes
import os
import resource
import sys
from typing import Callable, List, NamedTuple


class Ended(NamedTuple):
    """The exit code (if negative, the signal), and stderr."""

    code: int
    message: str


def vaswani(arguments: List[str], before: Callable[[], object]) -> Ended:
    """Run a command line in a fork, after calling ``before`` there."""
    from vaswani import cli

    out, into = os.pipe()  # not a file: the size of files may be limited
    pid = os.fork()
    if pid == 0:
        try:
            code = 99
            with open(into, "w", encoding="utf-8", closefd=False) as sys.stderr:
                try:
                    before()
                    code = cli.main(arguments)
                except SystemExit as end:
                    code = int(end.code or 0)
                except BaseException as error:
                    sys.stderr.write(f"Traceback: {error!r}\n")
        finally:
            os._exit(code)
    os.close(into)
    with open(out, encoding="utf-8") as stream:
        message = stream.read()
    return Ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), message)


def small_files(size: int) -> None:
    """Let no file grow beyond ``size`` bytes: the error is like that of a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def plain_user() -> None:
    """Give up root's right to write where the permissions say no."""
    if os.getuid() != 0:
        return
    override, search = 1, 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable; twice 32 bits
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(head, sets) == 0
    for index in range(3):
        sets[index] &= ~(1 << override | 1 << search)
    assert libc.capset(head, sets) == 0, os.strerror(ctypes.get_errno())
