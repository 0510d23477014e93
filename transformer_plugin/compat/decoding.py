"""Decoding: options of fairseq's generators and models that fail, or do nothing."""

import copy
from typing import Any, Dict, Optional

from fairseq import utils
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import FairseqTask


def apply() -> None:
    """Set this file's workarounds."""
    _keep_off_fast_path()
    _replace_unknown_words()


def _keep_off_fast_path() -> None:
    """fairseq's own ``transformer`` can decode, to be compared with.

    Official fairseq with torch 2: "Mask Type should be defined", from a fused encoder layer that
    it calls with the arguments of torch 1.13. Modern fairseq has no such path.
    """
    never = property(lambda layer: False, lambda layer, value: None)
    TransformerEncoderLayerBase.can_use_fastpath = never


def _replace_unknown_words() -> None:
    """``--replace-unk`` copies the source word that an unknown word attends to most.

    All versions stop at the first unknown word: the generator aligns only for
    ``--print-alignment``, its pairs are read as single numbers, and the flag without a file opens
    one called "@@ ".
    """
    read_table, build_generator = utils.load_align_dict, FairseqTask.build_generator

    def load_align_dict(replace_unk: Optional[str]) -> Optional[Dict[str, str]]:
        return {} if replace_unk == "@@ " else read_table(replace_unk)

    def replace_unk(
        hypo_str: str, src_str: str, alignment: Any, align_dict: Dict[str, str], unk: str
    ) -> str:
        words, source = hypo_str.split(), src_str.split()
        for number, origin in _origins(alignment).items():
            if number < len(words) and words[number] == unk and origin < len(source):
                words[number] = align_dict.get(source[origin], source[origin])
        return " ".join(words)

    def aligning(task: Any, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        asked = getattr(args, "replace_unk", None) is not None
        if asked and not getattr(args, "print_alignment", None):
            args = copy.deepcopy(args)  # the command itself goes on without printing it
            args.print_alignment = "hard"
        return build_generator(task, models, args, *rest, **kwargs)

    utils.load_align_dict, utils.replace_unk = load_align_dict, replace_unk
    FairseqTask.build_generator = aligning


def _origins(alignment: Any) -> Dict[int, int]:
    """Number of a target word → that of its source word, both from 0.

    ``alignment`` is fairseq's: hard, pairs (source, target); or soft, for each target word its
    weights as text, the last one for the end of the sentence.
    """
    if len(alignment) and isinstance(alignment[0][0], str):
        rows = [[float(weight) for weight in row[:-1]] for row in alignment]
        return {number: row.index(max(row)) for number, row in enumerate(rows) if row}
    return {int(target): int(source) for source, target in alignment}
