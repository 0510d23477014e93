"""The networks of packed models, and the plugin's configurations and tasks for them."""

from dataclasses import fields

from fairseq.data import Dictionary
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from torch import nn

from transformer_plugin.compat.scope import is_plugin_model
from transformer_plugin.config import VaswaniTransformerConfig, VaswaniTranslationConfig
from transformer_plugin.model import VaswaniTransformerModel
from transformer_plugin.task import VaswaniTranslationTask
from vaswani.common.errors import UserError
from vaswani.folders.model_folder import ModelFolder, errors_for_users
from vaswani_transformer.config import TransformerConfig
from vaswani_transformer.io.folder_table import Variant


def packed_options() -> list[str]:
    """Return the options that define the model, in the order of the folder's file.

    The others say how it begins (``init``), or the same in other words.
    """
    names = [item.name for item in fields(TransformerConfig)]
    names.append(names.pop(names.index("share_decoder_input_output_embed")))  # it came later
    return [name for name in names if name not in ("init", "share_all_embeddings")]


def model_class(variant: Variant | None) -> type[VaswaniTransformerModel]:
    """Return the class of a model: ours, or the subclass that a user-dir registered as ``arch``.

    Raises:
        UserError: nothing of that name is registered.
    """
    name = variant.arch if variant else "vaswani_transformer"
    if not is_plugin_model(name):
        raise UserError(
            f"the folder given with --user-dir does not define the model '{name}': give the folder "
            "that does"
        )
    return MODEL_REGISTRY[name]


def plugin_config(config: TransformerConfig, variant: Variant | None) -> VaswaniTransformerConfig:
    """Return the plugin's configuration of a model.

    Args:
        config: its sizes, with the options of a variant
        variant: what it is, if it is a variant of the paper's
    """
    made = MODEL_DATACLASS_REGISTRY[variant.arch if variant else "vaswani_transformer"]()
    for name, value in vars(config).items():
        setattr(made, name, value)
    return made


def task_for(
    source: Dictionary,
    target: Dictionary,
    langs: tuple[str, str],
    model: VaswaniTransformerConfig,
) -> VaswaniTranslationTask:
    """Build fairseq's task, without its data.

    Args:
        source, target: dictionaries
        langs: of source and target
        model: its configuration, for the maximum lengths of source and target in tokens
    """
    config = VaswaniTranslationConfig()
    config.source_lang, config.target_lang = langs
    config.max_source_positions = model.max_source_positions
    config.max_target_positions = model.max_target_positions
    return VaswaniTranslationTask(config, source, target)


def configuration_and_task(
    folder: ModelFolder,
) -> tuple[VaswaniTransformerConfig, VaswaniTranslationTask]:
    """Return the model's configuration and task as config.json describes them."""
    config = plugin_config(folder.config, folder.table.variant)
    source, target = [Dictionary.load(str(folder.dictionary(lang))) for lang in folder.langs]
    return config, task_for(source, target, folder.langs, config)


def build_variant(folder: ModelFolder) -> nn.Module:
    """Build the model of a folder that uses a registered variant, in evaluation mode.

    Raises:
        UserError: the user-dir does not register it.
    """
    made_by = model_class(folder.table.variant)
    config, task = configuration_and_task(folder)
    model = made_by.build_model(config, task)
    parameters = folder.parameters()
    with errors_for_users():
        folder.packed.check_shapes(parameters, model.state_dict())
    model.load_state_dict(parameters)
    return model.eval()
