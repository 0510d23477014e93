"""The conditions that an experiment is written for: the text and the machine."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from vaswani.common.files import sha256_of
from vaswani.data import data_bin
from vaswani.data.recipe import has_trees, recipe_in
from vaswani.data.subwords import BPE, SUBWORD_MODELS, find_subword_model
from vaswani.data.text_recipe import hardly_spaced
from vaswani.planning.batching import TrainingText, memory_of_machine
from vaswani.planning.published_settings import Settings, settings_for

#: so that even a small text has some: our choice
LEAST_UPDATES_AN_EPOCH = 10
#: the fewest target tokens of an update, on each GPU: our choice
LEAST_BATCH = 400


class Restoring(NamedTuple):
    """How text is restored from subwords for BLEU: fairseq's names, and sacreBLEU's tokens."""

    remove_bpe: str
    detokeniser: str
    #: "none": text that cannot be restored is scored as it was prepared
    tokens: str


@dataclass(frozen=True)
class Conditions:
    """What ``vaswani new`` needs to know to write an experiment."""

    name: str
    data: Path
    languages: tuple[str, str]
    pairs: int
    gpus: int
    #: GB per GPU, or of the machine
    memory: float
    preset: str
    settings: Settings
    #: whether the two languages share their dictionary
    shared: bool
    #: how many validation sentences are left out, how many there are, and the longest kept
    left_out: int
    validation: int
    longest: int
    #: whether the target sentences are trees (6.3)
    trees: bool = False
    restoring: Restoring = Restoring(SUBWORD_MODELS[BPE].remove, "space", "none")


def conditions_of(name: str, data: Path, preset: str | None) -> Conditions:
    """The conditions for binarised text in ``data`` on this machine.

    Raises:
        UserError: there is no data or validation set, or one of them is empty or damaged.
    """
    import numpy as np
    import torch
    from omegaconf import OmegaConf

    from vaswani.experiment.fairseq_config import load_plugin

    load_plugin()
    task = OmegaConf.create({"data": str(data), "source_lang": None, "target_lang": None})
    folder = data_bin.fill_in_languages(task)
    languages = (str(task.source_lang), str(task.target_lang))
    pairs = len(data_bin.sentence_lengths(folder, "train", *languages)[0])
    valid = np.maximum(*data_bin.sentence_lengths(folder, "valid", *languages))
    longest = experiment_positions()
    settings = settings_for(pairs)
    gpus = torch.cuda.device_count()
    dictionaries = {sha256_of(folder / f"dict.{language}.txt") for language in languages}
    return Conditions(
        name=name,
        data=data,
        languages=languages,
        pairs=pairs,
        gpus=gpus,
        memory=memory_of_machine(gpus),
        preset=preset or (settings.preset if gpus else "tiny"),
        settings=settings,
        shared=len(dictionaries) == 1,
        left_out=int((valid > longest).sum()),
        validation=len(valid),
        longest=int(valid[valid <= longest].max(initial=0)),
        restoring=restoring(folder.parent, languages[1]),
        trees=has_trees(folder),
    )


def restoring(prepared: Path, lang: str) -> Restoring:
    """As a folder's recipe allows: text that was tokenised before, or elsewhere, stays tokens."""
    kind, _ = find_subword_model(prepared)
    recipe, text = recipe_in(prepared), prepared / "text" / f"valid.{lang}"
    if not recipe or recipe.tokenised or not text.is_file():
        return Restoring(SUBWORD_MODELS[kind].remove, "space", "none")
    with open(text, encoding="utf-8", newline="\n") as stream:
        tokens = "char" if hardly_spaced(islice(stream, 200)) else "13a"
    return Restoring(SUBWORD_MODELS[kind].remove, "moses" if kind == BPE else "space", tokens)


def experiment_positions() -> int:
    """The longest sentence that task and model accept by default, in tokens."""
    from transformer_plugin.config import VaswaniTranslationConfig

    return int(VaswaniTranslationConfig().max_source_positions)


def batch_tokens(conditions: Conditions, text: TrainingText, most: int) -> int:
    """Target tokens per update: ``most``, but fewer if the text is small."""
    total = text.lengths[1] * conditions.pairs
    return max(
        int(min(most, total / LEAST_UPDATES_AN_EPOCH)), LEAST_BATCH * max(1, conditions.gpus)
    )
