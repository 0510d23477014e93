"""Turns fairseq's failure to build a component from its options into one sentence with the section.

fairseq has some hundred components, which check their options with assertions or not at all. An
error raised in fairseq's code while building one is caused by the options that were given.
"""

import contextlib
import traceback
from pathlib import Path
from typing import Any, Iterator, Optional

#: fairseq's functions that build something from a section of the configuration
BUILDERS = {
    "setup_task": "task",
    "build_model": "model",
    "build_criterion": "criterion",
    "build_optimizer": "optimizer",
    "_build_optimizer": "optimizer",
    "build_lr_scheduler": "lr_scheduler",
}
PACKAGES = ("fairseq", "fairseq_cli", "transformer_plugin", "vaswani")


@contextlib.contextmanager
def named_by_section(config: Any) -> Iterator[None]:
    """While the block runs, such an error becomes one sentence; others are left as they are.

    Raises:
        ConfigError: names the section and quotes fairseq's message.
    """
    from transformer_plugin.config import ConfigError

    try:
        yield
    except Exception as error:
        reason = why(error, config)
        if reason is None:
            raise
        raise ConfigError(reason) from error


def why(error: Exception, config: Any) -> Optional[str]:
    """The message for an error; None unless fairseq's own code raised it in building a section."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [(next((p for p in PACKAGES if p in Path(f.filename).parts), ""), f) for f in frames]
    known = [package for package, _ in places if package]
    if not known or not known[-1].startswith("fairseq"):
        return None
    built = [
        "distributed_training" if frame.name == "__init__" else BUILDERS[frame.name]
        for package, frame in places
        if frame.name in BUILDERS
        or (package == "fairseq" and frame.name == "__init__" and is_trainer(frame.filename))
    ]
    if not built:
        return None
    section = config.get(built[-1])
    name = section.get("_name") if hasattr(section, "get") else getattr(section, "_name", None)
    lines = str(error).strip().splitlines() or ["no reason given"]
    what = f"'{name}'" if name else "the component"
    return (
        f"{built[-1]}: fairseq cannot build {what} with these options "
        f"({type(error).__name__}: {lines[0][:200]}): correct them"
    )


def is_trainer(path: str) -> bool:
    """Whether a file is that of fairseq's Trainer."""
    return Path(path).name == "trainer.py"
