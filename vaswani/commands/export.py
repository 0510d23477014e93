"""Exports a packed model to another system, and verifies that it translates the same.

    vaswani export MODEL --to ctranslate2                      float32
    vaswani export MODEL --to ctranslate2 --quantization int8  or float16, bfloat16
    vaswani export MODEL --to fairseq                          its own transformer, no plugin needed
    vaswani export MODEL --to huggingface                      transformers' Marian

MODEL is a folder made by 'vaswani pack', or a run that has one. To verify the
export, both models translate the same sentences and compute the probabilities of the packed model's
translations. If the probabilities differ by more than a tolerance, or too few translations are
identical, nothing is written. The sentences are the first --lines of --text, by default of the
run's test text, or of its validation text if there is no test text. A variant of the paper's model
can be exported only to fairseq, and needs --user-dir. Without the package transformers, an export
to huggingface is not verified, and the output says so.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.options import Checked, argument, option
from vaswani.folders.exported_model import TARGETS
from vaswani.folders.model_folder import CARD, ModelFolder, sibling

#: CTranslate2's names of the types that parameters may be stored in
QUANTIZATIONS = ("int8", "float16", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """The model, where it goes, and the text of the proof."""

    model: str = argument("MODEL", "folder written by 'vaswani pack', or a run")
    to: str = option(help="target format", choices=TARGETS, required=True)
    quantization: str | None = option(
        help="type of the stored weights (default: float32)", choices=QUANTIZATIONS
    )
    out: str | None = option(metavar="DIR", help="output folder (default: MODEL-TARGET)")
    text: str | None = option(
        metavar="FILE", help="sentences for verifying the export (default: the run's test set)"
    )
    reference: str | None = option(
        metavar="FILE", help="reference translations of --text; reports the BLEU of both models"
    )
    lines: int = option(
        500, "number of lines to verify with (default: 500); 0: all", metavar="N", least=0
    )
    user_dir: str | None = option(
        metavar="DIR", help="folder that defines the model, if it is a variant of the paper's"
    )


def run(options: Options) -> int:
    """Export the packed model that the options name.

    Raises:
        UserError: a model that the target cannot express, no text for the proof, or a failed proof.
            Nothing is written then.
    """
    from vaswani.export import exporting
    from vaswani.export.text import proof_text

    if options.quantization and options.to != "ctranslate2":
        raise UserError("--quantization works only with --to ctranslate2: leave it out")
    if options.to == "ctranslate2":
        import ctranslate2  # noqa: F401  (without it there is nothing to begin)
    target = exporting.Target(options.to, options.quantization, options.user_dir)
    path = exporting.find_model_folder(options.model)
    folder = ModelFolder.read(path)
    exporting.check_expressible(folder, target)
    text = proof_text(path, folder, options.text, options.reference, options.lines)
    end = "".join(f"-{part}" for part in (options.to, options.quantization) if part)
    out = Path(options.out) if options.out else sibling(path, end)
    exporting.export(folder, target, text, out)
    use = f"vaswani translate {out}" if options.to == "ctranslate2" else f"see {out / CARD}"
    print(f"{out}: exported; {use}", file=sys.stderr)
    return 0
