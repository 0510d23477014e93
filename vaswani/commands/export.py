"""Exports a packed model to another system, and verifies that it translates the same.

    vaswani export MODEL --to ctranslate2                      float32
    vaswani export MODEL --to ctranslate2 --quantization int8  or float16, bfloat16
    vaswani export MODEL --to fairseq                          its own transformer, no plugin needed
    vaswani export MODEL --to huggingface                      transformers' Marian

MODEL is a folder made by 'vaswani pack', or a run that has one. Both translate the same sentences,
and both give the packed model's translations a probability; if these differ by more than a
tolerance, or too few translations are identical, nothing is written. The sentences are the first
--lines of the run's test text (else its validation text), or of --text. A variant of the paper's
model can be exported to fairseq, which then needs its --user-dir, too. Without transformers
installed an export to huggingface is not compared, and says so.
"""

import shutil
import sys
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import read_json, sha256_of, write_json
from vaswani.common.options import Checked, argument, option
from vaswani.decoding.ctranslate2_engine import CTranslate2Engine
from vaswani.experiment.find import is_run, load_plugin, run_folders
from vaswani.export.to_ctranslate2 import QUANTIZATIONS, refuse_inexpressible
from vaswani.model_folder.folder import (
    CARD,
    CONFIG,
    EXPORT,
    EXPORTED,
    TARGETS,
    ModelFolder,
    read_folder,
    sibling,
    write_folder,
)

NOT_COMPARED = (
    "not compared with the packed model: 'pip install transformers sentencepiece' and export again"
)


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The model, where it goes, and the text of the proof."""

    model: str = argument("MODEL", "a folder that 'vaswani pack' made, or RUN")
    to: str = option(help="what it is exported to", choices=TARGETS, required=True)
    quantization: str | None = option(help="default: float32", choices=QUANTIZATIONS)
    out: str | None = option(metavar="DIR", help="the folder to make (default: MODEL-TARGET)")
    text: str | None = option(
        metavar="FILE", help="sentences for the proof (default: the run's test)"
    )
    reference: str | None = option(metavar="FILE", help="their translations, for BLEU")
    lines: int = option(
        500, "lines of the text to use (default: 500); 0: all", metavar="N", least=0
    )
    user_dir: str | None = option(metavar="DIR", help="defines the model, if it is a variant")


def run(options: Options) -> int:
    """Export what the options name.

    Raises:
        UserError: a model that the target cannot express, no text for the proof, or a failed proof.
            Nothing is written then.
    """
    from vaswani.export.text import proof_text
    from vaswani.export.to_huggingface import refuse_positions

    if options.quantization and options.to != "ctranslate2":
        raise UserError(f"--quantization is for --to ctranslate2: {options.to} has none")
    if options.to == "ctranslate2":
        import ctranslate2  # noqa: F401  (without it there is nothing to begin)
    path = model_folder(options.model)
    folder = read_folder(path)
    variant = folder.config.get("variant")
    if variant and options.to != "fairseq":
        raise UserError(
            f"{path} is a '{variant['arch']}', a variant of the paper's model, "
            f"which {options.to} lacks: export it with --to fairseq --user-dir DIR"
        )
    if not variant:
        refuse_inexpressible(folder, options.to)
    if options.to == "huggingface":
        refuse_positions(folder)
    text = proof_text(path, folder, options.text, options.reference, options.lines)
    end = "".join(f"-{part}" for part in (options.to, options.quantization) if part)
    out = Path(options.out) if options.out else sibling(path, end)
    write_folder(out, lambda part: prove_and_fill(folder, options, text, part, out), EXPORTED)
    use = f"vaswani translate {out}" if options.to == "ctranslate2" else f"see {out / CARD}"
    print(f"{out}: exported; {use}", file=sys.stderr)
    return 0


def model_folder(name: str) -> Path:
    """The folder of a packed model, which may be a run's; UserError if the run has a better one."""
    for folder in run_folders(name):
        if is_run(folder) and (folder / "model" / CONFIG).is_file():
            refuse_unless_best(folder)
            return folder / "model"
    return Path(name)


