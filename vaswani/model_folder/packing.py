"""Collects what a model folder needs from a checkpoint, its data and its run, and makes it."""

from dataclasses import replace
from pathlib import Path

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from transformer_plugin.checkpoints import CheckpointError, load_checkpoint, not_finite
from transformer_plugin.compat.dictionaries import other_dictionaries
from transformer_plugin.compat.scope import is_plugin_model
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani.common.errors import UserError
from vaswani.common.files import Table, sha256_of
from vaswani.common.find import first_data_bin
from vaswani.common.templates import render
from vaswani.configuration.plugin import load_user_dir, to_dict
from vaswani.data.data_bin import load_dictionary
from vaswani.folders.data_bin import DataBin
from vaswani.folders.model_folder import Contents
from vaswani.folders.run import Run
from vaswani.folders.search_options import BEAM_OPTIONS
from vaswani.model_folder.data_text import DataOptions, text_recipe
from vaswani.model_folder.fairseq_model import model_from_fairseq
from vaswani.model_folder.packed_model import (
    kept_options,
    model_class,
    plugin_config,
    task_for,
)
from vaswani.model_folder.packed_scores import packed_scores
from vaswani.model_folder.text_lengths import text_lengths
from vaswani_transformer.io.folder_table import ModelTable, Variant
from vaswani_transformer.io.packed import read_config

TEMPLATE = Path(__file__).with_name("model_card.md.j2")


def collect_model(checkpoint: Path, run: Run, options: DataOptions) -> Contents:
    """A checkpoint with its data.

    Args:
        checkpoint: of our model, or of fairseq's ``transformer``
        run: its run, or the folder it is in
        options: what the user says, in addition to what the checkpoint says

    Raises:
        UserError: something is missing or does not fit, or the model cannot be packed.
        CheckpointError: the file is not a usable checkpoint.
    """
    load_user_dir(user_dir_of(run))

    state = load_checkpoint(checkpoint, mapped=True)
    sections = sections_of(state)
    architecture, parameters, variant = our_model(state, sections["model"], checkpoint)
    data = data_folder(options.data, sections["task"], checkpoint)
    langs = languages(options, sections["task"], data)
    dictionaries = DataBin(data).dictionary(langs[0]), DataBin(data).dictionary(langs[1])
    text, subword_model = text_recipe(options, data, langs, dictionaries)
    try:
        check(architecture, variant, parameters, dictionaries, langs, state)
    except CheckpointError as error:
        raise CheckpointError(f"{checkpoint}: {error}") from None
    generation = decoding(run, sections)
    table = ModelTable(
        text=text.to_json(),
        generation=generation,
        origin=origin(state, sections, checkpoint, data),
        source_lengths=text_lengths(data, langs),
        scores=packed_scores(run, checkpoint, generation),
        architecture=architecture,
        variant=variant,
    )
    return Contents(table, parameters, dictionaries, subword_model)


def stored_as_halves(contents: Contents, checkpoint: Path) -> Contents:
    """The same model with its parameters rounded to float16: half the bytes on disk.

    Args:
        contents: what is packed
        checkpoint: what it is from, for the message

    Raises:
        UserError: a parameter has a number too large for it.
    """
    halves = {name: value.half() for name, value in contents.parameters.items()}
    too_large = not_finite(halves)
    if too_large:
        most = torch.finfo(torch.float16).max
        raise UserError(
            f"{checkpoint}: {too_large} has a number beyond {most:,.0f}, the largest of float16: "
            "pack it without --half"
        )
    origin = {**contents.table.origin, "stored_as": "float16"}
    return replace(contents, parameters=halves, table=replace(contents.table, origin=origin))


def sections_of(state: Table) -> Table:
    """The sections of a checkpoint's configuration; before fairseq 0.11, its arguments."""
    cfg = state.get("cfg")
    if cfg is None:
        options = dict(vars(state["args"]))
        return {"model": options, "task": options}
    return {"model": {}, "task": {}, **{name: to_dict(cfg[name]) for name in cfg}}


def user_dir_of(run: Run) -> str | None:
    """The folder that defines a run's model, as its own configuration names it."""
    return (run.configuration().get("common") or {}).get("user_dir")


