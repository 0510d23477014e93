"""From a YAML file of ``configs/`` to the complete configuration that fairseq trains with.

The steps are those of ``fairseq-hydra-train`` (defaults of every section, then of the named model,
task, criterion, optimizer and schedule), but unknown names and keys are refused and the nearest
known one is suggested, where hydra prints a stack trace or, for some models, nothing. Types are
checked by OmegaConf, and what a component is given by the component; here only values at which
fairseq fails hours later, never ends, or trains something else than was meant.

A configuration that was read is read-only. What a training adds to it, such as the languages of the
data, is given to ``complete``, once, which returns the one that the run records; fairseq, which
writes into its configuration, gets a copy (``fairseq_form``), with the place of a process in it.
"""

import argparse
import dataclasses
import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

from fairseq.dataclass.configs import FairseqConfig
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import omegaconf_no_object_check
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
)
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import DictConfig, OmegaConf

from transformer_plugin import checks as plugin
from transformer_plugin.compat.scope import is_plugin_model
from vaswani.common.errors import UserError, nearest
from vaswani.common.yaml_tables import Sections, read_yaml, yaml_errors
from vaswani.configuration.plugin import load_plugin, load_user_dir

#: sections whose keys depend on the component that ``_name`` chooses
COMPONENTS = ("task", "model", "criterion", "optimizer", "lr_scheduler")
#: the least value of keys with which fairseq divides by zero, fails late, or does something else
LEAST = {
    ("checkpoint", "save_interval"): 1,
    ("common", "log_interval"): 1,
    ("common", "seed"): 0,
    ("dataset", "num_workers"): 0,
    ("dataset", "required_batch_size_multiple"): 1,
    ("dataset", "validate_interval"): 1,
    ("optimization", "lr"): 0,
    ("optimization", "update_freq"): 1,
}


def read_configuration(path: Path, overrides: Sequence[str] = ()) -> DictConfig:
    """Read a complete configuration, interpolations resolved.

    ``overrides`` are ``section.key=value``, as on fairseq-hydra-train's command line.

    Raises:
        UserError: an unknown section, component or key, or a value that cannot work.
        OmegaConfBaseException: a value of the wrong type.
    """
    return config_of(read_yaml(path), str(path), overrides)


def config_of(table: Sections, where: str, overrides: Sequence[str] = ()) -> DictConfig:
    """Complete a table, as ``read_configuration`` does; messages name it by ``where``."""
    table = {name: section for name, section in table.items() if name != "hydra"}  # hydra's own
    sections = OmegaConf.to_container(OmegaConf.merge(table, parse_overrides(overrides)))
    load_user_dir((sections.get("common") or {}).get("user_dir"))
    check_names(sections, where)
    table = table_with_defaults(sections)
    # logs and train.jsonl name it with the validation set: ``valid_bleu`` is ``bleu`` to fairseq
    subset = table["dataset"]["valid_subset"].split(",")[0]
    metric = table["checkpoint"]["best_checkpoint_metric"]
    table["checkpoint"]["best_checkpoint_metric"] = metric.removeprefix(f"{subset}_")
    config = read_only(table)
    check_values(config)
    return config


def parse_overrides(overrides: Sequence[str]) -> DictConfig:
    """Parse overrides into a configuration; raise UserError for one without ``section.key=``."""
    for override in overrides:
        if not re.match(r"\w+(\.\w+)+=", override):
            raise UserError(
                f"'{override}' is not an override: write section.key=value, for example "
                "optimization.max_update=1000, or run=NAME"
            )
    with yaml_errors(" ".join(overrides)):
        return OmegaConf.from_dotlist(list(overrides))


def with_defaults(sections: Sections) -> DictConfig:
    """Complete ``sections`` by the defaults of fairseq and of their components, all resolved."""
    return read_only(table_with_defaults(sections))


