"""Searches with the generator that a fairseq task builds, as for the checkpoints of runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf
from torch import Tensor, nn

from vaswani.common.errors import UserError
from vaswani.decoding.engine import Batch, BatchHypotheses, TokenHypothesis
from vaswani.decoding.process_engine import ProcessEngine
from vaswani.folders.search_options import BEAM_OPTIONS, TranslationOptions
from vaswani_transformer.fast.linear import pack_weights

#: a batch in fairseq's form: tensors by their names, and further tables of them
Sample = dict[str, Any]


class FairseqEngine(ProcessEngine):
    """A task with its models, one or an ensemble.

    Args:
        task: builds the generator; its dictionaries are the vocabularies
        models: in evaluation mode, prepared for decoding, on their device; they belong to the
            engine, which packs their weights, so nothing may write to these any more
        name: of the file or folder that they are from, for messages
        sample: a batch in fairseq's form; by default made from the token ids of a :class:`Batch`
    """

    #: fairseq's generator for the options in ``prepared``
    generator: Any = None
    prepared: TranslationOptions | None = None

    def __init__(
        self,
        task: FairseqTask,
        models: Sequence[nn.Module],
        name: str,
        sample: Callable[[Batch], Sample] | None = None,
    ) -> None:
        self.task = task
        self.models = list(models)
        for model in self.models:
            pack_weights(model)
        super().__init__(self.models[0], name)
        self.sample = sample or self.sample_of_ids
        self.source = task.source_dictionary
        self.target = task.target_dictionary
        self.longest_source = getattr(task.cfg, "max_source_positions", 0)

    def sample_of_ids(self, batch: Batch) -> Sample:
        """Return a batch in fairseq's form."""
        lengths = torch.tensor([len(ids) for ids in batch.ids], device=self.device)
        net_input = {"src_tokens": self.source_of(batch), "src_lengths": lengths}
        return {"net_input": net_input}

    def logits(self, batch: Batch, previous: Tensor) -> Tensor:
        """Return the logits of the model, as ``ProcessEngine.logits``."""
        net_input = self.sample(batch)["net_input"]
        logits: Tensor = self.model(**net_input, prev_output_tokens=previous)[0]
        return logits

    def prepare_search(self, options: TranslationOptions) -> TranslationOptions:
        """Build the task's generator unless the options are the same; see ``Engine``."""
        if options == self.prepared:
            return options
        options.check()
        beam_options = {name: getattr(options, name) for name in BEAM_OPTIONS}
        generation = OmegaConf.merge(OmegaConf.structured(GenerationConfig), beam_options)
        if hasattr(self.task.cfg, "length_penalty"):
            self.task.cfg.length_penalty = options.length_penalty
        no_language_model = {"lm_model": None, "lm_weight": 0.0}  # as fairseq-generate says it
        self.generator = self.task.build_generator(
            self.models, generation, extra_gen_cls_kwargs=no_language_model
        )
        self.prepared = options
        return options

    def search_batch(self, batch: Batch, options: TranslationOptions) -> BatchHypotheses:
        """Search one batch, as ``ProcessEngine.search_batch``."""
        with torch.no_grad():
            try:
                sample = self.sample(batch)
                hypotheses = self.task.inference_step(self.generator, self.models, sample)
            except FloatingPointError as error:  # the plugin's, and written for the user
                raise UserError(f"{self.name}: {error}") from None
        return [[token_hypothesis(hypothesis) for hypothesis in best] for best in hypotheses]


def token_hypothesis(hypothesis: Mapping[str, Tensor]) -> TokenHypothesis:
    """Convert fairseq's hypothesis to Python's numbers, which processes exchange faster."""
    return TokenHypothesis(
        hypothesis["tokens"].tolist(),
        float(hypothesis["score"]),
        hypothesis["positional_scores"].tolist(),
    )
