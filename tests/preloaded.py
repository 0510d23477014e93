"""A Python that has imported torch and fairseq already, for the commands that tests run.

Importing them takes a command 3 seconds or more. :func:`python` gives a program to use as Python:
it asks a server, which has imported them but nothing of ours, to fork, and the fork becomes the
process that was asked for. It has the arguments, environment, folder, standard streams, process
group, umask and limits of the program, which ends as the fork does. Where only a new interpreter
can do it (a variable of ``READ_AT_START`` has changed, a stream is closed, Python is given flags),
the program becomes one.

Other than for a real Python, the parent is the server, a signal to the program alone ends both
(SIGINT: neither), and what modules do at import has been done before. Tests of starting, of
signals and of memory use ``sys.executable``.

    preloaded.py serve FD FOLDER                   the server, which listens at this socket
    preloaded.py ask SOCKET PROGRAM [ARGUMENT …]   the program
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from typing import Any, Dict, List, Mapping, NoReturn, Sequence, Tuple

Request = Dict[str, Any]

MODULES = (
    *("torch", "torch._dynamo", "fairseq.tasks", "fairseq.trainer", "fairseq.options"),
    *("fairseq.dataclass.initialize", "sacrebleu", "sacremoses"),
)
"""Not fairseq_cli, whose modules set up logging when they are imported."""
READ_AT_START = (
    *("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "KMP_", "MKL_"),
    *("OPENBLAS_", "ONEDNN_", "DNNL_", "ATEN_", "TORCHDYNAMO_", "CUDA_", "CT2_"),
)
"""Beginnings of the variables that Python and libraries read when they start."""
NO_MATTER = {"PYTHONPATH", "PYTHON_EXEC", "PYTHONWARNINGS"}
"""The first is seen to here, the second is torchrun's, and fairseq sets the third for workers."""
PACKET = 1 << 18
NEW_INTERPRETER = b"new interpreter"
LIMITS = [number for name, number in vars(resource).items() if name.startswith("RLIMIT_")]


@functools.lru_cache(maxsize=None)
def python() -> str:
    """The program's path. The server starts at the first call, and ends with this process.

    A fork lacks the threads that NumPy starts with several of them: then it is Python itself.
    """
    if os.environ.get("OMP_NUM_THREADS") != "1":
        return sys.executable
    folder = tempfile.mkdtemp(prefix="preloaded-")
    address, program = f"{folder}/socket", f"{folder}/python"
    this = os.path.abspath(__file__)
    with open(program, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec "{sys.executable}" -IS "{this}" ask "{address}" "$0" "$@"\n')
    os.chmod(program, 0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)  # whoever asks before all is imported waits
        server = subprocess.Popen(
            [sys.executable, this, "serve", str(listener.fileno()), folder],
            stdin=subprocess.PIPE,  # closes with this process, however it ends
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
        )
    atexit.register(server.communicate)  # closes its standard input, and waits
    return program


# --- the program ---------------------------------------------------------------------------------


def ask(address: str, program: str, *arguments: str) -> NoReturn:
    """Have the server run a command line of Python's, and end as that does."""
    at_start = signal.getsignal(signal.SIGINT)
    answer = NEW_INTERPRETER
    with contextlib.suppress(OSError):  # a standard stream is closed, or the server gone
        request = described(program, arguments)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the fork as well
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address)
            socket.send_fds(connection, [request], [0, 1, 2])
            answer = b"1"
            answer = connection.recv(PACKET) or answer
    if answer == NEW_INTERPRETER:
        signal.signal(signal.SIGINT, at_start)
        os.execv(sys.executable, [sys.executable, *arguments])
    code = int(answer)
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def described(program: str, arguments: Sequence[str]) -> bytes:
    """What the fork has to know of this process; raises OSError if a standard stream is closed."""
    for stream in (0, 1, 2):
        os.fstat(stream)
    umask = os.umask(0)
    os.umask(umask)
    own = os.getpid()
    request = {
        "program": program,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
        "limits": [resource.getrlimit(limit) for limit in LIMITS],
        "own session": os.getsid(0) == own,
        "group": 0 if os.getpgrp() == own else os.getpgrp(),
        "interruptible": signal.getsignal(signal.SIGINT) != signal.SIG_IGN,
    }
    return json.dumps(request).encode()


