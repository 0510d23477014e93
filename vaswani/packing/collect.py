"""Collects what a model folder needs from a checkpoint, its data and its run, and makes it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_plugin.checkpoints import CheckpointError, not_finite
from vaswani.common.errors import UserError
from vaswani.common.find import first_data_bin
from vaswani.common.templates import render
from vaswani.configuration.plugin import load_user_dir
from vaswani.folders.data_bin import DataBin
from vaswani.folders.model_folder import Contents
from vaswani.folders.run import Run
from vaswani.folders.search_options import BEAM_OPTIONS
from vaswani.packing.data_text import DataOptions, text_recipe
from vaswani.packing.packed_scores import packed_scores
from vaswani.packing.text_lengths import text_lengths
from vaswani.packing.trained_model import Section, TrainedModel
from vaswani_transformer.io.folder_table import ModelTable

TEMPLATE = Path(__file__).with_name("model_card.md.j2")


def collect_model(checkpoint: Path, run: Run, options: DataOptions) -> Contents:
    """Collect the contents of a model folder: a checkpoint and its data.

    Args:
        checkpoint: of our model, or of fairseq's ``transformer``
        run: its run, or the folder it is in
        options: what the user says, in addition to what the checkpoint says

    Raises:
        UserError: something is missing or does not fit, or the model cannot be packed.
        CheckpointError: the file is not a usable checkpoint.
    """
    load_user_dir(user_dir_of(run))

    model = TrainedModel.load(checkpoint)
    data = data_bin_of(options.data, model)
    langs = languages(options, model.task, data)
    dictionaries = data.dictionary(langs[0]), data.dictionary(langs[1])
    text, subword_model = text_recipe(options, data.folder, langs, dictionaries)
    try:
        model.check_fits(dictionaries, langs)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint}: {error}") from None
    generation = search_of(run, model)
    table = ModelTable(
        text=text.to_json(),
        generation=generation,
        origin=model.origin(data),
        source_lengths=text_lengths(data.folder, langs),
        scores=packed_scores(run, checkpoint, generation),
        architecture=model.architecture,
        variant=model.variant,
    )
    return Contents(table, model.parameters, dictionaries, subword_model)


def round_to_float16(contents: Contents, checkpoint: Path) -> Contents:
    """Round the parameters to float16: half the bytes on disk.

    Args:
        contents: what is packed
        checkpoint: what it is from, for the message

    Raises:
        UserError: a parameter has a number too large for it.
    """
    halves = {name: value.half() for name, value in contents.parameters.items()}
    too_large = not_finite(halves)
    if too_large:
        largest = torch.finfo(torch.float16).max
        raise UserError(
            f"{checkpoint}: {too_large} has a number beyond {largest:,.0f}, the largest of "
            "float16: pack it without --half"
        )
    origin = {**contents.table.origin, "stored_as": "float16"}
    return replace(contents, parameters=halves, table=replace(contents.table, origin=origin))


def user_dir_of(run: Run) -> str | None:
    """Return the folder that defines a run's model, as its own configuration names it."""
    return (run.configuration().get("common") or {}).get("user_dir")


def data_bin_of(named: str | None, model: TrainedModel) -> DataBin:
    """Return the data-bin, or another folder with the dictionaries."""
    data = named or model.task.get("data")
    if not data:
        raise UserError(f"{model.checkpoint} does not say where its data is: give --data DIR")
    data = data[0] if isinstance(data, list) else data  # as in older fairseq
    folder = first_data_bin(data)
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}, which should have the dictionaries: run this where "
            "'vaswani train' was run, or 'vaswani pack' with --data DIR"
        )
    return DataBin.at(folder)


def languages(options: DataOptions, task: Section, data: DataBin) -> tuple[str, str]:
    """Return source and target language: as given, else as trained, else as in the data."""
    pairs = data.pairs()
    source = options.source_lang or task.get("source_lang") or (pairs[0][0] if pairs else None)
    target = options.target_lang or task.get("target_lang") or (pairs[0][1] if pairs else None)
    if not source or not target:
        raise UserError(
            f"{data.folder} does not say its languages: give --source-lang and --target-lang"
        )
    return str(source), str(target)


def search_of(run: Run, model: TrainedModel) -> dict[str, Any]:
    """Return how the run decodes: the options in its generation section, and its length penalty."""
    sections: Mapping[str, Any] = run.configuration() if run.exists else model.sections
    section = sections.get("generation") or {}
    options = {name: section[name] for name in BEAM_OPTIONS if section.get(name) is not None}
    penalty = (sections.get("task") or {}).get("length_penalty")
    options["length_penalty"] = str(penalty or "fairseq")
    return options


# ---- the folder -----------------------------------------------------------------------------


def write_model(out: Path, contents: Contents) -> bool:
    """Make the folder unless it exists, and return whether it was made."""
    if contents.is_in(out):
        return False
    parameters = contents.count_parameters()
    card = render(TEMPLATE, parameters=parameters, folder=str(out), **contents.table.to_json())
    contents.write(out, card)
    return True
