"""Runs commands in forks of this process, so that they need not import torch and fairseq again.

A fork has the arguments, the variables, the folder and the streams of a new process, and what this
process has imported. A test of imports starts ``sys.executable`` instead.
"""

import contextlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NoReturn

import torch

from tests import stock

BIN = Path(sys.executable).parent
#: asks the process at an address to run a command, with the streams of this one, and waits
CLIENT = """
import json, os, socket, sys
_, address, *command = sys.argv
with socket.socket(socket.AF_UNIX) as server:
    server.connect(address)
    request = json.dumps([command, os.getcwd(), dict(os.environ)])
    socket.send_fds(server, [request.encode() + b"\\n"], [0, 1, 2])
    sys.exit(int(server.makefile().read() or 1))
"""


def start(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], streams: Sequence[int]
) -> int:
    """Run a Python script in a fork; return its process id.

    Args:
        command: the path of the script, and its arguments
        folder: the current folder of the fork
        variables: all of its environment
        streams: descriptors of its standard input, output and error
    """
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        _run(command, folder, variables, streams)
    return process


def _run(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], streams: Sequence[int]
) -> NoReturn:
    """Run a script in this process, and end it as Python ends."""
    code = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        sys.stdin = os.fdopen(0)
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w")
        torch.set_num_threads(1)  # those of the parent did not come along
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = list(command)
        sys.excepthook = sys.__excepthook__
        logging.getLogger().handlers.clear()
        with stock.fresh_process():
            runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def codes_of(*processes: int) -> list[int]:
    """Wait for forks; return the exit code of each, or the negative signal that ended it.

    Once one has failed, the others are killed, which might wait for it.
    """
    codes: dict[int, int] = {}
    try:
        while len(codes) < len(processes) and not any(codes.values()):
            time.sleep(0.01)
            for process in set(processes) - codes.keys():
                has_ended, status = os.waitpid(process, os.WNOHANG)
                if has_ended:
                    codes[process] = os.waitstatus_to_exitcode(status)
    finally:
        for process in set(processes) - codes.keys():
            os.kill(process, signal.SIGKILL)
            codes[process] = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return [codes[process] for process in processes]


@contextlib.contextmanager
def captured() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open files for the standard output and the standard error of a command."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        yield out, err


def ended(
    command: Sequence[str], code: int, out: IO[bytes], err: IO[bytes]
) -> "subprocess.CompletedProcess[str]":
    """Return what a command ended with and wrote."""
    texts = []
    for file in (out, err):
        file.seek(0)
        texts.append(file.read().decode())
    return subprocess.CompletedProcess(list(command), code, *texts)


def run(
    command: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    """Run a Python script in a fork, as ``subprocess.run`` runs a command."""
    with open(os.devnull) as nothing, captured() as (out, err):
        streams = [file.fileno() for file in (nothing, out, err)]
        (code,) = codes_of(start(command, folder, variables, streams))
        return ended(command, code, out, err)


def run_shell(
    command: Sequence[str], folder: Path, variables: Mapping[str, str], names: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    """Run a shell script; the Python scripts of these names, which it calls, run in forks.

    It may call one of them at a time.

    Args:
        command: the shell and its arguments
        folder: its current folder
        variables: all of its environment; ``PATH`` is looked up after the names
        names: scripts that are installed beside this Python
    """
    with (
        tempfile.TemporaryDirectory(prefix="forks-") as place,
        socket.socket(socket.AF_UNIX) as listener,
        captured() as (out, err),
    ):
        address = f"{place}/socket"
        client = Path(place, "client.py")
        client.write_text(CLIENT, encoding="utf-8")
        for name in names:
            path = Path(place, name)
            line = f'exec "{sys.executable}" -IS "{client}" "{address}" "{BIN / name}" "$@"'
            path.write_text(f"#!/usr/bin/env bash\n{line}\n", encoding="utf-8")
            path.chmod(0o755)
        listener.bind(address)
        listener.listen()
        listener.settimeout(0.05)
        path = f"{place}{os.pathsep}{variables['PATH']}"
        with subprocess.Popen(
            command, cwd=folder, env={**variables, "PATH": path}, stdout=out, stderr=err
        ) as shell:
            while shell.poll() is None:
                with contextlib.suppress(TimeoutError), listener.accept()[0] as asking:
                    _answer(asking)
        return ended(command, shell.returncode, out, err)


def _answer(asking: socket.socket) -> None:
    """Run the command that a client asks for, and tell it the exit code."""
    asking.settimeout(None)
    request = b""
    streams: list[int] = []
    while not request.endswith(b"\n"):
        part, descriptors, _, _ = socket.recv_fds(asking, 65536, 3)
        request += part
        streams += descriptors
    command, folder, variables = json.loads(request)
    (code,) = codes_of(start(command, folder, variables, streams))
    for stream in streams:
        os.close(stream)
    asking.sendall(str(code % 256).encode())
