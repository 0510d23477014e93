"""How long the lines of a model's training text are: quantiles, recorded when it is packed."""

from pathlib import Path

import numpy as np

from vaswani.common.errors import UserError
from vaswani.data.read_data_bin import read_index
from vaswani.folders.data_bin import DataBin

#: per cent of the lines that are at most as long
QUANTILES = (50, 90, 99, 100)


def text_lengths(data: Path, langs: tuple[str, str]) -> dict[str, int]:
    """Return quantiles of the lengths of the source's training lines in subwords.

    Empty if the training text is not there.

    Args:
        data: a data-bin
        langs: source and target
    """
    try:
        sizes = read_index(f"{DataBin(data).prefix('train', *langs)}.{langs[0]}").sizes
    except UserError:  # dictionaries alone are packed, too
        return {}
    if not len(sizes):
        return {}
    subwords: np.ndarray = sizes - 1  # the end of the sentence is none
    levels = [percent / 100 for percent in QUANTILES]
    values = np.quantile(subwords, levels, method="higher")
    return {str(percent): int(value) for percent, value in zip(QUANTILES, values, strict=True)}
