"""The network of a model folder, ready to translate."""

from dataclasses import fields
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

from vaswani.errors import UserError
from vaswani.packed.model_folder import CONFIG, ModelFolder
from vaswani.training.run_record import HOW_IT_COMPUTES

#: model options that are not part of what the model is
NOT_KEPT = (*HOW_IT_COMPUTES, "share_all_embeddings", "_name")


def kept_options() -> List[str]:
    """The model options that a folder keeps: the others only say how it computes."""
    from transformer_plugin.config import VaswaniTransformerConfig

    return [f.name for f in fields(VaswaniTransformerConfig) if f.name not in NOT_KEPT]


def model_config(architecture: Dict[str, Any], where: str) -> Any:
    """A model's configuration from the section ``architecture``; UserError for an unknown key."""
    from transformer_plugin.config import VaswaniTransformerConfig

    config = VaswaniTransformerConfig()
    known = kept_options()
    for name in known:
        if name not in architecture:
            raise UserError(f"{where}: section 'architecture' was altered: '{name}' is missing")
    for name, value in architecture.items():
        if name not in known:
            raise UserError(f"{where}: section 'architecture' was altered: it has '{name}'")
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


def build(folder: ModelFolder, precision: str, device: Optional[str]) -> Tuple[Any, Any]:
    """A folder's task and model, in evaluation mode and optimised for speed.

    Raises:
        UserError: a section of config.json does not fit; no such device or precision.
        ConfigError, CheckpointError: the sizes are invalid, or do not match the parameters.
    """
    import torch

    from vaswani.configuration.fairseq_config import load_plugin

    load_plugin()
    from fairseq.data import Dictionary
    from fairseq.dataclass.configs import GenerationConfig

    from transformer_plugin.model import VaswaniTransformerModel
    from transformer_plugin.precision import PRECISIONS

    if precision not in PRECISIONS:
        raise UserError(f"--precision is {precision!r}; it may be {' or '.join(PRECISIONS)}")
    config = model_config(folder.config["architecture"], str(folder.path / CONFIG))
    config.precision = precision
    words = [Dictionary.load(str(folder.dictionary(lang))) for lang in folder.langs]
    task = task_for(words[0], words[1], folder.langs, config)
    model = VaswaniTransformerModel.build_model(config, task)
    model.load_state_dict(folder.parameters())
    try:
        model.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {device!r}: {str(error).splitlines()[0]}") from None
    model.eval()
    model.prepare_for_inference_(SimpleNamespace(generation=GenerationConfig()))
    return task, model
