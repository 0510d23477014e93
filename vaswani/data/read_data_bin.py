"""Reads a data-bin, and checks it before a training starts: each failure is one sentence.

fairseq trusts an index: a negative size is copied without end, an offset leads out of the file, and
a token beyond the dictionary fails in the middle of training, on a GPU without a message.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fairseq.data import Dictionary
from omegaconf import DictConfig

from transformer_plugin.compat.scope import is_plugin_model
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.common.find import CONFIGS, first_data_bin
from vaswani.common.yaml_tables import Sections
from vaswani.folders.data_bin import DataBin
from vaswani.folders.run import Fingerprint
from vaswani_transformer.transformer import source_has_own_matrix

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQ")
#: an index's code for the type of tokens; fairseq also has two for floats, which tokens are not
_TYPES: dict[int, type[np.integer]] = {
    **{1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64},
    **{8: np.uint16, 9: np.uint32, 10: np.uint64},
}
_BLOCK = 1 << 24  # tokens checked at a time


class ParallelText(NamedTuple):
    """The (first) data-bin of a task, and the languages that are read there."""

    data: DataBin
    source: str
    target: str

    @property
    def languages(self) -> tuple[str, str]:
        """The language of the source, then of the target."""
        return self.source, self.target

    @property
    def options(self) -> Sections:
        """The languages, as options of a configuration."""
        return {"task": {"source_lang": self.source, "target_lang": self.target}}


def data_options(config: DictConfig, data: Path | None = None) -> tuple[Sections, list[str]]:
    """Check the data, and return the options that follow from it, and what is left out of it.

    The options are the languages, and the switch without which fairseq stops at a validation
    sentence that is too long: such sentences are left out, as in training.

    Args:
        config: of a training
        data: a data-bin that is used instead of the configuration's

    Returns:
        The options, by section and key; what is left out of training and of validation, as
        sentences to show.

    Raises:
        UserError: something is missing, empty, damaged or does not fit the model.
    """
    languages = {key: config.task.get(key) for key in ("source_lang", "target_lang")}
    text = parallel_text({"data": data or config.task.get("data"), **languages})
    check_dictionaries(config, text)
    options = text.options
    if data:
        options["task"]["data"] = str(data)
    remarks = left_out(config, text, config.dataset.train_subset, "training")
    if config.dataset.disable_validation:
        return options, remarks
    of_validation: list[str] = []
    for split in config.dataset.valid_subset.split(","):
        of_validation += left_out(config, text, split, "validation")
    if of_validation:
        options["dataset"] = {"skip_invalid_size_inputs_valid_test": True}
    return options, remarks + of_validation


def prepare_command(folder: Path) -> str:
    """Return the command that makes a data-bin; complete, if its folder has the name of a
    recipe.
    """
    name = folder.parent.name
    is_recipe = (CONFIGS / "data" / f"{name}.yaml").is_file()
    return f"vaswani prepare {name}" if is_recipe else "vaswani prepare"


def parallel_text(task: Mapping[str, Any] | DictConfig, advice: str = "") -> ParallelText:
    """Return the data of a task; languages that it does not name are those that were binarised.

    Args:
        task: a configuration's, or a run's
        advice: what to do if there is no data (default: prepare it)

    Raises:
        UserError: there is nothing binarised in it, or another pair.
    """
    data = DataBin(first_data_bin(task.get("data")))
    pairs = data.pairs()
    if not pairs:
        advice = advice or f"make it with '{prepare_command(data.folder)}'"
        raise UserError(f"task.data: there is no binarised text in {data.folder}: {advice}")
    source = task.get("source_lang")
    target = task.get("target_lang")
    if not source or not target:
        source, target = pairs[0]
    if (source, target) not in pairs and (target, source) not in pairs:
        names = ", ".join("-".join(pair) for pair in pairs)
        raise UserError(
            f"{data.folder} holds {names}, but the configuration asks for {source}-{target}: "
            "correct task.source_lang and task.target_lang, or task.data"
        )
    return ParallelText(data, source, target)


def sentence_lengths(text: ParallelText, split: str) -> list[np.ndarray]:
    """Return the sentence lengths of both sides, each an array [N], of a split that can be trained
    on.

    Raises:
        UserError: the sides differ in length, or are empty; a file is missing or damaged, or it was
            made with another dictionary.
    """
    source, target = text.languages
    prefix = text.data.prefix(split, source, target)
    sizes = [read_index(f"{prefix}.{language}").sizes for language in text.languages]
    if len(sizes[0]) != len(sizes[1]) or len(sizes[0]) == 0:
        raise UserError(
            f"{prefix} has {len(sizes[0]):,} {source} and {len(sizes[1]):,} {target} sentences: "
            "prepare the text again, so that the numbers are equal and above 0"
        )
    for language in text.languages:
        path = text.data.dictionary(language)
        entries = len(load_dictionary(path))
        unknown, counted = check_text(f"{prefix}.{language}", entries, str(path))
        if unknown == counted > 0:
            raise UserError(
                f"{prefix}.{language} has no token that {path} knows (all are <unk>), so there is "
                "nothing to learn: prepare the data again"
            )
    return sizes


def left_out(config: DictConfig, text: ParallelText, split: str, use: str) -> list[str]:
    """Return the lines of a split that are too long, as one sentence; none if all fit.

    Args:
        config: of the training
        text: its data
        split: of the data
        use: "training" or "validation"

    Raises:
        UserError: nothing is left, or a validation sentence does not fit into a batch; a file is
            missing or damaged.
    """
    task, dataset = config.task, config.dataset
    folder = text.data.folder
    source, target = sentence_lengths(text, split)
    if task.get("truncate_source"):
        source = np.minimum(source, task.max_source_positions)
    most = dict(zip(("source", "target"), positions(config), strict=True))
    keys = [f"task.max_{side}_positions={limit}" for side, limit in most.items()]
    if use == "training" and dataset.max_tokens:
        most = {side: min(limit, dataset.max_tokens) for side, limit in most.items()}
        keys.append(f"dataset.max_tokens={dataset.max_tokens}")
    fits = (source <= most["source"]) & (target <= most["target"])
    where = f"{folder}/{split}: {len(fits) - fits.sum():,} of {len(fits):,} {use} sentences"
    reason = f"are longer than {' or '.join(keys)} allows"
    if not fits.any():
        raise UserError(
            f"{folder}/{split}: all {len(fits):,} {use} sentences {reason}: raise these limits, "
            "or shorten the sentences"
        )
    longest = int(np.maximum(source, target)[fits].max())
    if use == "validation" and (dataset.max_tokens_valid or longest) < longest:
        raise UserError(
            f"{folder}/{split} has a sentence of {longest:,} tokens, too long for a batch of "
            f"dataset.max_tokens_valid={dataset.max_tokens_valid} (by default dataset.max_tokens): "
            f"give dataset.max_tokens_valid={max(longest, 4096)}"
        )
    return [] if fits.all() else [f"{where} {reason} and are left out"]


def positions(config: DictConfig) -> tuple[int, int]:
    """Return the longest source and target sentences that task and model accept, in tokens."""
    limits = [
        [section.get(f"max_{side}_positions") for section in (config.task, config.model)]
        for side in ("source", "target")
    ]
    source, target = (min([int(n) for n in pair if n] or [2**31]) for pair in limits)
    return source, target


def load_dictionary(path: Path) -> Dictionary:
    """Load fairseq's dictionary from a file.

    Raises:
        UserError: the file is not a dictionary, or a line is wrong; fairseq's errors do not name
            the file.
    """
    try:
        return Dictionary.load(str(path))
    except OSError:
        raise
    except Exception as error:  # ValueError, RuntimeError or Exception itself
        raise UserError(
            f"{path} is damaged or not a fairseq dictionary: {error} (prepare the data again)"
        ) from error


def check_dictionaries(config: DictConfig, text: ParallelText) -> None:
    """Raise UserError if a model that shares one matrix gets two different dictionaries (3.4)."""
    model = config.model
    plugin_model = is_plugin_model(model._name)
    shared = not source_has_own_matrix(model) if plugin_model else model.get("share_all_embeddings")
    paths = [text.data.dictionary(language) for language in text.languages]
    if shared and sha256_of(paths[0]) != sha256_of(paths[1]):
        own = "model.share_decoder_input_output_embed=true or model.untie_embeddings=true"
        hint = f", or give {own}" if plugin_model else ""
        raise UserError(
            f"{paths[0]} and {paths[1]} differ, but the model shares one embedding matrix: "
            f"binarise with fairseq-preprocess --joined-dictionary{hint}"
        )


def data_fingerprint(config: DictConfig) -> Fingerprint:
    """Return the data's fingerprint: hashes of its dictionaries, indexes and texts."""
    return Fingerprint(DataBin(first_data_bin(config.task.data)).fingerprint())


