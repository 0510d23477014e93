"""Decoding options that cannot work, or that fairseq accepts and then ignores."""

import dataclasses
import functools
import logging
import math
import sys
from typing import Any, Dict, Iterator

from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import TASK_REGISTRY, FairseqTask
from fairseq_cli import generate
from omegaconf import OmegaConf, open_dict

from ..config import ConfigError, flag
from .scope import is_translation

logger = logging.getLogger(__name__)

_DEFAULTS: Dict[str, Any] = {f.name: f.default for f in dataclasses.fields(GenerationConfig)}
_ABOVE_ZERO = ["beam", "nbest", "temperature"]  # for others, 0 and less mean "off"
_FINITE = ["lenpen", "unkpen", "temperature", "max_len_a", "lm_weight", "sampling_topp"]
_FINITE += ["diverse_beam_strength", "diversity_rate"]
_ITERATIVE = ["print_step", "retain_iter_history"]
_UNUSED = ["no_early_stop", "decoding_format", "eos_token", "beam_mt", "lenpen_mt"]
_UNUSED += ["max_len_a_mt", "max_len_b_mt"]
_UNUSED += [name for name in _DEFAULTS if name.startswith("iter_decode_")]


def apply() -> None:
    """Install this file's workarounds."""
    _check_before_decoding()
    _shards_and_sacrebleu()
    interactive = sys.modules.get("fairseq_cli.interactive")
    if interactive is not None:  # the command that runs; importing it would set up logging
        say_what_interactive_ignores(interactive)


def _check_before_decoding() -> None:
    """Options that cannot work are refused, and one that changes nothing is named in a warning.

    All versions give a stack trace from the middle of the search, or nonsense (``--lenpen nan``),
    or the same output as without the option. Other tasks than translation are not checked.
    """
    original = FairseqTask.build_generator

    @functools.wraps(original)
    def build_generator(task: Any, models: Any, args: Any, *rest: Any, **kwargs: Any) -> Any:
        if is_translation(task):
            check(args)
            for sentence in without_effect(args, len(task.target_dictionary)):
                logger.warning(sentence)
        return original(task, models, args, *rest, **kwargs)

    FairseqTask.build_generator = build_generator


def check(args: Any) -> None:
    """Raise ConfigError if one of fairseq's generation options cannot work."""

    def value(name: str) -> Any:
        return getattr(args, name, _DEFAULTS.get(name))

    for name in _FINITE:
        no_unknown_words = name == "unkpen" and value(name) == math.inf
        if not math.isfinite(value(name)) and not no_unknown_words:
            raise ConfigError(f"{flag(name)} must be a finite number, not {value(name)}")
    for name in _ABOVE_ZERO:
        if value(name) <= 0:
            raise ConfigError(f"{flag(name)} must be above 0, not {value(name)}")
    fixed = not value("max_len_a") and not value("match_source_len")
    if fixed and value("max_len_b") < value("min_len"):
        raise ConfigError(
            f"--max-len-b {value('max_len_b')} allows fewer words than --min-len "
            f"{value('min_len')} asks for: raise the one, lower the other, or give --max-len-a"
        )
    if value("diverse_beam_groups") > 0 and value("beam") % value("diverse_beam_groups"):
        raise ConfigError(
            f"--beam {value('beam')} cannot be divided into --diverse-beam-groups "
            f"{value('diverse_beam_groups')}"
        )