def our_model(
    state: Table, options: Table, checkpoint: Path
) -> tuple[Table, dict[str, Tensor], Variant | None]:
    """Options, parameters and variant of our model; converted if it is fairseq's."""
    name = str(options.get("_name") or options.get("arch"))
    if not is_plugin_model(name):
        return *model_from_fairseq(options, state["model"], str(checkpoint)), None
    defaults = VaswaniTransformerConfig()
    architecture = {key: options.get(key, getattr(defaults, key)) for key in kept_options()}
    if options.get("share_all_embeddings"):  # which includes the decoder's, and is not kept
        architecture["share_decoder_input_output_embed"] = False
    variant = None
    if MODEL_REGISTRY[name].__module__ != "transformer_plugin.model":
        own = vars(MODEL_DATACLASS_REGISTRY[name]()).keys() - vars(defaults).keys()
        variant = Variant(name, {key: options[key] for key in sorted(own)})
    return architecture, dict(state["model"]), variant


def data_folder(named: str | None, task: Table, checkpoint: Path) -> Path:
    """The data-bin, or another folder with the dictionaries."""
    data = named or task.get("data")
    if not data:
        raise UserError(f"{checkpoint} does not say where its data is: give --data DIR")
    data = data[0] if isinstance(data, list) else data  # as in older fairseq
    folder = first_data_bin(data)
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder}, which should have the dictionaries: run this where "
            "'vaswani train' was run, or 'vaswani pack' with --data DIR"
        )
    return DataBin.at(folder).folder


def languages(options: DataOptions, task: Table, folder: Path) -> tuple[str, str]:
    """Source and target: as given, or as trained, or from the data."""
    pairs = DataBin(folder).pairs()
    source = options.source_lang or task.get("source_lang") or (pairs[0][0] if pairs else None)
    target = options.target_lang or task.get("target_lang") or (pairs[0][1] if pairs else None)
    if not source or not target:
        raise UserError(
            f"{folder} does not say its languages: give --source-lang and --target-lang"
        )
    return str(source), str(target)


def check(
    architecture: Table,
    variant: Variant | None,
    parameters: dict[str, Tensor],
    dictionaries: tuple[Path, Path],
    langs: tuple[str, str],
    state: Table,
) -> None:
    """Raises CheckpointError or ConfigError where model, parameters and dictionaries do not fit."""
    config = plugin_config(read_config(architecture, "the checkpoint", variant), variant)
    source, target = map(load_dictionary, dictionaries)
    task = task_for(source, target, langs, config)
    problem = other_dictionaries(task, state.get("task_state") or {})
    bad = not_finite(parameters)
    if bad:
        problem = f"{bad} has a NaN or an infinity: the training has diverged"
    if problem:
        raise CheckpointError(problem)
    model_class(variant).build_model(config, task).load_state_dict(parameters)


def decoding(run: Run, sections: Table) -> Table:
    """How the run decodes: the options in its generation section, and its length penalty."""
    table = run.configuration() if run.exists else sections
    section = table.get("generation") or {}
    options = {name: section[name] for name in BEAM_OPTIONS if section.get(name) is not None}
    options["length_penalty"] = str((table.get("task") or {}).get("length_penalty") or "fairseq")
    return options


def origin(state: Table, sections: Table, checkpoint: Path, data: Path) -> Table:
    """Where a model comes from: its checkpoint, its training, its data."""
    history = (state.get("optimizer_history") or [{}])[-1]
    averaged = state.get("averaged_updates")
    facts = {
        "checkpoint": checkpoint.name,
        "sha256": sha256_of(checkpoint),
        "model": sections["model"].get("_name") or sections["model"].get("arch"),
        "updates": history.get("num_updates"),
        "averaged": len(averaged) if isinstance(averaged, list) else None,
        "seed": (sections.get("common") or sections["model"]).get("seed"),
        "data": DataBin(data).name,
    }
    for section in ("criterion", "optimizer", "lr_scheduler"):
        name = (sections.get(section) or {}).get("_name")
        facts[section] = name if isinstance(name, str) else sections["model"].get(section)
    smoothing = (sections.get("criterion") or sections["model"]).get("label_smoothing")
    facts["label_smoothing"] = smoothing
    return {name: value for name, value in facts.items() if isinstance(value, (str, int, float))}


# ---- the folder -----------------------------------------------------------------------------


def write_model(out: Path, contents: Contents) -> bool:
    """Make the folder unless it exists; returns whether it was made."""
    if contents.is_in(out):
        return False
    parameters = contents.count_parameters()
    card = render(TEMPLATE, parameters=parameters, folder=str(out), **contents.table.to_json())
    contents.write(out, card)
    return True
