"""Where and with what something ran: enough to say whether two figures are comparable."""

import gc
import importlib.metadata
import importlib.util
import os
import platform
import re
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

from vaswani.common.files import Table

DISTRIBUTION = "vaswani-transformer"
PACKAGES = (DISTRIBUTION, "fairseq", "fairseq-fixed", "torch", "numpy", "omegaconf")
#: the extras that have fairseq's requirements
FAIRSEQ_EXTRAS = ("modern", "official")


def version() -> str:
    """Return the installed version of the distribution."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed: running from the source tree)"


def extra_with(module: str) -> str | None:
    """Return the extra of this distribution that installs a module; None if there is none.

    The extras ``modern`` and ``official`` are for fairseq and are not considered.

    Args:
        module: the name that it is imported by, such as ``subword_nmt``
    """
    try:
        requirements = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for requirement in requirements:
        match = re.match(r"""([\w.-]+).*extra *== *['"](\w+)['"]""", requirement)
        if match is None or match[2] in FAIRSEQ_EXTRAS:
            continue
        if match[1].lower().replace("-", "_") == module.lower():
            return match[2]
    return None


def import_torch() -> None:
    """Import torch without Python's garbage collector, which then leaves torch's objects alone.

    They stay until the process ends. The collector would look through them again and again while
    they are made, and once more at the end. Call this in a command's own process: what the process
    holds at that moment is never collected.
    """
    if "torch" in sys.modules:
        return
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        import torch  # noqa: F401
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def environment() -> Table:
    """Return the versions, commit, processor, GPUs, command and time of day."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": shlex.join(["vaswani", *sys.argv[1:]]),
        "versions": versions,
        "commit": commit(),
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        # torch also counts those that it cannot use, with an old driver, for example
        "gpus": [torch.cuda.get_device_name(i) for i in range(count)],
    }


def machine(device: str) -> Table:
    """Return the environment, as recorded for runs, and the device that figures are measured on."""
    return {**environment(), "device": device}


def hardware_name(facts: Table) -> str:
    """Return the hardware in a record's name: ``nvidia-h200``, ``amd-epyc-family-25-model-1-2cpu``.

    Args:
        facts: of :func:`machine`
    """
    hardware = (facts["gpus"] or [""])[0] if facts["device"] == "cuda" else facts["cpu"]
    words = re.sub(r"\(.*?\)|processor|@[^,]*", " ", hardware.lower())
    name = "-".join(re.findall(r"[a-z0-9]+", words)) or platform.machine()
    return f"{name}-{facts['cores']}cpu" if facts["device"] == "cpu" else name


def commit() -> str | None:
    """Return the repository's commit, ``+changes`` if files differ from it; None outside a
    repository.
    """
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():  # installed, perhaps inside another repository
        return None
    describe = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*"]
    try:
        described = subprocess.run([*describe, "--dirty=+changes"], capture_output=True, text=True)
    except OSError:
        return None
    return described.stdout.strip() or None


def cpu_name() -> str:
    """Return the processor's model name, and the numbers that tell its generation, if known.

    A virtual machine may report only ``AMD EPYC``: hence ``AMD EPYC, family 25 model 17``.
    """
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    facts = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    name = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in facts:
        name += f", family {facts['cpu family']} model {facts.get('model', '?')}"
    return name


def plugin_dir() -> Path:
    """Return the absolute folder of ``transformer_plugin``, found without importing it (or
    torch).
    """
    spec = importlib.util.find_spec("transformer_plugin")
    assert spec and spec.origin
    return Path(spec.origin).resolve().parent


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# ---- what was used ----------------------------------------------------------------------------


def peak_megabytes(device: str = "cpu") -> float:
    """Return the most memory that this process, or a process it has waited for, ever held.

    For ``cuda``: the GPU's memory, as torch reserves it for this process. What is allocated in it
    has no peak to ask for: fairseq's trainer resets that in every update.
    """
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_reserved() / 2**20
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    own, children = (resource.getrusage(each).ru_maxrss for each in who)
    status = Path("/proc/self/status")
    if status.is_file():  # Linux: ru_maxrss would include what our parent held when it started us
        own = int(status.read_text().partition("VmHWM:")[2].split()[0])
    return max(own, children) / (1 << 20 if sys.platform == "darwin" else 1 << 10)
