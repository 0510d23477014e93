"""A checkpoint knows its dictionaries: another one of the same size does not slip in.

All versions compare only sizes (through the shapes of the parameters). Text prepared again with
other BPE codes may have as many types in another order: the model then reads and writes nonsense,
without any warning. A hash of the symbols goes into ``task_state``, which fairseq saves with every
checkpoint and gives back to the task for decoding. Checkpoints without it are compared by size, as
before.

Only fairseq's ``translation`` and our task compare. Others have reasons to decode with other
dictionaries, or to go on with them: ``multilingual_translation`` has one per language, and takes
the first for both sides in training; ``denoising`` adds ``<mask>``, which fine-tuning leaves out.
"""

import functools
import hashlib
from typing import Any, Callable, Dict, Mapping

from fairseq.tasks import FairseqTask

from ..checkpoints import CheckpointError
from .scope import is_translation

KEY = "dictionaries_sha256"
"""In ``task_state``: ``source`` and ``target``, each 64 hexadecimal digits."""


def apply() -> None:
    """Install this file's workarounds."""
    _save_and_compare()
    _refuse_to_use()


def _save_and_compare() -> None:
    """The hashes go into ``task_state``, and are compared when it is given back."""
    save, load = FairseqTask.state_dict, FairseqTask.load_state_dict

    @functools.wraps(save)
    def state_dict(task: Any) -> Dict[str, Any]:
        hashes = dictionary_hashes(task)
        return {**save(task), **({KEY: hashes} if hashes else {})}

    @functools.wraps(load)
    def load_state_dict(task: Any, state_dict: Dict[str, Any]) -> Any:
        before = getattr(task, "other_dictionaries", "")  # of an ensemble's earlier models
        task.other_dictionaries = before or other_dictionaries(task, state_dict)
        return load(task, {name: kept for name, kept in state_dict.items() if name != KEY})

    FairseqTask.state_dict, FairseqTask.load_state_dict = state_dict, load_state_dict


def _refuse_to_use() -> None:
    """A task whose model has other dictionaries neither decodes nor validates.

    Merely loading such a model is no error: fairseq's own tests do so.
    """
    for name in ("build_generator", "valid_step"):
        setattr(FairseqTask, name, _refusing(getattr(FairseqTask, name)))


def _refusing(original: Callable) -> Callable:
    @functools.wraps(original)
    def method(task: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(task, "other_dictionaries", ""):
            raise CheckpointError(task.other_dictionaries)
        return original(task, *args, **kwargs)

    return method


def dictionary_hashes(task: Any) -> Dict[str, str]:
    """SHA-256 of the symbols, in order, of the task's dictionaries; empty for other tasks."""
    if not is_translation(task):
        return {}
    words = {"source": task.source_dictionary, "target": task.target_dictionary}
    return {
        side: hashlib.sha256("\n".join(found.symbols).encode()).hexdigest()
        for side, found in words.items()
    }


def other_dictionaries(task: Any, task_state: Mapping[str, Any]) -> str:
    """One sentence if a dictionary is not the checkpoint's; empty if none differs.

    Args:
        task: with the current dictionaries
        task_state: the checkpoint's
    """
    now = dictionary_hashes(task)
    for side, trained_with in (task_state.get(KEY) or {}).items():
        if now.get(side, trained_with) != trained_with:
            return (
                f"The checkpoint was trained with another {side} dictionary than this one: its "
                "words, or their order, differ. Use the data-bin that it was trained on, or "
                "binarise with that data's dict.*.txt (fairseq-preprocess --srcdict) and BPE codes."
            )
    return ""
