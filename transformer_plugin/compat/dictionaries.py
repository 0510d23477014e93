"""Compares dictionaries with the checkpoint's: other ones of the same size are refused.

All versions compare only sizes (through the shapes of the parameters). Text prepared again with
other BPE codes may have as many types in another order: the model then reads and writes nonsense,
without any warning. A hash of the symbols goes into ``task_state``, which fairseq saves with every
checkpoint and gives back to the task for decoding. Checkpoints without the hash are compared by
size, as before.

Only fairseq's ``translation`` and our task compare (translation_task.py). Other tasks have reasons
to decode or continue with other dictionaries: ``multilingual_translation`` has one per language,
and takes the first for both sides in training; ``denoising`` adds ``<mask>``, which fine-tuning
leaves out.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

KEY = "dictionaries_sha256"
"""In ``task_state``: ``source`` and ``target``, each 64 hexadecimal digits."""


def dictionary_hashes(task: Any) -> dict[str, str]:
    """Return the SHA-256 of the symbols, in order, of the task's dictionaries."""
    dictionaries = {"source": task.source_dictionary, "target": task.target_dictionary}
    return {
        side: hashlib.sha256("\n".join(dictionary.symbols).encode()).hexdigest()
        for side, dictionary in dictionaries.items()
    }


def other_dictionaries(task: Any, task_state: Mapping[str, Any]) -> str:
    """Return one sentence if a dictionary is not the checkpoint's; empty if both are.

    Args:
        task: with the current dictionaries
        task_state: the checkpoint's
    """
    saved = task_state.get(KEY) or {}
    for side, hash_now in dictionary_hashes(task).items():
        if saved.get(side, hash_now) != hash_now:
            return (
                f"The checkpoint was trained with another {side} dictionary than this one: its "
                "words, or their order, differ. Use the data-bin that it was trained on, or "
                "binarise with that data's dict.*.txt (fairseq-preprocess --srcdict) and BPE codes."
            )
    return ""