def table_with_defaults(sections: Sections) -> Sections:
    """Complete ``sections``, as ``with_defaults``, and return a table that may be changed."""
    load_plugin()

    config = OmegaConf.merge(fairseqs_defaults(), sections)
    user_dir = load_user_dir(config.common.user_dir)
    add_defaults(config)
    if is_legacy(config.model):  # written out, so that the configuration is complete
        options = argparse.Namespace(**config.model)
        ARCH_CONFIG_REGISTRY[options._name](options)
        config.model = vars(options)
    table = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    table["common"]["user_dir"] = user_dir
    return table


@functools.cache
def fairseqs_defaults() -> DictConfig:
    """Return fairseq's defaults of every section; ``merge`` copies them, so never change them."""
    return OmegaConf.structured(FairseqConfig)


def read_only(table: Sections) -> DictConfig:
    """Return a complete configuration that cannot be changed."""
    with omegaconf_no_object_check():
        config = OmegaConf.create(table)
    OmegaConf.set_readonly(config, True)
    return config


def complete(config: DictConfig, additions: Sections) -> DictConfig:
    """Return a read-only configuration: the experiment's, with what its training adds.

    It is what the run records.

    Args:
        config: complete, or lacking only what is added; it stays as it is
        additions: values by section and key
    """
    return read_only(table_of(config, additions))


def table_of(config: DictConfig, additions: Sections) -> Sections:
    """Return a configuration's table with more values."""
    table = OmegaConf.to_container(config)
    for section, values in additions.items():
        table[section].update(values)
    return table


def writable(config: DictConfig, additions: Sections = {}) -> DictConfig:  # noqa: B006
    """Return a copy that fairseq may change, with additions for it alone.

    No key can be added to the copy: else official fairseq's omegaconf returns None for
    getattr(section, key, default), also where the key is missing.
    """
    with omegaconf_no_object_check():  # deepcopy takes more than twice the time
        writable_copy = OmegaConf.create(table_of(config, additions))
    OmegaConf.set_struct(writable_copy, True)
    return writable_copy


def is_legacy(model: DictConfig | None) -> bool:
    """Return whether a model section names a model without a dataclass (fairseq's
    ``transformer``).
    """
    name = model.get("_name") if model else None
    return name in ARCH_CONFIG_REGISTRY and name not in MODEL_DATACLASS_REGISTRY


def fairseq_form(config: DictConfig, additions: Sections = {}) -> DictConfig:  # noqa: B006
    """Return a copy in the form that fairseq reads, and may change: a Namespace for an old model.

    With what is added to the configuration for fairseq alone.

    fairseq's command line does the same; some old models (``fconv``) also read options of the task
    there. With a DictConfig, official fairseq's omegaconf returns None for what is missing, never
    the default, and the model gets other sizes.
    """
    form = writable(config, additions)
    if is_legacy(config.model):
        task, model = map(OmegaConf.to_container, (form.task, form.model))
        options = argparse.Namespace(**{**task, **model})
        with omegaconf_no_object_check():
            form.model = options
    return form


# ---- checks --------------------------------------------------------------------------------------


def check_names(sections: Sections, where: str) -> None:
    """Raise UserError for a section, component or key that fairseq does not know.

    Also for a number where it takes a list of them, and for YAML's truth values as languages.
    """
    known_sections = FairseqConfig.__dataclass_fields__
    for section, keys in {**dict.fromkeys(COMPONENTS), **sections}.items():
        if section not in known_sections:
            offer = nearest(str(section), list(known_sections))
            raise UserError(f"{where}: there is no section '{section}'{offer}")
        if not isinstance(keys, dict | None):
            example = f", such as '_name: {keys}'" if section in COMPONENTS else ""
            raise UserError(
                f"{where}: section '{section}' is {keys!r}, not a table: write its keys on lines "
                f"of their own{example}"
            )
        default = known_sections[section].default
        types: dict[str, object] | None = None
        if section in COMPONENTS:
            types = component_keys(section, keys, where)
        elif dataclasses.is_dataclass(default):  # a class, or an instance of it
            types = types_of(default)
        for key, value in (keys or {}).items():
            if types is not None and key not in types:
                offer = nearest(str(key), list(types))
                raise UserError(f"{where}: {section} has no key '{key}'{offer}")
            if types and get_origin(types[key]) is list and isinstance(value, (int, float)):
                raise UserError(f"{where}: {section}.{key} is a list: write [{value}]")
            if isinstance(value, bool) and key.endswith("_lang"):
                raise UserError(
                    f"{where}: YAML reads {section}.{key} as {value}: put quotes around a value "
                    "such as no or on"
                )


