"""BLEU of greedy translations, and three of them, shown at each validation of a training.

fairseq's ``--eval-bleu`` translates the whole validation set with beam search. Here it is the first
``--eval-bleu-lines`` sentences of each set, each by the process in whose batch it is. No random
number is drawn and no state of the training is changed, so the training stays the same bit by bit.
"""

import json
import logging
from argparse import Namespace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from fairseq.data import encoders
from fairseq.logging import metrics
from fairseq.utils import split_paths
from omegaconf import OmegaConf

from vaswani_transformer.io import moses
from vaswani_transformer.io.moses import TextFunction

from .config import ConfigError
from .generator import VaswaniSequenceGenerator

logger = logging.getLogger(__name__)

SAMPLES = 3
#: greedy, for any length penalty; at most as long as in section 6.1: the source's length + 50
SEARCH: dict[str, Any] = {"beam_size": 1, "max_len_a": 1, "max_len_b": 50}
#: as in fairseq, so that no translation can agree with an unknown word of the reference
UNKNOWN = "UNKNOWNTOKENINREF"


class Line(NamedTuple):
    """A validation sentence as text, and the two texts to compare."""

    source: str
    translation: str
    reference: str


class ValidBleu:
    """Translates the first sentences of a validation set, and scores them at the end of the set.

    Args:
        task: the translation task; its options say how many, and how text is restored

    Raises:
        ConfigError: ``--eval-bleu`` is given, too.
    """

    def __init__(self, task: Any) -> None:
        from sacrebleu.metrics import BLEU

        self.task = task
        cfg = task.cfg
        if cfg.eval_bleu:
            raise ConfigError(
                "--eval-bleu and --eval-bleu-lines cannot be used together: leave out one of the "
                "two"
            )
        self.restore = restorer_of(cfg, cfg.target_lang)
        self.restore_source = restorer_of(cfg, cfg.source_lang)
        self.metric = BLEU(tokenize=cfg.eval_bleu_tokens, force=True)
        #: BLEU of prepared text has another name, since it cannot be compared with published BLEU
        self.name = "tokenised_bleu" if cfg.eval_bleu_tokens == "none" else "bleu"
        #: the references in their original text, by their characters
        self.written = {} if self.name == "tokenised_bleu" else written_references(cfg)

    def begin(self, model: Any) -> None:
        """Begin the validation of a model."""
        self.score: float | None = None
        self.generator = VaswaniSequenceGenerator([model], self.task.target_dictionary, **SEARCH)
        #: lines by their number in the set
        self.lines: dict[int, Line] = {}

    def translate(self, sample: dict[str, Any]) -> None:
        """Translate the sentences of a batch that are among the first, and log BLEU.

        Every process logs it at every batch. It is computed when fairseq reads the values of the
        set, so fairseq can choose the best checkpoint by it.
        """
        metrics.log_derived(self.name, lambda meters: self.score_of_all())
        if not sample:  # this process has no more batches
            return
        numbers = sample["id"].tolist()
        rows = [row for row, n in enumerate(numbers) if n < self.task.cfg.eval_bleu_lines]
        if not rows:
            return
        net_input = sample["net_input"]
        chosen = {name: net_input[name][rows] for name in ("src_tokens", "src_lengths")}
        results = self.generator.generate([], {"net_input": chosen})
        for row, hypotheses in zip(rows, results, strict=True):
            self.lines[numbers[row]] = self.line(
                net_input["src_tokens"][row], hypotheses[0]["tokens"], sample["target"][row]
            )

    def line(self, source: Any, hypothesis: Any, target: Any) -> Line:
        """Return the texts of token ids, without padding."""
        task, joined = self.task, self.task.cfg.eval_bleu_remove_bpe

        def text(tokens: Any, words: Any, **unknown: str) -> str:
            real = tokens[tokens.ne(words.pad())].int().cpu()
            return str(words.string(real, joined, **unknown))

        translation = text(hypothesis, task.target_dictionary)
        reference_text = text(target, task.target_dictionary, unk_string=UNKNOWN)
        restored = self.restore(reference_text)
        reference = self.written.get(characters(restored), restored)
        shown = self.restore_source(text(source, task.source_dictionary))
        return Line(shown, self.restore(translation), reference)

    def score_of_all(self) -> float:
        """Return the BLEU of all processes' translations of a set.

        Each process has to call this.
        """
        if self.score is None:
            self.lines = gather_lines(self.lines)
            lines = [line for _, line in sorted(self.lines.items())]
            hypotheses = [line.translation for line in lines]
            references = [line.reference for line in lines]
            score = self.metric.corpus_score(hypotheses, [references]).score if lines else 0.0
            self.score = round(score, 2)
        return self.score

    def end(self, stats: dict[str, Any]) -> None:
        """Log three translations of a set, and prepare for the next set."""
        lines = [line for _, line in sorted(self.lines.items())]
        for line in lines[:SAMPLES]:
            sample = {"num_updates": stats.get("num_updates"), **line._asdict()}
            logger.info(
                "update %s, an example: %s → %s (reference: %s)",
                *sample.values(),
                extra={"valid_sample": sample},
            )
        self.lines = {}
        self.score = None


def restorer_of(cfg: Any, lang: str) -> TextFunction:
    """Return the function that restores a language's text from tokens (``--eval-bleu-detok``)."""
    languages = {"source_lang": lang, "target_lang": lang}  # fairseq restores the target's
    options = {**languages, **json.loads(cfg.eval_bleu_detok_args or "{}")}

    def detokeniser(language: str) -> TextFunction:
        named = Namespace(**{**options, "tokenizer": cfg.eval_bleu_detok, "target_lang": language})
        tokenizer = encoders.build_tokenizer(named)
        return str if tokenizer is None else tokenizer.decode

    language = options["target_lang"]
    if cfg.eval_bleu_detok != "moses":
        return detokeniser(language)
    version = text_rules(cfg)
    if version > 1:
        language = moses.language_of(language)
    return moses.restorer(detokeniser, language, version)


def text_rules(cfg: Any) -> int:
    """Return the version of the text rules in the prepared text's recipe; else the newest.

    Raises:
        ConfigError: there is no such version.
    """
    path = Path(split_paths(cfg.data)[0]).parent / "recipe.yaml"
    if not path.is_file():
        return moses.VERSION
    version = OmegaConf.load(path).get("text_rules", 1)
    if version not in moses.JOINERS:
        raise ConfigError(
            f"{path}: text_rules is {version!r}, but this version of vaswani-transformer knows 1 "
            f"to {moses.VERSION}: prepare the text again, or use the version that wrote it"
        )
    return int(version)


def written_references(cfg: Any) -> dict[str, str]:
    """Return the original validation text, if ``vaswani prepare`` left it beside the data.

    The keys are the characters of each line without spaces, since tokens lose nothing but spaces.
    So a line is found whatever its number, and no line is taken for another.
    """
    path = Path(split_paths(cfg.data)[0]).parent / "text" / f"valid.{cfg.target_lang}"
    if not path.is_file():
        return {}
    with open(path, encoding="utf-8", errors="replace", newline="\n") as stream:
        return {characters(line): line.rstrip("\n") for line in stream}


def characters(line: str) -> str:
    """Return the characters of a line without its spaces."""
    return "".join(line.split())


def gather_lines(lines: dict[int, Line]) -> dict[int, Line]:
    """Return the lines of all processes; each process has to call this."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return lines
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, lines)
    return {number: line for part in parts for number, line in part.items()}
