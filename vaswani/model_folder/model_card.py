"""A model folder's README.md: what it is, how it was trained, its scores, how to use it."""

import shlex
from pathlib import Path
from typing import Any, Dict, List


def card(config: Dict[str, Any], found: Any, folder: Path) -> str:
    """The model card, in Markdown.

    Args:
        config: config.json
        found: the :class:`vaswani.model_folder.packing.Packable`
        folder: where the model is packed
    """
    text, source = config["text"], config["origin"]
    pair = f"{text['source_lang']} → {text['target_lang']}"
    parameters = sum(value.numel() for value in distinct(found))
    lines = [
        "---",
        f"language: [{text['source_lang']}, {text['target_lang']}]",
        "library_name: vaswani-transformer",
        "pipeline_tag: translation",
        "tags: [translation, transformer, fairseq]",
        "---",
        "",
        f"# {source.get('data', 'Translation')}: {pair}",
        "",
        "The Transformer of [Attention Is All You Need](https://arxiv.org/abs/1706.03762), "
        f"{parameters / 1e6:,.1f} million parameters, packed by `vaswani pack`.",
        "",
        "## Use",
        "",
        "```sh",
        f"echo TEXT | vaswani translate {shlex.quote(str(folder))}",
        "```",
        "",
        "```python",
        "from vaswani import Translator",
        "",
        f"translator = Translator.from_pretrained({str(folder)!r})",
        'print(translator.translate(["…"])[0].text)',
        "```",
        "",
    ]
    lines += [*sizes(config["architecture"]), *training(config), *score_lines(config["scores"])]
    return "\n".join(lines)


def distinct(found: Any) -> List[Any]:
    """The parameters that are stored."""
    from vaswani.model_folder.folder import SHARED

    tied = not found.architecture["untie_embeddings"]
    return [value for name, value in found.parameters.items() if not (tied and name in SHARED[1:])]


def table_row(*cells: str) -> str:
    """A row of a Markdown table; within a cell, ``|`` is escaped and a line end is a space."""
    escaped = [" ".join(cell.split()).replace("|", r"\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


def sizes(architecture: Dict[str, Any]) -> List[str]:
    """The table of sizes, with the paper's letters."""
    rows = {
        "layers": ("encoder_layers", "decoder_layers"),
        "d_model": ("encoder_embed_dim", "decoder_embed_dim"),
        "d_ff": ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        "heads": ("encoder_attention_heads", "decoder_attention_heads"),
    }
    lines = ["## Model", "", "| | encoder | decoder |", "|---|---|---|"]
    for name, keys in rows.items():
        lines.append(table_row(name, *(str(architecture[key]) for key in keys)))
    tied = "three matrices" if architecture["untie_embeddings"] else "one shared matrix"
    return [*lines, "", f"Embeddings and output: {tied}.", ""]


def training(config: Dict[str, Any]) -> List[str]:
    """Where it comes from, and how its text is prepared and decoded."""
    lines = ["## Training, text and decoding", ""]
    for title, table in (
        ("origin", config["origin"]),
        ("text", config["text"]),
        ("decoding", config["generation"]),
    ):
        listed = ", ".join(f"{name} {value}" for name, value in table.items() if value is not None)
        lines.append(f"- {title}: {listed}")
    return [*lines, ""]


def score_lines(scores: Dict[str, Any]) -> List[str]:
    """The scores with their signatures, or a note that there are none."""
    lines = ["## Scores", ""]
    if not scores:
        return [*lines, "Not scored when it was packed.", ""]
    lines += ["| set | | score | signature |", "|---|---|---|---|"]
    for subset, rows in scores.items():
        for row in rows.values():
            cells = (subset, row["label"], f"{row['score']:.2f}", f"`{row['signature']}`")
            lines.append(table_row(*cells))
    return [*lines, ""]
