"""Runs ``scripts/wmt14``, with fairseq's commands or with stand-ins for them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import forks

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "wmt14"
ADDRESS = "https://www.statmt.org/"


def write_command(folder: Path, name: str, text: str) -> None:
    """Write a command of this name, which a shell finds in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def serve_with_curl(folder: Path, www: Path) -> None:
    """Write a ``curl`` that reads from a folder what WMT's server would send."""
    write_command(folder, "curl", f'url=${{*: -1}}\nexec cat "{www}/${{url#{ADDRESS}}}"')


def run(
    name: str,
    *arguments: str,
    folder: Path,
    commands: Path,
    variables: Mapping[str, str] = {},
    forked: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder.

    Args:
        name: ``prepare``, ``train``, ``average``, ``generate`` or ``score``
        arguments: of the script
        folder: where it makes ``data`` and ``runs``
        commands: is looked up before the environment's own commands
        variables: ``PAIR``, ``SIZE``, ``GPUS``
        forked: commands of fairseq and of this project that run in forks of this process
    """
    path = [str(commands), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(path), **variables}
    command = ["bash", str(SCRIPTS / f"{name}.sh"), *arguments]
    return forks.run_shell(command, folder, environment, forked)
