"""Compares the training text with the checkpoint's, so that another text is not continued.

fairseq compares only the number of batches: another text of the same lengths continues in the
middle of an epoch that it never began, and a reversed language pair translates the wrong way. The
languages and a hash of each file of the binarised training text go into ``task_state``.
Checkpoints without them are continued as before.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairseq.utils import split_paths

from vaswani_transformer.io.sums import sha256_of

KEY = "training_text"
"""In ``task_state``: see :func:`training_text`."""


def training_text(cfg: Any) -> dict[str, str]:
    """Return the languages, and the SHA-256 of each file of the training text by its name.

    Files of further data folders, which fairseq uses in turn, have the folder's number before the
    name.

    Args:
        cfg: the task's options
    """
    source, target = cfg.source_lang, cfg.target_lang
    text = {"source_lang": source, "target_lang": target}
    for number, folder in enumerate(split_paths(cfg.data or "")):
        prefix = f"{number}/" if number else ""
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            for path in sorted(Path(folder).glob(f"{cfg.train_subset}*.{pair}.*")):
                text[prefix + path.name] = sha256_of(path)
    return text


def other_languages(now: Mapping[str, str], task_state: Mapping[str, Any]) -> str:
    """Return a sentence if a checkpoint has another language pair; "" if not, or unknown."""
    saved = task_state.get(KEY) or now
    pairs = [f"{text['source_lang']}-{text['target_lang']}" for text in (saved, now)]
    if pairs[0] == pairs[1]:
        return ""
    return (
        f"The checkpoint was trained on {pairs[0]}, and this training is of {pairs[1]}: give "
        "another --save-dir, or the --source-lang and --target-lang that it was trained with."
    )


def other_text(now: Mapping[str, str], task_state: Mapping[str, Any]) -> str:
    """Return a sentence if a checkpoint was trained on another text; "" if not, or unknown.

    Args:
        now: the result of :func:`training_text`
        task_state: the checkpoint's
    """
    saved = task_state.get(KEY) or now
    names = sorted(set(saved) | set(now))
    changed = [name for name in names if saved.get(name) != now.get(name)]
    if not changed:
        return ""
    return (
        f"The checkpoint was trained on another text ({changed[0]} differs): give another "
        "--save-dir, or --reset-dataloader to continue with epoch 1 of this text."
    )
