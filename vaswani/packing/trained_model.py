"""A checkpoint as one of our models: what it is, and where it comes from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import Tensor

from transformer_plugin.checkpoints import CheckpointError, load_checkpoint, not_finite
from transformer_plugin.compat.dictionaries import other_dictionaries
from transformer_plugin.compat.scope import is_plugin_model
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani.common.files import sha256_of
from vaswani.configuration.plugin import to_dict
from vaswani.data.read_data_bin import load_dictionary
from vaswani.folders.data_bin import DataBin
from vaswani.packing.fairseq_model import model_from_fairseq
from vaswani.packing.networks import model_class, packed_options, plugin_config, task_for
from vaswani_transformer.io.folder_table import Variant
from vaswani_transformer.io.packed import read_config

#: a section of a configuration
Section = Mapping[str, Any]


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint of our model, or of fairseq's ``transformer``, which is converted.

    Attributes:
        checkpoint: its file
        state: what fairseq saved in it
        sections: of its configuration, by name; before fairseq 0.11, its arguments are all of them
        architecture: the options that a model folder keeps, by name
        parameters: the state dict
        variant: what the model is, if it is a variant of the paper's
    """

    checkpoint: Path
    state: Mapping[str, Any]
    sections: Mapping[str, Section]
    architecture: dict[str, Any]
    parameters: dict[str, Tensor]
    variant: Variant | None

    @classmethod
    def load(cls, checkpoint: Path) -> "TrainedModel":
        """Load a model from a checkpoint.

        Raises:
            UserError: it is of another model, or of one that our model cannot express.
            CheckpointError: the file is not a usable checkpoint.
        """
        state = load_checkpoint(checkpoint, mapped=True)
        sections = sections_of(state)
        options = sections["model"]
        name = str(options.get("_name") or options.get("arch"))
        if is_plugin_model(name):
            architecture, variant = architecture_of(name, options)
            return cls(checkpoint, state, sections, architecture, dict(state["model"]), variant)
        architecture, parameters = model_from_fairseq(options, state["model"], str(checkpoint))
        return cls(checkpoint, state, sections, architecture, parameters, None)

    @property
    def task(self) -> Section:
        """The section of the task."""
        return self.sections["task"]

    def check_fits(self, dictionaries: tuple[Path, Path], langs: tuple[str, str]) -> None:
        """Raise an error unless model, parameters and dictionaries fit each other.

        Args:
            dictionaries: of source and target
            langs: their languages

        Raises:
            CheckpointError: the dictionaries are others, or the training has diverged.
            ConfigError: no model can have these options.
        """
        config = read_config(self.architecture, "the checkpoint", self.variant)
        options = plugin_config(config, self.variant)
        source, target = map(load_dictionary, dictionaries)
        task = task_for(source, target, langs, options)
        problem = other_dictionaries(task, self.state.get("task_state") or {})
        bad = not_finite(self.parameters)
        if bad:
            problem = f"{bad} has a NaN or an infinity: the training has diverged"
        if problem:
            raise CheckpointError(problem)
        model_class(self.variant).build_model(options, task).load_state_dict(self.parameters)

    def origin(self, data: DataBin) -> dict[str, Any]:
        """Return the origin of the model: its checkpoint, its training, its data."""
        model = self.sections["model"]
        history = (self.state.get("optimizer_history") or [{}])[-1]
        averaged = self.state.get("averaged_updates")
        facts = {
            "checkpoint": self.checkpoint.name,
            "sha256": sha256_of(self.checkpoint),
            "model": model.get("_name") or model.get("arch"),
            "updates": history.get("num_updates"),
            "averaged": len(averaged) if isinstance(averaged, list) else None,
            "seed": (self.sections.get("common") or model).get("seed"),
            "data": data.name,
        }
        for section in ("criterion", "optimizer", "lr_scheduler"):
            name = (self.sections.get(section) or {}).get("_name")
            facts[section] = name if isinstance(name, str) else model.get(section)
        smoothing = (self.sections.get("criterion") or model).get("label_smoothing")
        facts["label_smoothing"] = smoothing
        plain = (str, int, float)
        return {name: value for name, value in facts.items() if isinstance(value, plain)}


def sections_of(state: Mapping[str, Any]) -> dict[str, Section]:
    """Return the sections of a checkpoint's configuration; before fairseq 0.11, its arguments."""
    cfg = state.get("cfg")
    if cfg is None:
        options = dict(vars(state["args"]))
        return {"model": options, "task": options}
    return {"model": {}, "task": {}, **{name: to_dict(cfg[name]) for name in cfg}}


def architecture_of(name: str, options: Section) -> tuple[dict[str, Any], Variant | None]:
    """Return the options that a model folder keeps, and those of a variant.

    Args:
        name: by which the model is registered
        options: it was trained with
    """
    defaults = VaswaniTransformerConfig()
    architecture = {key: options.get(key, getattr(defaults, key)) for key in packed_options()}
    if options.get("share_all_embeddings"):  # which includes the decoder's, and is not kept
        architecture["share_decoder_input_output_embed"] = False
    if MODEL_REGISTRY[name].__module__ == "transformer_plugin.model":
        return architecture, None
    own_options = vars(MODEL_DATACLASS_REGISTRY[name]()).keys() - vars(defaults).keys()
    return architecture, Variant(name, {key: options[key] for key in sorted(own_options)})
