"""Takes a packed model elsewhere, with proof.

    vaswani export MODEL --to ctranslate2                      float32
    vaswani export MODEL --to ctranslate2 --quantization int8  or float16, bfloat16
    vaswani export MODEL --to fairseq                          its own transformer, no plugin needed

MODEL is a folder that 'vaswani pack' made, or a run that has one. The same sentences are translated
both ways, and compared; where they differ by more than a tolerance, nothing is left. They are the
first --lines of the test text of the model's run (else of its validation text), or of --text.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from vaswani.ctranslate2_spec import QUANTIZATIONS, import_ctranslate2, refuse_inexpressible
from vaswani.errors import UserError
from vaswani.export_folder import EXPORT, EXPORT_VERSION, EXPORTED, TARGETS
from vaswani.model_folder import (
    CARD,
    CODES,
    CONFIG,
    ModelFolder,
    read_folder,
    write_folder,
    write_json,
)


class Wanted(NamedTuple):
    """What is asked for."""

    model: str
    to: str
    quantization: Optional[str] = None
    out: Optional[str] = None
    text: Optional[str] = None
    reference: Optional[str] = None
    lines: int = 500


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, where to, and the text of the proof."""
    parser.add_argument("model", metavar="MODEL", help="a folder that 'vaswani pack' made, or RUN")
    parser.add_argument("--to", required=True, metavar="TARGET", help=" or ".join(TARGETS))
    parser.add_argument(
        "--quantization", metavar="KIND", help=f"{', '.join(QUANTIZATIONS)} (float32)"
    )
    parser.add_argument("--out", metavar="DIR", help="the folder to make (MODEL-TARGET)")
    parser.add_argument("--text", metavar="FILE", help="sentences of the proof (the run's test)")
    parser.add_argument("--reference", metavar="FILE", help="their translations, for BLEU")
    parser.add_argument(
        "--lines", type=int, default=500, metavar="N", help="of the text (500); 0: all"
    )


def run(args: argparse.Namespace) -> int:
    """Export what the arguments name."""
    wanted = Wanted(**{name: getattr(args, name) for name in Wanted._fields})
    out = export(wanted)
    use = f"vaswani translate {out}" if wanted.to == "ctranslate2" else f"see {out / CARD}"
    print(f"{out}: exported; {use}", file=sys.stderr)
    return 0


def export(wanted: Wanted) -> Path:
    """Export a model; returns the folder.

    Raises:
        UserError: an unknown target, a model that it cannot express, no text for the proof; the
            proof fails. Nothing is left then.
    """
    from vaswani.export_text import check_judgeable, proof_text

    check_options(wanted)
    path = model_folder(wanted.model)
    folder = read_folder(path)
    refuse_inexpressible(folder, wanted.to)
    text = proof_text(path, folder, wanted.text, wanted.reference, wanted.lines)
    name = "-".join([path.name, wanted.to, *filter(None, [wanted.quantization])])
    out = Path(wanted.out) if wanted.out else path.with_name(name)
    check_judgeable(folder, wanted.quantization, text)

    def fill(part: Path) -> None:
        prove_and_fill(folder, wanted, text, part, out)

    write_folder(out, fill, EXPORTED)
    return out


def check_options(wanted: Wanted) -> None:
    """Raises UserError for a target or a quantization that there is none of."""
    if wanted.to not in TARGETS:
        raise UserError(f"--to {wanted.to} is unknown: it may be {' or '.join(TARGETS)}")
    if wanted.quantization and wanted.to != "ctranslate2":
        raise UserError("--quantization is for --to ctranslate2: fairseq knows none")
    if wanted.quantization and wanted.quantization not in QUANTIZATIONS:
        raise UserError(
            f"--quantization {wanted.quantization} is unknown: it may be {', '.join(QUANTIZATIONS)}"
        )
    if wanted.lines < 0:
        raise UserError(f"--lines is {wanted.lines}, but must not be negative (0: all)")
    if wanted.to == "ctranslate2":
        import_ctranslate2()


def model_folder(name: str) -> Path:
    """The folder of a packed model, which may be a run's."""
    for run_folder in (Path(name), Path("runs") / name):
        is_run = (run_folder / "config.yaml").is_file()
        if is_run and (run_folder / "model" / CONFIG).is_file():
            return run_folder / "model"
    return Path(name)


def prove_and_fill(folder: ModelFolder, wanted: Wanted, text: Any, part: Path, out: Path) -> None:
    """Write all of an export into a folder aside; UserError where its proof fails."""
    from vaswani.export_card import export_card
    from vaswani.export_proof import Proof
    from vaswani.fairseq_config import load_plugin
    from vaswani.translator import Translator

    load_plugin()
    proof = Proof(text, wanted.to, wanted.quantization)
    ours = Translator(folder, device="cpu")
    proof.translate_ours(ours)
    table = table_of(folder, wanted, proof)
    if folder.recipe.bpe:
        shutil.copyfile(folder.path / CODES, part / CODES)
    theirs = TO[wanted.to](folder, wanted, table, part)
    proof.compare(theirs, table["generation"])
    proof.tell()
    table["proof"] = proof.table()
    write_json(part / EXPORT, table)
    card = export_card(table, out, proof.lines())
    (part / CARD).write_text(card, encoding="utf-8", newline="\n")


def table_of(folder: ModelFolder, wanted: Wanted, proof: Any) -> Dict[str, Any]:
    """vaswani.json, but for the proof."""
    architecture = folder.config["architecture"]
    return {
        "format": EXPORTED.format,
        "format_version": EXPORT_VERSION,
        "target": wanted.to,
        "quantization": wanted.quantization,
        "text": folder.config["text"],
        "generation": proof.generation(folder.config["generation"]),
        "limits": {
            "source": architecture["max_source_positions"],
            "target": architecture["max_target_positions"],
        },
        "origin": {**folder.config["origin"], "packed_config_sha256": folder.sums["config.json"]},
        "scores": folder.config["scores"],
    }


def to_ctranslate2(folder: ModelFolder, wanted: Wanted, table: Dict[str, Any], part: Path) -> Any:
    """Write CTranslate2's files; returns what translates with them."""
    from vaswani.ctranslate2_spec import write_model
    from vaswani.ctranslate2_translator import CTranslate2Translator

    write_model(folder, folder.parameters(), part, wanted.quantization)
    sums = {path.name: "" for path in part.iterdir()}
    made = ModelFolder(part, table, sums, folder.recipe)
    return CTranslate2Translator(made, device="cpu", workers=1)


def to_fairseq(folder: ModelFolder, wanted: Wanted, table: Dict[str, Any], part: Path) -> Any:
    """Write a checkpoint and dictionaries of fairseq; returns what translates with them."""
    from vaswani.fairseq_export import FairseqTranslator, write_checkpoint

    write_checkpoint(folder, folder.parameters(), part)
    for lang in folder.langs:
        shutil.copyfile(folder.dictionary(lang), part / f"dict.{lang}.txt")
    return FairseqTranslator(folder, part)


TO = {"ctranslate2": to_ctranslate2, "fairseq": to_fairseq}
