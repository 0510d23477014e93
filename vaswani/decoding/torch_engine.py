"""Searches with a packed model in plain torch: fairseq is neither needed nor loaded."""

from dataclasses import fields, replace
from typing import Any, Callable, Optional

from vaswani.common.errors import UserError
from vaswani.decoding.alignment import attended_subwords
from vaswani.decoding.engine import Batch, BatchHypotheses, TokenHypothesis
from vaswani.decoding.process_engine import ProcessEngine, seeded
from vaswani.model_folder.folder import ModelFolder
from vaswani.model_folder.search_options import SearchOptions, within_vocabulary


class TorchEngine(ProcessEngine):
    """A packed model, ready to search.

    Args:
        folder: of the model
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one
        processes: as :class:`ProcessEngine`

    Raises:
        UserError: no such precision, or the folder is of another version.
    """

    def __init__(
        self,
        folder: ModelFolder,
        precision: str = "fp32",
        device: Optional[str] = None,
        processes: Optional[int] = None,
    ) -> None:
        import torch

        from vaswani_transformer.fast import use_fast_kernels
        from vaswani_transformer.fast.linear import convert_to_bf16, pack_weights
        from vaswani_transformer.fast.malloc import keep_freed_memory
        from vaswani_transformer.packed import build
        from vaswani_transformer.precision import PRECISIONS

        if precision not in PRECISIONS:
            raise UserError(f"--precision is {precision!r}; it may be {' or '.join(PRECISIONS)}")
        keep_freed_memory()
        try:
            model, self.source, self.target = build(
                folder.path, folder.config["architecture"], folder.langs
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise UserError(str(error)) from None
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        use_fast_kernels(model).requires_grad_(False)
        if precision == "bf16":
            convert_to_bf16(model)
        pack_weights(model)
        super().__init__(model, str(folder.path), processes)
        self.precision = precision
        self.longest_source = model.config.max_source_positions
        self.longest_target = model.config.max_target_positions

    def logits(self, batch: Batch, previous: Any) -> Any:
        """The model's, for the decoder's input [B, T]: [B, T, V]."""
        from vaswani_transformer.precision import autocast

        with autocast(self.precision, self.device):
            return self.model(self.source_of(batch), previous)

    def batch_searcher(self, options: SearchOptions) -> Callable[[Batch], BatchHypotheses]:
        """A function that searches one batch, in this process."""
        import torch

        from vaswani_transformer.precision import autocast

        options.check()
        options = within_vocabulary(options, len(self.target))
        find = self.sampled if options.sampling else self.best

        def search(batch: Batch) -> BatchHypotheses:
            source = self.source_of(batch)
            with (
                torch.no_grad(),
                autocast(self.precision, self.device),
                seeded(options, min(batch.places), self.device),
            ):
                found = find(self.model.encoder(source), source, options)
                if not options.needs_attention:
                    return found
                tokens = [[hypothesis.tokens for hypothesis in best] for best in found]
                attended = attended_subwords(self.model, source, tokens)
            return [
                [replace(one, attended=places) for one, places in zip(*rows, strict=True)]
                for rows in zip(found, attended, strict=True)
            ]

        return search

    def best(self, memory: Any, source: Any, options: SearchOptions) -> BatchHypotheses:
        """The hypotheses of a beam search, best first."""
        from vaswani_transformer.search import search

        try:
            found = search(
                self.model.decoder, memory, source, plain(options), self.longest_target - 1
            )
        except (FloatingPointError, ValueError) as error:
            raise UserError(f"{self.name}: {error}") from None
        results: BatchHypotheses = [[] for _ in source]
        for number, sentence in enumerate(found.sentences):
            tokens, scores = found.tokens[number], found.token_scores[number]
            results[sentence].append(
                TokenHypothesis(tokens.tolist(), float(found.scores[number]), scores.tolist())
            )
        return results

    def sampled(self, memory: Any, source: Any, options: SearchOptions) -> BatchHypotheses:
        """Hypotheses that were drawn, the likeliest first."""
        from vaswani_transformer.search import sample

        drawn = sample(
            self.model.decoder,
            memory,
            source,
            plain(options),
            options.sampling_topk,
            options.sampling_topp,
        )
        scored = [
            [TokenHypothesis(t, sum(s) / len(t) ** options.lenpen, s) for t, s in of_sentence]
            for of_sentence in drawn
        ]
        return [sorted(of_sentence, key=lambda one: -one.score) for of_sentence in scored]


def plain(options: SearchOptions) -> Any:
    """Those of the options that the paper's search has."""
    from vaswani_transformer.search import SearchOptions as Plain

    return Plain(**{item.name: getattr(options, item.name) for item in fields(Plain)})
