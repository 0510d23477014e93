"""From an experiment's YAML to the complete configuration that fairseq trains with.

The steps are those of ``fairseq-hydra-train`` (defaults of every section, then of the named model,
task, criterion, optimizer and schedule), but unknown names and keys are refused and the nearest
known one is suggested, where hydra prints a stack trace or, for some models, nothing. Types are
checked by OmegaConf, and what a component is given by the component; here only values at which
fairseq fails hours later, never ends, or trains something else than was meant.
"""

import argparse
import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError, nearest
from vaswani.experiment.find import load_plugin, load_user_dir, read_yaml, yaml_errors

#: sections whose keys depend on the component that ``_name`` chooses
COMPONENTS = ("task", "model", "criterion", "optimizer", "lr_scheduler")
#: by which fairseq divides, some of them only when the first epoch ends, before it saves
AT_LEAST_1 = (
    *(("common", "log_interval"), ("dataset", "validate_interval")),
    *(("dataset", "required_batch_size_multiple"), ("checkpoint", "save_interval")),
)


def experiment_config(path: Path, overrides: Sequence[str] = ()) -> Any:
    """The complete configuration of an experiment, interpolations resolved.

    ``overrides`` are ``section.key=value``, as on fairseq-hydra-train's command line.

    Raises:
        UserError: an unknown section, component or key.
        OmegaConfBaseException: a value of the wrong type.
    """
    return config_of(read_yaml(path), str(path), overrides)


def config_of(table: dict[str, Any], where: str, overrides: Sequence[str] = ()) -> Any:
    """As ``experiment_config``, for a table already read; ``where``: its origin, for messages."""
    from omegaconf import OmegaConf

    table = {name: section for name, section in table.items() if name != "hydra"}  # hydra's own
    given: Any = OmegaConf.to_container(OmegaConf.merge(table, parse_overrides(overrides)))
    load_user_dir((given.get("common") or {}).get("user_dir"))
    check_names(given, where)
    config = with_defaults(given)
    check_values(config)
    return config


def parse_overrides(overrides: Sequence[str]) -> Any:
    """The overrides as a configuration; raises UserError if one is not ``section.key=value``."""
    from omegaconf import OmegaConf

    for override in overrides:
        if not re.match(r"\w+(\.\w+)+=", override):
            raise UserError(
                f"'{override}' is not an override: write section.key=value, for example "
                "optimization.max_update=1000, or run=NAME"
            )
    with yaml_errors(" ".join(overrides)):
        return OmegaConf.from_dotlist(list(overrides))


def with_defaults(sections: dict[str, Any]) -> Any:
    """The configuration with these sections: fairseq's defaults, its components', resolved."""
    load_plugin()
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults
    from fairseq.dataclass.utils import omegaconf_no_object_check
    from fairseq.models import ARCH_CONFIG_REGISTRY
    from omegaconf import OmegaConf

    config: Any = OmegaConf.merge(OmegaConf.structured(FairseqConfig), sections)
    user_dir = load_user_dir(config.common.user_dir)
    add_defaults(config)
    if is_legacy(config.model):  # written out, so that the configuration is complete
        options = argparse.Namespace(**config.model)
        ARCH_CONFIG_REGISTRY[options._name](options)
        config.model = vars(options)
    with omegaconf_no_object_check():
        config = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    config.common.user_dir = user_dir
    return config


