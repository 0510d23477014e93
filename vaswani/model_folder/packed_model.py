"""The network of a model folder, ready to translate."""

from dataclasses import fields
from typing import Any, Dict, List, Tuple

from vaswani.model_folder.folder import CONFIG, ModelFolder
from vaswani.model_folder.schema import Architecture, read_section


def kept_options() -> List[str]:
    """The model options that a folder keeps: the others only say how it computes."""
    return [item.name for item in fields(Architecture)]


def model_config(architecture: Dict[str, Any], where: str) -> Any:
    """A model's configuration from the section ``architecture``; UserError if it is none."""
    from transformer_plugin.config import VaswaniTransformerConfig

    config = VaswaniTransformerConfig()
    section = read_section(Architecture, architecture, f"{where}: architecture")
    for name, value in vars(section).items():
        setattr(config, name, value)
    return config


def task_for(source: Any, target: Any, langs: Tuple[str, str], model: Any) -> Any:
    """fairseq's task, without its data.

    Args:
        source, target: dictionaries
        langs: of source and target
        model: its configuration, for the maximum lengths of source and target in tokens
    """
    from transformer_plugin.config import VaswaniTranslationConfig
    from transformer_plugin.task import VaswaniTranslationTask

    config = VaswaniTranslationConfig()
    config.source_lang, config.target_lang = langs
    config.max_source_positions = model.max_source_positions
    config.max_target_positions = model.max_target_positions
    return VaswaniTranslationTask(config, source, target)


def described(folder: ModelFolder) -> Tuple[Any, Any]:
    """The model's configuration and task as config.json describes them."""
    from fairseq.data import Dictionary

    config = model_config(folder.config["architecture"], str(folder.path / CONFIG))
    words = [Dictionary.load(str(folder.dictionary(lang))) for lang in folder.langs]
    return config, task_for(words[0], words[1], folder.langs, config)
