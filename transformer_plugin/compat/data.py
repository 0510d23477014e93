"""Binarising more than 2 GB of text."""

from typing import Any

from fairseq.data import indexed_dataset

from .replacing import REPAIRS, replaces


@replaces(
    indexed_dataset.MMapIndexedDatasetBuilder,
    "merge_file_",
    REPAIRS,
    "numpy 2",
    "`fairseq-preprocess --workers` can write more than 2 GB for one side of a corpus",
)
def merge_file_(builder: Any, another_file: str) -> Any:
    """As fairseq's, with sizes that do not overflow.

    With numpy 2 the sizes in the parts that workers made are 32-bit numbers, and so are their
    sums: offsets beyond 2 GB come out negative, with only a RuntimeWarning.
    """
    there = len(builder._sizes)
    done = merge_file_.original(builder, another_file)
    builder._sizes[there:] = map(int, builder._sizes[there:])
    return done