def types_of(options: Any) -> dict[str, object]:
    """Return the types of a dataclass's fields, by name."""
    return {item.name: item.type for item in dataclasses.fields(options)}


def component_keys(
    section: str, keys: Mapping[str, object] | None, where: str
) -> dict[str, object] | None:
    """Return the keys of the component that ``_name`` chooses, and their types.

    The result is None if fairseq lists no keys for it. An older model without a dataclass declares
    no types, so each of its types is None.

    Raises:
        UserError: ``_name`` is missing or not registered.
    """
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
        return {"_name": str, **types_of(configs[name])}
    if section == "model":
        # fairseq's older models declare their options on a parser, and a few only by a default
        parser = argparse.ArgumentParser(allow_abbrev=False)
        defaults = argparse.Namespace()
        registry[name].add_args(parser)
        ARCH_CONFIG_REGISTRY[name](defaults)
        options = ["_name", *vars(defaults), *(action.dest for action in parser._actions)]
        return dict.fromkeys(options)
    return None


def check_values(config: DictConfig) -> None:
    """Raise UserError or ConfigError for a value at which fairseq fails late, or never ends."""
    for section, options in config.items():
        for key, value in options.items() if hasattr(options, "items") else ():
            for number in numbers_of(value):
                if isinstance(number, float) and math.isnan(number):  # no limit would be reached
                    raise UserError(f"{section}.{key} is {value}, but must be a number")
    for (section, key), least in LEAST.items():
        numbers = numbers_of(config[section][key])
        if not numbers:
            raise UserError(f"{section}.{key} is an empty list: give a number, as in [1]")
        for number in numbers:
            plugin.check_number(f"{section}.{key}", number, least=least)
    if config.checkpoint.checkpoint_suffix:
        raise UserError(
            f"checkpoint.checkpoint_suffix is {config.checkpoint.checkpoint_suffix}, but "
            "'vaswani' finds checkpoints by fairseq's names without a suffix: leave out the "
            "suffix, and give each run its own run=NAME"
        )
    if (config.dataset.max_tokens or 0) < 1 and (config.dataset.batch_size or 0) < 1:
        raise UserError(
            "the batch size has no limit: give dataset.max_tokens (padded tokens, for example "
            "4096) or dataset.batch_size (sentences)"
        )
    ends = config.optimization
    limits = (ends.max_update, ends.max_epoch, ends.stop_time_hours, ends.stop_min_lr)
    if max(*limits, config.checkpoint.patience) <= 0:
        raise UserError(
            "the training would never end: give optimization.max_update, for example 100000 (or "
            "optimization.max_epoch, optimization.stop_time_hours, checkpoint.patience)"
        )
    plugin.check_subsets(config.dataset)
    if is_plugin_model(config.model._name):
        plugin.check_model_config(config.model)
        plugin.check_precision(config.common, config.model.get("precision"))
    if config.criterion._name == "vaswani_label_smoothed_cross_entropy":
        plugin.check_label_smoothing(config.criterion.label_smoothing)
    if config.lr_scheduler._name == "vaswani_inverse_sqrt":
        plugin.check_schedule_config(config.lr_scheduler)
    if config.optimizer._name == "vaswani_adam":
        plugin.check_adam_config(config.optimizer)
    if config.task._name == "vaswani_translation":
        plugin.check_task_config(config.task)
    if config.task._name in ("translation", "vaswani_translation"):
        plugin.check_best_metric(config.checkpoint, config.task)


def numbers_of(value: object) -> Sequence[object]:
    """Return the values in a list, or a single one."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    return [value]