# ---- the files --------------------------------------------------------------------------------


class Index(NamedTuple):
    """What an index says: each sentence's length in tokens [N], and the type of a token."""

    sizes: np.ndarray
    dtype: type[np.integer]


def read_index(prefix: str) -> Index:
    """Return the index of binarised text (named without .idx), checked against its .bin file.

    Format: a magic word, version (8 bytes), type (1), N (8), N sizes (4 each), N offsets (8 each).

    Raises:
        UserError: a file is missing, or says something impossible.
    """
    index, binary = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    damaged = UserError(f"{index} and .bin are missing or damaged: prepare the text again")
    try:
        length, stored = index.stat().st_size, binary.stat().st_size
        with open(index, "rb") as stream:
            magic, version, kind, count = _HEADER.unpack(stream.read(_HEADER.size))
            is_index = magic == _MAGIC and version == 1 and kind in _TYPES
            if not is_index or length != _HEADER.size + 12 * count:
                raise damaged
            sizes = np.fromfile(stream, dtype="<i4", count=count)
            offsets = np.fromfile(stream, dtype="<i8", count=count)
    except (FileNotFoundError, struct.error):
        raise damaged from None
    ends = np.cumsum(sizes, dtype=np.int64) * np.dtype(_TYPES[kind]).itemsize
    begins = np.concatenate([[0], ends])
    if (sizes < 0).any() or not np.array_equal(offsets, begins[:-1]) or stored != begins[-1]:
        raise damaged
    return Index(sizes, _TYPES[kind])


def check_text(prefix: str, entries: int, dictionary: str) -> tuple[int, int]:
    """Check binarised text against a dictionary's size, and count <unk> and all tokens.

    Raises:
        UserError: the text is damaged, or has a token beyond the dictionary.
    """
    dtype = read_index(prefix).dtype
    if not Path(f"{prefix}.bin").stat().st_size:
        return 0, 0
    tokens: np.ndarray = np.memmap(f"{prefix}.bin", dtype=dtype, mode="r")
    unknown, counted = 0, 0
    for start in range(0, len(tokens), _BLOCK):
        block = tokens[start : start + _BLOCK]
        if block.min() < 0 or block.max() >= entries:
            raise UserError(
                f"{prefix}.bin has a token number that is not in {dictionary}, which ends at "
                f"{entries - 1:,}, so the text was binarised with another dictionary: prepare the "
                "text again"
            )
        unknown += int((block == 3).sum())  # fairseq's numbers of <unk> and the end of a sentence
        counted += int((block != 2).sum())
    return unknown, counted