# --- the server ----------------------------------------------------------------------------------


def serve(listener: socket.socket, folder: str) -> Request:
    """Fork for everyone who asks, and return in each fork with its request.

    Ends, and removes the folder, when standard input closes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    at_start = dict(os.environ)
    for name in MODULES:
        importlib.import_module(name)
    of_modules = {name: os.environ[name] for name in os.environ.keys() - at_start.keys()}
    assert len(os.listdir("/proc/self/task")) == 1, "a fork has no other threads"
    assert not {"transformer_plugin", "vaswani", "fairseq_cli"} & sys.modules.keys()
    gc.collect()
    gc.freeze()  # memory stays shared
    forks: Dict[int, Tuple[int, socket.socket]] = {}  # by the descriptor that tells of its end
    while True:
        connections = [connection for _, connection in forks.values()]
        ready, _, _ = select.select([0, listener, *forks, *connections], [], [])
        for ended, (pid, connection) in list(forks.items()):
            if ended in ready:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):
                    connection.send(str(code).encode())
                connection.close()
                os.close(ended)
                del forks[ended]
            elif connection in ready or 0 in ready:  # who asked was killed
                os.kill(pid, signal.SIGKILL)
        if 0 in ready:
            shutil.rmtree(folder)
            os._exit(0)
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        message, streams, _, _ = socket.recv_fds(connection, PACKET, 3)
        if not message:  # killed as it asked
            connection.close()
            continue
        request = json.loads(message)
        request["environment"] = {**of_modules, **request["environment"]}
        if needs_new_interpreter(request, {**of_modules, **at_start}):
            with contextlib.suppress(OSError), connection:
                connection.send(NEW_INTERPRETER)
        elif pid := os.fork():
            forks[os.pidfd_open(pid)] = pid, connection
        else:
            for other in (listener, connection, *connections):
                other.close()
            for descriptor in forks:
                os.close(descriptor)
            become(request, streams, at_start)
            return request
        for stream in streams:
            os.close(stream)


def needs_new_interpreter(request: Request, at_start: Mapping[str, str]) -> bool:
    """Whether a fork would not be the same."""
    kind = [argument for argument in request["arguments"][:2] if argument != "-u"]
    if not kind or kind[0].startswith("-") and kind[0] not in ("-c", "-m"):
        return True
    now = request["environment"]
    changed = {name for name in {*now, *at_start} if now.get(name) != at_start.get(name)}
    return any(name.startswith(READ_AT_START) for name in changed - NO_MATTER)


def become(request: Request, streams: Sequence[int], at_start: Mapping[str, str]) -> None:
    """Make this fork what the process is that asked for it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["own session"]:
        os.setsid()
    else:
        with contextlib.suppress(OSError):  # a group of another session
            os.setpgid(0, request["group"])
    if request["interruptible"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    for limit, values in zip(LIMITS, request["limits"], strict=True):
        resource.setrlimit(limit, tuple(values))
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = request["program"]
    before, after = (path_of(environment) for environment in (at_start, os.environ))
    sys.path[:] = [*after, *(folder for folder in sys.path[1:] if folder not in before)]
    importlib.invalidate_caches()
    sys.modules["numpy"].random.seed()


def path_of(environment: Mapping[str, str]) -> List[str]:
    """The folders in PYTHONPATH."""
    return [folder for folder in environment.get("PYTHONPATH", "").split(":") if folder]


def run(arguments: Sequence[str]) -> None:
    """Do what Python does with ``-c CODE``, ``-m MODULE`` or a file, and what follows."""
    kind, *others = arguments
    if kind == "-u":
        sys.stdout.reconfigure(write_through=True)
        kind, *others = others
    if kind == "-c":
        sys.argv = ["-c", *others[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(others[0], "<string>", "exec"), vars(main))
    elif kind == "-m":
        sys.argv = others
        sys.path.insert(0, os.getcwd())
        runpy.run_module(others[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *others]
        sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))
        runpy.run_path(kind, run_name="__main__")


def main() -> None:
    """Run a command line in a fork, and leave without taking torch and fairseq apart (0.3 s)."""
    request = serve(socket.socket(fileno=int(sys.argv[2])), sys.argv[3])
    try:
        run(request["arguments"])
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            raise
        code = end.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):  # else Python says what cannot be written
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        ask(*sys.argv[2:])
    main()
