"""From an experiment's YAML to the complete configuration that fairseq trains with.

The steps are those of ``fairseq-hydra-train`` (defaults of every section, then of the named model,
task, criterion, optimizer and schedule), but unknown names and keys are refused and the nearest
known one is suggested, where hydra prints a stack trace or, for some models, nothing.
"""

import argparse
import dataclasses
import logging
import os
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Set

from vaswani.common.environment import plugin_dir
from vaswani.common.errors import UserError, nearest
from vaswani.experiment.check_config import check_config
from vaswani.experiment.find import read_yaml
from vaswani.experiment.strict_yaml import parse

#: sections whose keys depend on the component that ``_name`` chooses
COMPONENTS = ("task", "model", "criterion", "optimizer", "lr_scheduler")


def load_plugin() -> None:
    """Import the plugin, and with it fairseq and torch, and silence fairseq's log messages."""
    fairseq_logs(logging.WARNING)  # now: it logs at import what it could use
    import transformer_plugin  # noqa: F401  (everything registers itself)
    from transformer_plugin import compat

    compat.quiet()
    logging.getLogger().setLevel(logging.WARNING)  # some library lowers it at import


def load_user_dir(user_dir: Optional[str]) -> str:
    """Import the plugin, then a user-dir of one's own if there is one; returns its absolute path.

    A folder called ``transformer_plugin`` means the plugin that is in use, wherever it was when a
    run was trained: Python cannot load two packages of one name.

    Args:
        user_dir: ``common.user_dir``; a relative path is looked for where fairseq looks for it:
            here, in fairseq's folder, and beside that

    Raises:
        UserError: there is no such folder.
    """
    load_plugin()
    if not user_dir or Path(user_dir).name == plugin_dir().name:
        return str(plugin_dir())
    import fairseq
    from fairseq.utils import import_user_module

    inside = Path(fairseq.__file__).parent
    places = [Path(os.path.abspath(place / user_dir)) for place in (Path(), inside, inside.parent)]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise UserError(
            f"common.user_dir: there is no folder {user_dir}: say where it is, to 'vaswani train' "
            "with common.user_dir=DIR, to 'vaswani generate' with --user-dir DIR"
        )
    import_user_module(argparse.Namespace(user_dir=str(folder)))
    return str(folder)


def fairseq_logs(level: int) -> None:
    """Set how much fairseq logs."""
    for name in ("fairseq", "fairseq_cli"):
        logging.getLogger(name).setLevel(level)


def experiment_config(path: Path, overrides: Sequence[str] = ()) -> Any:
    """The complete configuration of an experiment, interpolations resolved.

    ``overrides`` are ``section.key=value``, as on fairseq-hydra-train's command line.

    Raises:
        UserError: an unknown section, component or key.
        OmegaConfBaseException: a value of the wrong type.
    """
    return config_of(read_yaml(path), str(path), overrides)


def config_of(table: Dict[str, Any], where: str, overrides: Sequence[str] = ()) -> Any:
    """As ``experiment_config``, for a table already read; ``where``: its origin, for messages."""
    load_plugin()
    from fairseq.dataclass.configs import FairseqConfig
    from omegaconf import OmegaConf

    table = {name: section for name, section in table.items() if name != "hydra"}  # hydra's own
    given = OmegaConf.create(table)
    for changed, value in parse_overrides(overrides).items():
        OmegaConf.update(given, changed, value, merge=True)
    common = given.get("common")
    load_user_dir(str(common.get("user_dir") or "") if OmegaConf.is_dict(common) else None)
    given = OmegaConf.to_container(given)
    check_names(given, where)
    config = with_defaults(OmegaConf.merge(OmegaConf.structured(FairseqConfig), given))
    check_config(config)
    return config


def with_defaults(config: Any) -> Any:
    """The configuration with its components' defaults, resolved."""
    from fairseq.dataclass.initialize import add_defaults
    from fairseq.dataclass.utils import omegaconf_no_object_check
    from omegaconf import OmegaConf

    user_dir = load_user_dir(config.common.user_dir)
    add_defaults(config)
    fill_in_legacy_model(config)
    with omegaconf_no_object_check():
        config = OmegaConf.create(OmegaConf.to_container(config, resolve=True, enum_to_str=True))
    config.common.user_dir = user_dir
    return config


def is_legacy(model: Any) -> bool:
    """Whether a model section names a model without a dataclass (fairseq's ``transformer``)."""
    from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY

    name = model.get("_name") if model else None
    return name in ARCH_CONFIG_REGISTRY and name not in MODEL_DATACLASS_REGISTRY


def fill_in_legacy_model(config: Any) -> None:
    """Write out the defaults of an old model, so that the configuration is complete."""
    from fairseq.models import ARCH_CONFIG_REGISTRY

    if is_legacy(config.model):
        options = argparse.Namespace(**config.model)
        ARCH_CONFIG_REGISTRY[options._name](options)
        config.model = vars(options)


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


def parse_overrides(overrides: Sequence[str]) -> Dict[str, Any]:
    """The overrides' values by their keys; for one given twice, the last.

    Raises:
        UserError: one is not ``section.key=value``.
    """
    values: Dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or "." not in key or not all(key.split(".")):
            raise UserError(
                f"'{override}' is not an override: write section.key=value, for example "
                "optimization.max_update=1000, or run=NAME"
            )
        values[key] = parse(text, override)
    return values


def check_names(given: Dict[str, Any], where: str) -> None:
    """Raises UserError for a section, component or key that fairseq does not know."""
    from fairseq.dataclass.configs import FairseqConfig

    sections = FairseqConfig.__dataclass_fields__
    for section, keys in given.items():
        if section not in sections:
            raise UserError(
                f"{where}: there is no section '{section}'{nearest(str(section), list(sections))}"
            )
        known: Optional[Set[str]] = None
        if section in COMPONENTS:
            known = component_keys(section, keys, where)
        elif dataclasses.is_dataclass(sections[section].default):  # a class, or an instance of it
            known = keys_of(sections[section].default)
        for key in keys or {}:
            if known is not None and key not in known:
                offer = nearest(str(key), list(known))
                raise UserError(f"{where}: {section} has no key '{key}'{offer}")
    for section in COMPONENTS:
        if not given.get(section):
            raise UserError(f"{where}: section '{section}' is missing")


def keys_of(section: Any) -> Set[str]:
    """The keys of a dataclass."""
    return {item.name for item in dataclasses.fields(section)}


def component_keys(section: str, keys: Any, where: str) -> Optional[Set[str]]:
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
        return {"_name", *keys_of(configs[name])}
    if section == "model":
        # fairseq's older models declare their options on a parser, and a few only by a default
        parser, defaults = argparse.ArgumentParser(allow_abbrev=False), argparse.Namespace()
        registry[name].add_args(parser)
        ARCH_CONFIG_REGISTRY[name](defaults)
        return {"_name", *vars(defaults), *(action.dest for action in parser._actions)}
    return None