def is_legacy(model: Any) -> bool:
    """Whether a model section names a model without a dataclass (fairseq's ``transformer``)."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY

    name = model.get("_name") if model else None
    return name in ARCH_CONFIG_REGISTRY and name not in MODEL_DATACLASS_REGISTRY


def fairseq_form(config: Any) -> Any:
    """The configuration in the form that fairseq's training takes: a Namespace for an old model.

    fairseq's command line does the same; some old models (``fconv``) also read options of the task
    there. With a DictConfig, official fairseq's omegaconf returns None for what is missing, never
    the default, and the model gets other sizes.
    """
    from fairseq.dataclass.utils import omegaconf_no_object_check
    from omegaconf import OmegaConf

    if is_legacy(config.model):
        task, model = map(OmegaConf.to_container, (config.task, config.model))
        options = argparse.Namespace(**{**task, **model})
        with omegaconf_no_object_check():
            config.model = options
    OmegaConf.set_struct(config, True)
    return config


# ---- checks --------------------------------------------------------------------------------------


def check_names(given: dict[str, Any], where: str) -> None:
    """Raises UserError for a section, component or key that fairseq does not know."""
    from fairseq.dataclass.configs import FairseqConfig

    sections = FairseqConfig.__dataclass_fields__
    for section, keys in {**dict.fromkeys(COMPONENTS), **given}.items():
        if section not in sections:
            raise UserError(
                f"{where}: there is no section '{section}'{nearest(str(section), list(sections))}"
            )
        known: set[str] | None = None
        if section in COMPONENTS:
            known = component_keys(section, keys, where)
        elif dataclasses.is_dataclass(sections[section].default):  # a class, or an instance of it
            known = {item.name for item in dataclasses.fields(sections[section].default)}
        for key, value in (keys or {}).items():
            if known is not None and key not in known:
                offer = nearest(str(key), list(known))
                raise UserError(f"{where}: {section} has no key '{key}'{offer}")
            if isinstance(value, bool) and key.endswith("_lang"):
                raise UserError(
                    f"{where}: {section}.{key} is {value}, to YAML: put quotes around no, or on"
                )


def component_keys(section: str, keys: Any, where: str) -> set[str] | None:
    """Keys of the component that ``_name`` chooses; None where fairseq lists none.

    Raises:
        UserError: ``_name`` is missing or not registered.
    """
    from fairseq.models import (
        ARCH_CONFIG_REGISTRY,
        ARCH_MODEL_REGISTRY,
        MODEL_DATACLASS_REGISTRY,
        MODEL_REGISTRY,
    )
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    if section == "model":
        registry = {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY}
        configs = MODEL_DATACLASS_REGISTRY
    elif section == "task":
        registry, configs = TASK_REGISTRY, TASK_DATACLASS_REGISTRY
    else:
        registry = REGISTRIES[section]["registry"]
        configs = REGISTRIES[section]["dataclass_registry"]
    name = (keys or {}).get("_name")
    if not isinstance(name, str) or name not in registry:
        raise UserError(
            f"{where}: there is no {section} '{name}'{nearest(str(name), list(registry))}"
        )
    if configs.get(name) is not None:
        return {"_name", *(item.name for item in dataclasses.fields(configs[name]))}
    if section == "model":
        # fairseq's older models declare their options on a parser, and a few only by a default
        parser, defaults = argparse.ArgumentParser(allow_abbrev=False), argparse.Namespace()
        registry[name].add_args(parser)
        ARCH_CONFIG_REGISTRY[name](defaults)
        return {"_name", *vars(defaults), *(action.dest for action in parser._actions)}
    return None


def check_values(config: Any) -> None:
    """Raises UserError or ConfigError for a value at which fairseq fails late, or never ends."""
    from transformer_plugin import checks as plugin
    from transformer_plugin.compat.scope import is_plugin_model

    for section, given in config.items():
        for key, value in given.items() if hasattr(given, "items") else ():
            for number in value if isinstance(value, Sequence) else [value]:
                if isinstance(number, float) and math.isnan(number):  # no limit would be reached
                    raise UserError(f"{section}.{key} is {value}, but must be a number")
    for section, key in AT_LEAST_1:
        if config[section][key] < 1:
            raise UserError(f"{section}.{key} is {config[section][key]}, but must be 1 or more")
    if (config.dataset.max_tokens or 0) < 1 and (config.dataset.batch_size or 0) < 1:
        raise UserError(
            "nothing limits how large a batch is: give dataset.max_tokens (padded tokens, for "
            "example 4096) or dataset.batch_size (sentences)"
        )
    ends = config.optimization
    limits = (ends.max_update, ends.max_epoch, ends.stop_time_hours, ends.stop_min_lr)
    if max(*limits, config.checkpoint.patience) <= 0:
        raise UserError(
            "the training would never end: give optimization.max_update, for example 100000 (or "
            "optimization.max_epoch, optimization.stop_time_hours, checkpoint.patience)"
        )
    if is_plugin_model(config.model._name):
        plugin.check_model_config(config.model)
        plugin.check_precision(config.common, config.model.get("precision"))
    if config.criterion._name == "vaswani_label_smoothed_cross_entropy":
        plugin.check_label_smoothing(config.criterion.label_smoothing)
    if config.lr_scheduler._name == "vaswani_inverse_sqrt":
        plugin.check_schedule_config(config.lr_scheduler)
