"""The two ways to make subwords, and where each keeps what it has learned.

- ``subword_nmt``: byte pair encoding of Moses' tokens (5.1); ``bpe.py``.
- ``sentencepiece``: pieces of raw text, in which a space is a character like others; ``pieces.py``.

The names are fairseq's (``--bpe``).
"""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from vaswani.experiment.find import read_yaml

Name = Literal["subword_nmt", "sentencepiece"]
BPE: Final = "subword_nmt"
SENTENCEPIECE: Final = "sentencepiece"


class SubwordModel(NamedTuple):
    """What is learned, in words and as a file; and how fairseq is told to undo it."""

    title: str
    #: its name beside a data-bin
    in_data: str
    #: its name in a model folder: fairseq's ``from_pretrained`` finds it by that
    in_model: str
    #: fairseq's ``--remove-bpe``
    remove: str


SUBWORD_MODELS: dict[Name, SubwordModel] = {
    BPE: SubwordModel("BPE codes", "codes", "bpecodes", "@@ "),
    SENTENCEPIECE: SubwordModel(
        "SentencePiece model", "sentencepiece.bpe.model", "sentencepiece.bpe.model", SENTENCEPIECE
    ),
}


def find_subword_model(folder: Path) -> tuple[Name, Path | None]:
    """What made the subwords of prepared text, and the file that it learned, if that is there.

    Args:
        folder: with recipe.yaml, if ``vaswani prepare`` made it
    """
    recipe = folder / "recipe.yaml"
    table = read_yaml(recipe) if recipe.is_file() else {}
    kind: Name = table.get("subword") or BPE
    path = folder / SUBWORD_MODELS[kind].in_data
    return kind, path if path.is_file() else None