def without_effect(args: Any, types: int) -> Iterator[str]:
    """A sentence for each generation option that is given and has no effect, or only part of it.

    Args:
        args: fairseq's options
        types: size of the target dictionary
    """

    def given(name: str) -> bool:
        default = _DEFAULTS.get(name)
        return getattr(args, name, default) != default

    for name in _UNUSED:
        if given(name):
            yield f"{flag(name)} has no effect: fairseq's beam search does not know it"
    needs = {"lm_weight": "lm_path", "lm_path": "lm_weight"}
    needs.update(
        diverse_beam_strength="diverse_beam_groups", retain_dropout_modules="retain_dropout"
    )
    for name, other in needs.items():
        if given(name) and not given(other):
            yield f"{flag(name)} has no effect without {flag(other)}"
    if given("unnormalized") and given("lenpen"):
        yield "--lenpen has no effect with --unnormalized"
    beam, nbest = (getattr(args, name, _DEFAULTS[name]) for name in ("beam", "nbest"))
    if beam > types - 1:
        yield f"--beam {beam} is reduced to {types - 1}: the dictionary has no more words"
    if nbest > beam:
        yield f"--nbest {nbest} gives no more than the {beam} hypotheses of --beam {beam}"


def _shards_and_sacrebleu() -> None:
    """``fairseq-generate`` honours ``--num-shards``, ``--shard-id`` and ``--sacrebleu``.

    All versions decode all of the data, and score with fairseq's own BLEU. They fail during the
    search with ``--constraints``, which only fairseq-interactive can read, and after it with
    options for iterative refinement alone (``--print-step``: "KeyError: 'steps'").
    """
    original = generate._main

    @functools.wraps(original)
    def main(cfg: Any, output_file: Any) -> Any:
        if not is_translation(TASK_REGISTRY[cfg.task._name]):
            return original(cfg, output_file)
        shards, shard = cfg.dataset.num_shards, cfg.dataset.shard_id
        if not 0 <= shard < shards:
            raise ConfigError(
                f"--shard-id {shard} must be at least 0 and below --num-shards {shards}"
            )
        if cfg.generation.constraints:
            raise ConfigError(
                "--constraints works in fairseq-interactive, where each line brings its "
                "constraints after a tab; fairseq-generate has no way to read them"
            )
        for name in _ITERATIVE:
            if cfg.generation[name]:
                raise ConfigError(
                    f"{flag(name)} is for models of iterative refinement (--task translation_lev); "
                    "leave it out"
                )
        if shards > 1:
            cfg.distributed_training.distributed_world_size = shards
            cfg.distributed_training.distributed_rank = shard
        scoring = cfg.scoring
        if cfg.generation.sacrebleu and (scoring is None or scoring._name == "bleu"):
            with open_dict(cfg):
                cfg.scoring = OmegaConf.create({"_name": "sacrebleu"})
        return original(cfg, output_file)

    generate._main = main


def say_what_interactive_ignores(interactive: Any) -> None:
    """``fairseq-interactive`` names the options that it accepts and ignores.

    All versions ignore options of fairseq-generate that need a reference or a whole data set;
    ``--score-reference`` ends in "KeyError: 'target'", and ``--replace-unk`` copies the "<unk>"
    that the source word has become.

    Args:
        interactive: the module ``fairseq_cli.interactive``
    """
    original = interactive.main

    @functools.wraps(original)
    def main(cfg: Any) -> Any:
        if not is_translation(TASK_REGISTRY[cfg.task._name]):
            return original(cfg)
        given = {
            "prefix_size": cfg.generation.prefix_size,
            "sacrebleu": cfg.generation.sacrebleu,
            **{name: cfg.generation[name] for name in _ITERATIVE},
            "quiet": cfg.common_eval.quiet,
            "results_path": cfg.common_eval.results_path,
            "num_shards": cfg.dataset.num_shards > 1,
        }
        if cfg.generation.score_reference:
            raise ConfigError(
                "--score-reference needs references, and fairseq-interactive has none: "
                "give the data to fairseq-generate"
            )
        if cfg.generation.replace_unk is not None:
            raise ConfigError(
                "--replace-unk copies words of the source, which fairseq-interactive does not "
                "keep: give the text to fairseq-generate with --dataset-impl raw"
            )
        for name in [name for name, value in given.items() if value]:
            logger.warning("%s has no effect in fairseq-interactive", flag(name))
        return original(cfg)

    interactive.main = main
