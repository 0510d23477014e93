"""Searches with a packed model in plain torch: fairseq is neither needed nor loaded."""

from dataclasses import fields, replace
from typing import Any, Callable, Optional, Tuple

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
        user_dir: defines the model, if it is a variant of the paper's

    Raises:
        UserError: no such precision, or the folder is of another version.
    """

    def __init__(
        self,
        folder: ModelFolder,
        precision: str = "fp32",
        device: Optional[str] = None,
        user_dir: Optional[str] = None,
    ) -> None:
        import torch

        from vaswani_transformer.fast import use_fast_kernels
        from vaswani_transformer.fast.linear import convert_to_bf16, pack_weights
        from vaswani_transformer.fast.malloc import keep_freed_memory
        from vaswani_transformer.precision import PRECISIONS

        if precision not in PRECISIONS:
            raise UserError(f"--precision is {precision!r}; it may be {' or '.join(PRECISIONS)}")
        keep_freed_memory()
        architecture = folder.config["architecture"]
        model, self.source, self.target = network_of(folder, user_dir)
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        use_fast_kernels(model).requires_grad_(False)
        if precision == "bf16":
            convert_to_bf16(model)
        pack_weights(model)
        super().__init__(model, str(folder.path))
        self.precision = precision
        self.longest_source = architecture["max_source_positions"]
        self.longest_target = architecture["max_target_positions"]

    def logits(self, batch: Batch, previous: Any) -> Any:
        """The model's, for the decoder's input [B, T]: [B, T, V]."""
        from vaswani_transformer.precision import autocast

        with autocast(self.precision, self.device):
            memory, _ = self.model.encoder.encode(self.source_of(batch))
            features, _ = self.model.decoder.features(previous, memory)
            return self.model.decoder.output_layer(features)

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
                found = find(self.model.encoder.encode(source)[0], source, options)
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


def network_of(folder: ModelFolder, user_dir: Optional[str]) -> Tuple[Any, Any, Any]:
    """A folder's model, in evaluation mode, and its two vocabularies.

    Nothing is imported because a folder names it: a variant needs the user's ``user_dir``.

    Raises:
        UserError: the folder is of another version, or is a variant that ``user_dir`` lacks.
    """
    from vaswani_transformer.packed import build
    from vaswani_transformer.vocabulary import Vocabulary

    variant = folder.config.get("variant")
    if variant and not user_dir:
        raise UserError(
            f"{folder.path} is a '{variant['arch']}', a variant of the paper's model: give "
            "--user-dir DIR, the folder that defines it"
        )
    if variant:
        from vaswani.experiment.fairseq_config import load_user_dir

        load_user_dir(user_dir)
        from vaswani.model_folder.packed_model import build_variant

        words = [Vocabulary.load(folder.dictionary(lang)) for lang in folder.langs]
        return build_variant(folder), words[0], words[1]
    try:
        return build(folder.path, folder.config["architecture"], folder.langs)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(str(error)) from None