def refuse_unless_best(run: Path) -> None:
    """Raises UserError if a run's packed model is not its model with the lowest validation loss.

    A run whose checkpoints are gone has no other than the packed one.
    """
    from transformer_plugin.checkpoints import CheckpointError
    from vaswani.experiment.checkpoints import best_of_run

    try:
        best = best_of_run(run)
    except (CheckpointError, UserError):
        return
    origin = read_json(run / "model" / CONFIG).get("origin", {})
    if origin.get("sha256") != sha256_of(best):
        raise UserError(
            f"{run / 'model'} was packed from {origin.get('checkpoint')}, not from {best}: run "
            f"'vaswani pack {run}' first, or name the folder {run / 'model'} to export it"
        )


def prove_and_fill(folder: ModelFolder, options: Options, text: Any, part: Path, out: Path) -> None:
    """Write a whole export into a temporary folder; UserError if its proof fails."""
    from vaswani.decoding.translator import Translator
    from vaswani.export.card import export_card
    from vaswani.export.proof import Proof
    from vaswani.export.to_huggingface import names_of_codes

    load_plugin()
    packed = Translator(folder, device="cpu", user_dir=options.user_dir)
    proof = Proof(text, options.quantization, packed)
    table = table_of(folder, options, proof)
    if folder.codes:
        for name in names_of_codes(folder, options.to):
            shutil.copyfile(folder.codes, part / name)
    exported = convert(folder, options, table, part)
    if exported:
        proof.compare(exported)
        proof.print_and_check(options.to)
        table["proof"] = proof.table()
        if options.to == "huggingface":
            table["versions"] = {name: version(name) for name in ("transformers", "torch")}
    else:
        print(NOT_COMPARED, file=sys.stderr)
        if proof.packed_search != proof.exported_search:
            print(proof.other_rule(), file=sys.stderr)
    write_json(part / EXPORT, table)
    card = export_card(table, folder, out, proof.lines() if exported else [], options.user_dir)
    (part / CARD).write_text(card, encoding="utf-8", newline="\n")


def table_of(folder: ModelFolder, options: Options, proof: Any) -> dict[str, Any]:
    """vaswani.json, except for the proof."""
    architecture = folder.config["architecture"]
    return {
        **EXPORTED.header,
        "target": options.to,
        "quantization": options.quantization,
        "text": folder.config["text"],
        "generation": proof.generation(folder.config["generation"]),
        "limits": {
            "source": architecture["max_source_positions"],
            "target": architecture["max_target_positions"],
        },
        "origin": {**folder.config["origin"], "packed_config_sha256": folder.sums["config.json"]},
    }


def convert(folder: ModelFolder, options: Options, table: dict[str, Any], part: Path) -> Any:
    """Write the target's files; gives what translates with them, to be compared.

    None for huggingface where there is no transformers.
    """
    from vaswani.decoding.translator import Translator
    from vaswani.export import to_ctranslate2, to_fairseq, to_huggingface

    if options.to == "ctranslate2":
        to_ctranslate2.write_model(folder, folder.parameters(), part, options.quantization)
        sums = {path.name: "" for path in part.iterdir()}
        made = ModelFolder(part, table, sums, folder.recipe)
        return Translator(made, engine=CTranslate2Engine(made, device="cpu", workers=1))
    folder = replace(folder, config={**folder.config, "generation": table["generation"]})
    if options.to == "fairseq":
        to_fairseq.write_checkpoint(folder, folder.parameters(), part)
        for lang in folder.langs:
            shutil.copyfile(folder.dictionary(lang), part / f"dict.{lang}.txt")
        return Translator(folder, engine=to_fairseq.engine_of(part))
    to_huggingface.write_model(folder, folder.parameters(), part)
    if find_spec("transformers") is None:
        return None
    return Translator(folder, engine=to_huggingface.MarianEngine(folder, part))
