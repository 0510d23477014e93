"""Makes an export: the target's files, proved against the packed model, and what is beside them."""

import shutil
import sys
from collections import Counter
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from transformer_plugin.checkpoints import CheckpointError
from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.configuration.plugin import load_plugin
from vaswani.decoding.ctranslate2_engine import CTranslate2Engine
from vaswani.decoding.translator import Translator
from vaswani.export import to_ctranslate2, to_fairseq, to_huggingface
from vaswani.export.card import export_card, licence_of
from vaswani.export.proof import Proof
from vaswani.export.text import ProofText
from vaswani.folders.exported_model import ExportedModel, ExportTable, Limits, write_export
from vaswani.folders.model_folder import ModelFolder, is_model_folder, read_origin
from vaswani.folders.run import Run
from vaswani.training.checkpoints import best_of_run
from vaswani_transformer.fast.malloc import keep_freed_memory
from vaswani_transformer.vocabulary import Vocabulary

NOT_COMPARED = (
    "not compared with the packed model: 'pip install transformers sentencepiece' and export again"
)


@dataclass(frozen=True)
class Target:
    """What a packed model is exported to."""

    #: one of ``vaswani.folders.exported_model.TARGETS``
    name: str
    #: one of CTranslate2's; None: float32
    quantization: str | None
    #: defines the model, if it is a variant of the paper's
    user_dir: str | None


def check_expressible(folder: ModelFolder, target: Target) -> None:
    """Raise UserError for a model that the target cannot express."""
    variant = folder.table.variant
    if variant and target.name != "fairseq":
        raise UserError(
            f"{folder.path} is a '{variant.arch}', a variant of the paper's model, "
            f"which {target.name} lacks: export it with --to fairseq --user-dir DIR"
        )
    if not variant:
        to_ctranslate2.check_expressible(folder, target.name)
    if target.name == "huggingface":
        to_huggingface.check_expressible(folder)
    if target.name == "fairseq" and not variant:
        to_fairseq.check_expressible(folder)
    if target.name != "fairseq":
        check_types_are_unique(folder, target)


def check_types_are_unique(folder: ModelFolder, target: Target) -> None:
    """Raise UserError for a dictionary in which a type has two ids, which other programs merge."""
    for lang in folder.langs:
        path = folder.dictionary(lang)
        types = Vocabulary.load(path).types
        repeated = [name for name, count in Counter(types).items() if count > 1]
        if repeated:
            raise UserError(
                f"{path} has the entry '{repeated[0]}' twice (#fairseq:overwrite), which "
                f"{target.name} cannot tell apart: export the model with --to fairseq"
            )


def find_model_folder(name: str) -> Path:
    """Find a packed model, also a run's; raise UserError if the run has a better model."""
    for run in Run.candidates(name):
        if run.exists and is_model_folder(run.model):
            check_is_best(run)
            return run.model
    return Path(name)


def check_is_best(run: Run) -> None:
    """Raise UserError if a run's packed model is not its model with the lowest validation loss.

    A run whose checkpoints are gone has no other than the packed one.
    """
    try:
        best = best_of_run(run)
    except (CheckpointError, UserError):
        return
    origin = read_origin(run.model)
    if origin.get("sha256") != sha256_of(best):
        raise UserError(
            f"{run.model} was packed from {origin.get('checkpoint')}, not from {best}: run "
            f"'vaswani pack {run}' first, or, to export the old model, give {run.model} instead of "
            "the run"
        )


def export(folder: ModelFolder, target: Target, text: ProofText, out: Path) -> None:
    """Export a model that the target can express, and prove it.

    Args:
        folder: of the model
        target: what it is exported to
        text: the sentences of the proof
        out: the folder to make

    Raises:
        UserError: the proof fails, and nothing is written; or the folder has other files.
    """

    def fill(part: Path) -> tuple[ExportTable, str]:
        return prove_and_fill(folder, target, text, part, out)

    keep_freed_memory()
    write_export(out, fill)


def prove_and_fill(
    folder: ModelFolder, target: Target, text: ProofText, part: Path, out: Path
) -> tuple[ExportTable, str]:
    """Write the target's files into a temporary folder; raise UserError if their proof fails.

    Returns:
        what vaswani.json says, and the card
    """
    load_plugin()
    packed = Translator(folder, device="cpu", user_dir=target.user_dir)
    proof = Proof(text, target.quantization, packed)
    table = describe_export(folder, target, proof)
    if folder.subword_model:
        for name in to_huggingface.names_of_subword_model(folder, target.name):
            shutil.copyfile(folder.subword_model, part / name)
    exported = convert(folder, target, table, part)
    if exported:
        proof.compare(exported)
        proof.print_and_check(target.name)
        table = replace(table, proof=proof.to_json())
        if target.name == "huggingface":
            versions = {name: version(name) for name in ("transformers", "torch")}
            table = replace(table, versions=versions)
    else:
        print(NOT_COMPARED, file=sys.stderr)
        if proof.packed_search != proof.exported_search:
            print(proof.other_rule(), file=sys.stderr)
    comparison = proof.lines() if exported else []
    return table, export_card(table, folder, out, comparison, target.user_dir)


def describe_export(folder: ModelFolder, target: Target, proof: Proof) -> ExportTable:
    """Return the content of vaswani.json, except for the proof."""
    config = folder.config
    return ExportTable(
        target=target.name,
        quantization=target.quantization,
        text=folder.table.text,
        source_lengths=folder.table.source_lengths,
        generation=proof.generation(folder.generation),
        limits=Limits(config.max_source_positions, config.max_target_positions),
        origin={**folder.table.origin, "packed_config_sha256": folder.table_sha256},
        license=licence_of(folder),
        scores=folder.table.scores,
    )


def convert(
    folder: ModelFolder, target: Target, table: ExportTable, part: Path
) -> Translator | None:
    """Write the target's files, and return a translator that uses them, to be compared.

    None for huggingface where there is no transformers.
    """
    if target.name == "ctranslate2":
        to_ctranslate2.write_model(folder, folder.parameters(), part, target.quantization)
        sums = {path.name: "" for path in part.iterdir()}
        exported = ExportedModel.of_table(part, table, sums)
        return Translator(exported, engine=CTranslate2Engine(exported, device="cpu", workers=1))
    folder = replace(folder, generation=table.generation)
    if target.name == "fairseq":
        to_fairseq.write_checkpoint(folder, folder.parameters(), part)
        for lang in folder.langs:
            shutil.copyfile(folder.dictionary(lang), part / folder.dictionary(lang).name)
        return Translator(folder, engine=to_fairseq.engine_of(part))
    to_huggingface.write_model(folder, folder.parameters(), part)
    if find_spec("transformers") is None:
        return None
    return Translator(folder, engine=to_huggingface.MarianEngine(folder, part))
