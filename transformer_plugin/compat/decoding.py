"""Decoding: options of fairseq's generators and models that fail, or have no effect."""

import copy
import functools
import math
from typing import Any, Dict, Optional

import torch
from fairseq import utils
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import DiverseBeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks import FairseqTask
from torch import Tensor


def apply() -> None:
    """Install this file's workarounds.

    fairseq's models and its generator can be compiled by ``torch.jit.script``, which reads the
    source of their methods: a replacement for one has to be TorchScript too.
    """
    _keep_off_fast_path()
    _replace_unknown_words()
    NGramRepeatBlock._no_repeat_ngram = _no_repeat_ngram
    for generator in (SequenceGenerator, SequenceGeneratorWithAlignment):
        _number_sentences_by_batch(generator)


def _keep_off_fast_path() -> None:
    """fairseq's own ``transformer`` can decode, for comparison.

    Official fairseq with torch 2: "Mask Type should be defined", from a fused encoder layer that
    it calls with the arguments of torch 1.13. Modern fairseq has no such path.
    """
    original = TransformerEncoderLayerBase.__init__

    @functools.wraps(original)
    def without_fast_path(layer: Any, *args: Any, **kwargs: Any) -> None:
        original(layer, *args, **kwargs)
        if hasattr(layer, "can_use_fastpath"):
            layer.can_use_fastpath = False

    TransformerEncoderLayerBase.__init__ = without_fast_path


def _replace_unknown_words() -> None:
    """``--replace-unk`` copies the source word that an unknown word attends to most.

    All versions stop at the first unknown word: the generator aligns only for
    ``--print-alignment``, its pairs are read as single numbers, and the flag without a file tries
    to open one called "@@ ".
    """
    read_table, build_generator = utils.load_align_dict, FairseqTask.build_generator
    replace_by_numbers = utils.replace_unk

    def load_align_dict(replace_unk: Optional[str]) -> Optional[Dict[str, str]]:
        return {} if replace_unk == "@@ " else read_table(replace_unk)

    def replace_unk(
        hypo_str: str, src_str: str, alignment: Any, align_dict: Dict[str, str], unk: str
    ) -> str:
        if len(alignment) and isinstance(alignment[0], int):  # what fairseq's own reads
            return replace_by_numbers(hypo_str, src_str, alignment, align_dict, unk)
        words, source = hypo_str.split(), src_str.split()
        for number, origin in _origins(alignment).items():
            if number < len(words) and words[number] == unk and origin < len(source):
                words[number] = align_dict.get(source[origin], source[origin])
        return " ".join(words)

    @functools.wraps(build_generator)
    def aligning(task: Any, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        replacing = getattr(args, "replace_unk", None) is not None
        if replacing and not getattr(args, "print_alignment", None):
            args = copy.deepcopy(args)  # the command itself still does not print it
            args.print_alignment = "hard"
        return build_generator(task, models, args, *rest, **kwargs)

    utils.load_align_dict, utils.replace_unk = load_align_dict, replace_unk
    FairseqTask.build_generator = aligning


def _origins(alignment: Any) -> Dict[int, int]:
    """Number of a target word → that of its source word, both from 0.

    ``alignment`` is fairseq's: if hard, pairs (source, target); if soft, the weights of each target
    word as text, the last one for the end of the sentence.
    """
    if len(alignment) and isinstance(alignment[0][0], str):
        rows = [[float(weight) for weight in row[:-1]] for row in alignment]
        return {number: row.index(max(row)) for number, row in enumerate(rows) if row}
    return {int(target): int(source) for source, target in alignment}


def _no_repeat_ngram(
    self: Any, tokens: Tensor, lprobs: Tensor, bsz: int, beam_size: int, step: int
) -> Tensor:
    """Replaces ``NGramRepeatBlock._no_repeat_ngram``, so that ``--no-repeat-ngram-size`` works.

    All versions compare with the end of the whole buffer, which is padding, so nothing counts as
    repeated; and a size of 1 compares nothing. Arguments as fairseq's: ``tokens`` [bsz·beam_size,
    longest], the first of which begins the sentence and is not one of its words; ``lprobs``
    [bsz·beam_size, V], of the word after number ``step``, changed in place.
    """
    size: int = self.no_repeat_ngram_size
    if step >= size:
        words = tokens[:, 1 : step + 1]
        ngrams = words.unfold(1, size, 1)  # [bsz·beam_size, step + 1 - size, size]
        last = words[:, step + 1 - size :].unsqueeze(1)
        repeated = (ngrams[:, :, : size - 1] == last).all(dim=2)
        row, number = torch.where(repeated)
        lprobs[row, ngrams[row, number, size - 1]] = -math.inf
    return lprobs


def _number_sentences_by_batch(generator: Any) -> None:
    """``--diverse-beam-groups`` works although sentences are numbered in their data set.

    Modern fairseq stores the overlap of the groups under the sentence's number in its batch, but
    looks it up under that in the data set: an IndexError, or another sentence's overlap. Without
    the latter number, its generator counts within the batch. Only ``generate`` may be wrapped: it
    is not compiled.
    """
    original = generator.generate

    @functools.wraps(original)
    def generate(self: Any, models: Any, sample: Dict[str, Any], **kwargs: Any) -> Any:
        if isinstance(self.search, DiverseBeamSearch):
            sample = {name: value for name, value in sample.items() if name != "id"}
        return original(self, models, sample, **kwargs)

    generator.generate = generate
