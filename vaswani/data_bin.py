"""What must be true of a data-bin before a training starts: each failure one sentence."""

import struct
from pathlib import Path
from typing import Any, Dict, List, Tuple

from vaswani.errors import UserError
from vaswani.files import sha256_of

_INDEX_MAGIC = b"MMIDIDX\x00\x00"
_INDEX_HEADER = struct.Struct("<9sQBQ")


def pairs_in(folder: Path) -> List[Tuple[str, str]]:
    """The language pairs (source, target) that fairseq-preprocess left in a folder."""
    names = [path.name.split(".") for path in sorted(folder.glob("*.*-*.*.idx"))]
    pairs = [tuple(name[1].split("-")) for name in names if name[1].count("-") == 1]
    return [(source, target) for source, target in dict.fromkeys(pairs)]


def check_data(config: Any) -> None:
    """Check folder, pair, splits and dictionaries before a training; fill in the pair.

    Raises:
        UserError: something is missing, empty or does not fit the model.
    """
    folder = check_pair(config.task)
    source, target = config.task.source_lang, config.task.target_lang
    for split in [config.dataset.train_subset, *config.dataset.valid_subset.split(",")]:
        check_split(folder, split, source, target)
    check_dictionaries(config, folder)


def check_pair(task: Any) -> Path:
    """The (first) data-bin folder of a task; the languages are filled in where not given.

    Raises:
        UserError: no folder, nothing binarised in it, or another pair.
    """
    if not task.get("data"):
        raise UserError("task.data is missing: the data-bin folder")
    folder = Path(str(task.data).split(":")[0])
    if not folder.is_dir():
        raise UserError(f"there is no data in {folder}: make it with 'vaswani prepare'")
    pairs = pairs_in(folder)
    if not pairs:
        raise UserError(
            f"{folder} holds no binarised text: make it with 'vaswani prepare' or "
            "'fairseq-preprocess'"
        )
    if not task.get("source_lang") or not task.get("target_lang"):
        task.source_lang, task.target_lang = pairs[0]
    source, target = task.source_lang, task.target_lang
    if (source, target) not in pairs and (target, source) not in pairs:
        held = ", ".join("-".join(pair) for pair in pairs)
        raise UserError(f"{folder} holds {held}, but the experiment asks for {source}-{target}")
    return folder


def split_prefix(folder: Path, split: str, source: str, target: str) -> Path:
    """``FOLDER/SPLIT.en-de`` in the direction that was binarised.

    Raises:
        UserError: there is no such split.
    """
    for pair in (f"{source}-{target}", f"{target}-{source}"):
        if (folder / f"{split}.{pair}.{source}.idx").is_file():
            return folder / f"{split}.{pair}"
    there = sorted({path.name.split(".")[0] for path in folder.glob("*.idx")})
    raise UserError(f"{folder} has no part '{split}'; it has: {', '.join(there)}")


def check_split(folder: Path, split: str, source: str, target: str) -> None:
    """Raises UserError unless both sides are there, as long as each other, and not empty."""
    prefix = split_prefix(folder, split, source, target)
    lengths = [sentences(Path(f"{prefix}.{lang}")) for lang in (source, target)]
    if lengths[0] != lengths[1] or lengths[0] == 0:
        raise UserError(
            f"{prefix} has {lengths[0]:,} {source} and {lengths[1]:,} {target} sentences: it "
            "should have as many of both, and some; prepare it again"
        )


def sentences(path: Path) -> int:
    """How many sentences a binarised file (named without .idx) holds, read off its index.

    fairseq's index: a magic word, version (8 bytes), type (1), N (8), N sizes of 4 bytes, N offsets
    of 8. Read here because fairseq's reader answers a damaged one with errors from its destructors.

    Raises:
        UserError: the files are missing, or the index or the binary is cut short.
    """
    damaged = UserError(f"{path}.idx and .bin are missing or damaged: prepare the data again")
    try:
        content = Path(f"{path}.idx").read_bytes()
        size = Path(f"{path}.bin").stat().st_size
        magic, _, _, count = _INDEX_HEADER.unpack_from(content)
        last = struct.unpack_from("<Q", content, len(content) - 8)[0] if count else -1
    except (FileNotFoundError, struct.error):
        raise damaged from None
    whole = len(content) == _INDEX_HEADER.size + 12 * count and size > last
    if magic != _INDEX_MAGIC or not whole:
        raise damaged
    return int(count)


def check_dictionaries(config: Any, folder: Path) -> None:
    """Raises UserError where a model that shares one matrix meets two dictionaries (3.4)."""
    model, task = config.model, config.task
    ours = str(model._name).startswith("vaswani_transformer")
    shared = not model.get("untie_embeddings") if ours else model.get("share_all_embeddings")
    paths = [folder / f"dict.{lang}.txt" for lang in (task.source_lang, task.target_lang)]
    for path in paths:
        if not path.is_file():
            raise UserError(f"{path} is missing: prepare the data again")
    if shared and sha256_of(paths[0]) != sha256_of(paths[1]):
        hint = " or give model.untie_embeddings=true" if ours else ""
        raise UserError(
            f"{paths[0]} and {paths[1]} differ, but the model shares one embedding matrix: "
            f"binarise with fairseq-preprocess --joined-dictionary{hint}"
        )


def fingerprint(config: Any) -> Dict[str, Any]:
    """What the data is: the hash of every dictionary, index and text, and the texts' sizes."""
    folder = Path(str(config.task.data).split(":")[0])
    texts = sorted(folder.glob("*.bin"))
    files = [*sorted(folder.glob("dict.*.txt")), *sorted(folder.glob("*.idx")), *texts]
    return {
        "sha256": {path.name: sha256_of(path) for path in files},
        "bytes": {path.name: path.stat().st_size for path in texts},
    }
