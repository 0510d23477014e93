"""Searches with a packed model in plain torch: fairseq is neither needed nor loaded."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from vaswani.common.errors import UserError
from vaswani.decoding.engine import Batch, BatchHypotheses, TokenHypothesis
from vaswani.decoding.process_engine import ProcessEngine
from vaswani.folders.model_folder import ModelFolder, errors_for_users
from vaswani.folders.search_options import TranslationOptions
from vaswani_transformer.encoder import Memory
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.fast.linear import convert_to_bf16, pack_weights
from vaswani_transformer.precision import PRECISIONS, autocast
from vaswani_transformer.search import search
from vaswani_transformer.transformer import Transformer
from vaswani_transformer.vocabulary import EOS, PAD, Vocabulary

#: what to give instead of a device that is not here
HERE = "give 'cpu', 'cuda' or 'cuda:1' for an NVIDIA GPU, or 'mps' for an Apple GPU"


class TorchEngine(ProcessEngine):
    """A packed model, ready to search.

    Args:
        folder: of the model
        precision: ``fp32`` or ``bf16``
        device: a torch device name; by default a GPU if there is one
        user_dir: defines the model, if it is a variant of the paper's

    Raises:
        UserError: no such precision or device, or the folder is of another version.
    """

    def __init__(
        self,
        folder: ModelFolder,
        precision: str = "fp32",
        device: str | None = None,
        user_dir: str | None = None,
    ) -> None:
        if precision not in PRECISIONS:
            raise UserError(f"--precision must be {' or '.join(PRECISIONS)}, not {precision!r}")
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        check_device(device)
        model, self.source, self.target = network_of(folder, user_dir)
        model.to(device)
        use_fast_kernels(model).requires_grad_(False)
        if precision == "bf16":
            convert_to_bf16(model)
        pack_weights(model)
        super().__init__(model, str(folder.path))
        self.precision = precision
        self.longest_source = folder.config.max_source_positions
        self.longest_target = folder.config.max_target_positions

    def logits(self, batch: Batch, previous: Tensor) -> Tensor:
        """Return the logits of the model, as ``ProcessEngine.logits``."""
        with autocast(self.precision, self.device):
            memory, _ = self.model.encoder.encode(self.source_of(batch))
            features, _ = self.model.decoder.features(previous, memory)
            return self.model.decoder.output_layer(features)

    def prepare_search(self, options: TranslationOptions) -> TranslationOptions:
        """Check the options, and reduce the beam to the vocabulary; see ``Engine``."""
        options.check()
        return options.within_vocabulary(len(self.target))

    def search_batch(self, batch: Batch, options: TranslationOptions) -> BatchHypotheses:
        """Search one batch, as ``ProcessEngine.search_batch``."""
        source = self.source_of(batch)
        with torch.no_grad(), autocast(self.precision, self.device):
            memory, _ = self.model.encoder.encode(source)
            hypotheses = self.best(memory, source, options)
            if not options.needs_attention:
                return hypotheses
            tokens = [[hypothesis.tokens for hypothesis in best] for best in hypotheses]
            attended = attended_subwords(self.model, source, tokens)
        return [
            [replace(hypothesis, attended=places) for hypothesis, places in zip(*rows, strict=True)]
            for rows in zip(hypotheses, attended, strict=True)
        ]

    def best(self, memory: Memory, source: Tensor, options: TranslationOptions) -> BatchHypotheses:
        """Return the hypotheses of a beam search, best first."""
        with self.errors_for_users():
            longest = self.longest_target - 1
            hypotheses = search(self.model.decoder, memory, source, options, longest)
        results: BatchHypotheses = [[] for _ in source]
        for number, sentence in enumerate(hypotheses.sentences):
            tokens = hypotheses.tokens[number].tolist()
            score = float(hypotheses.scores[number])
            token_scores = hypotheses.token_scores[number].tolist()
            results[sentence].append(TokenHypothesis(tokens, score, token_scores))
        return results

    @contextlib.contextmanager
    def errors_for_users(self) -> Iterator[None]:
        """Turn what the paper's search refuses into a UserError."""
        try:
            yield
        except (FloatingPointError, ValueError) as error:
            raise UserError(f"{self.name}: {error}") from None


def check_device(device: str) -> None:
    """Raise UserError for a device that torch does not know, or that is not here."""
    try:
        torch.empty(1, device=device).to("cpu")  # "meta", too, has no values
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        problem = str(error).splitlines()[0]
        raise UserError(f"there is no device {device!r} here ({problem}): {HERE}") from None


def network_of(
    folder: ModelFolder, user_dir: str | None
) -> tuple[nn.Module, Vocabulary, Vocabulary]:
    """Return a folder's model, in evaluation mode, and its two vocabularies.

    Nothing is imported because a folder names it: a variant needs the user's ``user_dir``.

    Raises:
        UserError: the folder is of another version, or is a variant that ``user_dir`` lacks.
    """
    variant = folder.table.variant
    if variant and not user_dir:
        raise UserError(
            f"{folder.path} is a '{variant.arch}', a variant of the paper's model: give "
            "--user-dir DIR, the folder that defines it"
        )
    if variant:  # only now: these import fairseq
        from vaswani.configuration.plugin import load_user_dir
        from vaswani.packing.networks import build_variant

        load_user_dir(user_dir)
        model = build_variant(folder)
    else:
        with errors_for_users():
            model = Transformer.from_packed(folder.packed)
    return model, folder.packed.source, folder.packed.target


def attended_subwords(
    model: nn.Module, source: Tensor, hypotheses: Sequence[Sequence[list[int]]]
) -> list[list[list[int]]]:
    """Return, for each token of each hypothesis, the subword that it attends to most.

    The search itself keeps no attention. A second, teacher-forced pass gives the attention at all
    positions at once, as in fairseq's ``--print-alignment``: that of the decoder's last layer,
    averaged over its heads. Shapes: N sentences, B hypotheses, S source, T target.

    Places count the source's subwords from 0, without the end of sentence.

    Args:
        model: the paper's, or this plugin's
        source: the batch that was searched, int64 [N, S], padded on the left
        hypotheses: the tokens [T] of each hypothesis of each sentence, with their end
    """
    rows = []
    for row, of_sentence in enumerate(hypotheses):
        rows += [(row, torch.tensor(hypothesis)) for hypothesis in of_sentence]
    shifted = [torch.cat([tokens.new_tensor([EOS]), tokens[:-1]]).long() for _, tokens in rows]
    previous = pad_sequence(shifted, batch_first=True, padding_value=PAD).to(source.device)
    numbers = torch.tensor([row for row, _ in rows], device=source.device)
    with torch.no_grad():
        memory = model.encoder.encode(source)[0].select(numbers)
        _, weights = model.decoder.features(previous, memory, need_alignment=True)
    attention = weights.cross_attention[-1].mean(dim=1).float()  # [B, T, S]
    chosen = source.index_select(0, numbers)
    is_word = chosen.ne(PAD) & chosen.ne(EOS)
    attention = attention.masked_fill(~is_word[:, None, :], -1.0)
    skipped = chosen.eq(PAD).sum(1)  # on the left
    attended = (attention.argmax(2) - skipped[:, None]).tolist()  # [B, T]
    result: list[list[list[int]]] = [[] for _ in hypotheses]
    for (row, tokens), places in zip(rows, attended, strict=True):
        result[row].append(places[: len(tokens)])
    return result
