"""Searches with the generator that a fairseq task builds, as for the checkpoints of runs."""

from collections.abc import Callable, Sequence
from typing import Any

from vaswani.common.errors import UserError
from vaswani.decoding.engine import Batch, BatchHypotheses, ProcessEngine, TokenHypothesis
from vaswani.model_folder.search_options import BEAM_OPTIONS, SearchOptions


class FairseqEngine(ProcessEngine):
    """A task with its models, one or an ensemble.

    Args:
        task: builds the generator; its dictionaries are the vocabularies
        models: in evaluation mode, prepared for decoding, on their device; they belong to the
            engine, which packs their weights, so nothing may write to these any more
        name: of the file or folder that they are from, for messages
        sample: a batch in fairseq's form; by default made from the token ids of a :class:`Batch`
    """

    #: fairseq's generator, of the search that was made last
    generator: Any = None

    def __init__(
        self,
        task: Any,
        models: Sequence[Any],
        name: str,
        sample: Callable[[Any], dict[str, Any]] | None = None,
    ) -> None:
        from vaswani_transformer.fast.linear import pack_weights

        self.task, self.models = task, list(models)
        for model in self.models:
            pack_weights(model)
        super().__init__(self.models[0], name)
        self.sample = sample or self.sample_of_ids
        self.source, self.target = task.source_dictionary, task.target_dictionary
        self.longest_source = getattr(task.cfg, "max_source_positions", 0)

    def sample_of_ids(self, batch: Batch) -> dict[str, Any]:
        """A batch in fairseq's form."""
        import torch

        lengths = torch.tensor([len(ids) for ids in batch.ids], device=self.device)
        net_input = {"src_tokens": self.source_of(batch), "src_lengths": lengths}
        return {"net_input": net_input}

    def logits(self, batch: Batch, previous: Any) -> Any:
        """As :meth:`ProcessEngine.logits`."""
        net_input = self.sample(batch)["net_input"]
        return self.model(**net_input, prev_output_tokens=previous)[0]

    def batch_searcher(self, options: SearchOptions) -> Callable[[Any], BatchHypotheses]:
        """A function that searches one batch, in this process."""
        import torch
        from fairseq.dataclass.configs import GenerationConfig
        from omegaconf import OmegaConf

        options.check()
        given = {name: getattr(options, name) for name in BEAM_OPTIONS}
        generation = OmegaConf.merge(OmegaConf.structured(GenerationConfig), given)
        if hasattr(self.task.cfg, "length_penalty"):
            self.task.cfg.length_penalty = options.length_penalty
        no_language_model = {"lm_model": None, "lm_weight": 0.0}  # as fairseq-generate says it
        generator = self.task.build_generator(
            self.models, generation, extra_gen_cls_kwargs=no_language_model
        )
        self.generator = generator

        def search(batch: Any) -> BatchHypotheses:
            with torch.no_grad():
                try:
                    found = self.task.inference_step(generator, self.models, self.sample(batch))
                except FloatingPointError as error:  # the plugin's, and written for the user
                    raise UserError(f"{self.name}: {error}") from None
            # in Python's numbers, which processes exchange fast
            return [
                [
                    TokenHypothesis(
                        hypothesis["tokens"].tolist(),
                        float(hypothesis["score"]),
                        hypothesis["positional_scores"].tolist(),
                    )
                    for hypothesis in best
                ]
                for best in found
            ]

        return search
