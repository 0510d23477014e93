"""A packed model as a checkpoint of fairseq's own ``transformer``, which needs no plugin.

A variant of the paper's model stays what it is, which needs the plugin and the variant's user-dir.
Positions other than fairseq's sinusoids become its learned ones, with our values in the table. Its
norms have an ε of 1e-5, which cannot be set.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import FairseqConfig, GenerationConfig
from fairseq.models.transformer import TransformerConfig as FairseqTransformerConfig
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf
from torch import Tensor

from transformer_plugin.compat import saving
from vaswani.common.errors import UserError
from vaswani.data.bpe import MARK
from vaswani.decoding.fairseq_engine import FairseqEngine
from vaswani.export.to_ctranslate2 import position_table
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.recipe import BPE
from vaswani.packing.convert import to_fairseq
from vaswani.packing.networks import plugin_config
from vaswani_transformer.config import TransformerConfig
from vaswani_transformer.io.packed import shared_matrices

CHECKPOINT = "model.pt"


def write_checkpoint(folder: ModelFolder, parameters: Mapping[str, Tensor], out: Path) -> None:
    """Write ``model.pt``: parameters and options, as nothing but tensors and plain values.

    Args:
        folder: the packed model
        parameters: its state dict
        out: a folder
    """
    is_variant = folder.table.variant is not None
    state = {
        "args": None,
        "cfg": configuration(folder),
        "model": dict(parameters) if is_variant else to_fairseqs_names(folder, parameters),
        "optimizer_history": [
            {
                "criterion_name": "LabelSmoothedCrossEntropyCriterion",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {},
                "num_updates": folder.table.origin.get("updates", 0),
            }
        ],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
        "last_optimizer_state": None,
    }
    saving.write_checkpoint(state, str(out / CHECKPOINT))


def configuration(folder: ModelFolder) -> dict[str, Any]:
    """Return the sections of fairseq's configuration, as plain values."""
    config = folder.config
    sections: dict[str, Any] = {}
    for name, section in vars(FairseqConfig()).items():
        is_dataclass = hasattr(section, "__dataclass_fields__")
        sections[name] = as_plain_values(OmegaConf.structured(section)) if is_dataclass else None
    task = as_plain_values(OmegaConf.structured(TranslationConfig()))
    limits = {
        name: getattr(config, name) for name in ("max_source_positions", "max_target_positions")
    }
    source, target = folder.langs
    task.update(limits, _name="translation", data="", source_lang=source, target_lang=target)
    generation = {k: v for k, v in folder.generation.items() if k != "length_penalty"}
    sections["generation"].update(generation)
    sections.update(text_options(folder))
    model = model_options(config)
    variant = folder.table.variant
    if variant:  # registered with fairseq
        registered = plugin_config(config, variant)
        model = {**as_plain_values(OmegaConf.structured(registered)), "_name": variant.arch}
    return {**sections, "task": task, "model": model}


def text_options(folder: ModelFolder) -> dict[str, Any]:
    """Return the tokeniser and BPE sections, with which ``from_pretrained`` takes raw text.

    fairseq adds the path of the codes, or of the model, if they are beside the checkpoint.
    """
    recipe = folder.recipe
    source, target = map(recipe.language, recipe.langs)
    moses = {
        "_name": "moses",
        "source_lang": source,
        "target_lang": target,
        "moses_no_dash_splits": not recipe.split_hyphens,
        "moses_no_escape": False,
    }
    bpe: dict[str, Any] = {"_name": recipe.subword}
    if folder.subword_model and recipe.subword == BPE:
        bpe.update(bpe_codes=folder.subword_model.name, bpe_separator=MARK.strip())
    elif folder.subword_model:
        bpe.update(
            sentencepiece_model=folder.subword_model.name,
            sentencepiece_enable_sampling=False,
            sentencepiece_alpha=None,
        )
    return {
        "tokenizer": moses if recipe.tokeniser == "moses" else None,
        "bpe": bpe if folder.subword_model else None,
    }


def as_plain_values(section: Any) -> dict[str, Any]:
    """Return a section of fairseq's configuration without classes of fairseq."""
    table = OmegaConf.to_container(section, enum_to_str=True)
    assert isinstance(table, dict)
    return {str(name): None if value == "???" else value for name, value in table.items()}


def model_options(config: TransformerConfig) -> dict[str, Any]:
    """Return all options of fairseq's ``transformer``: 0.12.2 accepts missing ones silently."""
    names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
    sides = ("encoder", "decoder")
    sizes = [f"{side}_{name}" for side in sides for name in names]
    options = {name: getattr(config, name) for name in sizes}
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        options[name] = getattr(config, name)
    for side, limit in zip(sides, ("max_source_positions", "max_target_positions"), strict=True):
        options[f"{side}_learned_pos"] = not has_fairseqs_positions(config, side)
        options[f"{side}_normalize_before"] = getattr(config, f"{side}_normalize_before")
        options[limit] = getattr(config, limit)
    shared = shared_matrices(config)
    defaults = {f.name: f.default for f in fields(FairseqTransformerConfig)}
    plain_values = (type(None), bool, int, float, str)
    return {
        **{name: value for name, value in defaults.items() if type(value) in plain_values},
        "_name": "transformer",
        "arch": "transformer",
        **options,
        "decoder_input_dim": config.decoder_embed_dim,
        "decoder_output_dim": config.decoder_embed_dim,
        "activation_fn": config.activation_fn,
        "share_all_embeddings": len(shared) == 2,
        "share_decoder_input_output_embed": len(shared) >= 1,
    }


def check_expressible(folder: ModelFolder) -> None:
    """Raise UserError for a model that fairseq's transformer or its search cannot express."""
    if folder.generation.get("no_repeat_ngram_size"):
        raise UserError(
            f"{folder.path} cannot be exported to fairseq, because it is decoded with "
            "--no-repeat-ngram-size, which fairseq's own search "
            "ignores on a CPU: use --to ctranslate2 or --to huggingface"
        )
    if folder.config.activation_fn == "swish":
        raise UserError(
            f"{folder.path} cannot be exported to fairseq, because its activation function is "
            "swish, with which fairseq's own transformer fails (it calls a class in place of a "
            "function): use --to ctranslate2 or --to huggingface"
        )


def has_fairseqs_positions(config: TransformerConfig, side: str) -> bool:
    """Return whether a side of the model has fairseq's sinusoids."""
    is_learned = getattr(config, f"{side}_learned_pos")
    return config.sinusoid_layout == "fairseq" and not is_learned


def to_fairseqs_names(folder: ModelFolder, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters by fairseq's names, float32."""
    renamed = {name: value.float().clone() for name, value in to_fairseq(parameters).items()}
    for side in ("encoder", "decoder"):
        renamed[f"{side}.version"] = torch.tensor([3.0])
        if has_fairseqs_positions(folder.config, side):
            renamed[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        else:
            table = position_table(parameters, folder.config, side)
            # the first token is at the padding's number plus one
            renamed[f"{side}.embed_positions.weight"] = torch.cat(
                [table.new_zeros(2, table.size(1)), table]
            )
    return renamed


def engine_of(folder: Path) -> FairseqEngine:
    """Return fairseq's model, task and search on the checkpoint in a folder, on the CPU."""
    path = str(folder / CHECKPOINT)
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [path], arg_overrides={"data": str(folder)}
    )
    model = models[0].eval()
    model.prepare_for_inference_(SimpleNamespace(generation=GenerationConfig()))
    return FairseqEngine(task, [model], path)
