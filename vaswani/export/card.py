"""An exported model's README.md: how to use it, and its proof."""

import shlex
from pathlib import Path
from typing import Any, Dict, List

from vaswani.model_folder.folder import CODES


def export_card(table: Dict[str, Any], folder: Path, proof: List[str]) -> str:
    """The card, in Markdown.

    Args:
        table: vaswani.json
        folder: the export's folder
        proof: the lines of the comparison
    """
    text, origin = table["text"], table["origin"]
    pair = f"{text['source_lang']} → {text['target_lang']}"
    name = {"ctranslate2": "CTranslate2", "fairseq": "fairseq's `transformer`"}[table["target"]]
    stored = table["quantization"] or "float32"
    use = ctranslate2_use if table["target"] == "ctranslate2" else fairseq_use
    lines = [
        f"# {origin.get('data', 'Translation')}: {pair}, for {name} ({stored})",
        "",
        "Exported by `vaswani export` from a packed model.",
        "",
        *use(table, str(folder)),
        "## Proof",
        "",
        "The same sentences, translated by the packed model and by this one:",
        "",
        "```",
        *proof,
        "```",
        "",
    ]
    if table["quantization"] in ("float16", "bfloat16"):
        lines += [f"If a CPU lacks {stored}, CTranslate2 computes in float32, as here.", ""]
    return "\n".join(lines)


def ctranslate2_use(table: Dict[str, Any], folder: str) -> List[str]:
    """How to translate with CTranslate2."""
    return [
        "```sh",
        "pip install ctranslate2",
        f"echo TEXT | vaswani translate {shlex.quote(folder)}",
        "```",
        "",
        "Other programs load the folder with `ctranslate2.Translator` and give it tokens: how to "
        f"prepare the text is in `vaswani.json`{codes(table)}.",
        "",
    ]


def fairseq_use(table: Dict[str, Any], folder: str) -> List[str]:
    """How to translate with fairseq's commands."""
    text = table["text"]
    return ["```sh", *interactive(table, folder), "```", ""] + (
        ["(The input must be in lower case.)", ""] if text["lowercase"] else []
    )


def interactive(table: Dict[str, Any], folder: str) -> List[str]:
    """The lines of a fairseq-interactive command that reads raw text."""
    text, generation = table["text"], table["generation"]
    where = shlex.quote(folder)
    pair = f"--source-lang {text['source_lang']} --target-lang {text['target_lang']}"
    lines = [f"fairseq-interactive {where} --path {where}/model.pt {pair}"]
    if text["tokeniser"] == "moses":
        dashes = "" if text["split_hyphens"] else " --moses-no-dash-splits"
        lines.append(f"--tokenizer moses{dashes}")
    if text["bpe"]:
        lines.append(f"--bpe subword_nmt --bpe-codes {where}/{CODES}")
    kept = {name: value for name, value in generation.items() if name != "length_penalty"}
    flags = [f"--{name.replace('_', '-')} {value:g}" for name, value in kept.items()]
    lines.append(" ".join(flags))
    return " \\\n    ".join(lines).split("\n")


def codes(table: Dict[str, Any]) -> str:
    """Where the BPE codes are, if there are any."""
    return f", and its BPE codes in `{CODES}`" if table["text"]["bpe"] else ""
