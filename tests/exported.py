"""Small packed models that do end their sentences, and text to check an export with."""

import json
import random
import shutil
from pathlib import Path
from typing import Any, List

import torch
from fairseq.data import Dictionary

from tests import packed
from tests.models import small_model, task
from transformer_plugin.model import VaswaniTransformerModel
from vaswani.packed import model_folder
from vaswani.packed.text_recipe import TextRecipe

RECIPE = TextRecipe("en", "de", tokeniser="none", bpe=None)


def train(
    model: VaswaniTransformerModel, known: Dictionary, updates: int = 300, lr: float = 5e-3
) -> None:
    """Teach a model to copy sentences, and so to end them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    model.train()
    for _ in range(updates):
        words = torch.randint(known.nspecial, len(known), (16, int(torch.randint(2, 9, ()))))
        end = words.new_full((16, 1), known.eos())
        source, previous = torch.cat([words, end], 1), torch.cat([end, words], 1)
        logits, _ = model(source, None, previous)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), source.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


def pack(folder: Path, search: Any = None, **options: Any) -> Path:
    """Pack a small model trained for a second; returns the folder.

    Args:
        folder: the folder to make
        search: changes to the section ``generation``
        options: the model's options
    """
    known = packed.dictionary()
    sizes = {"encoder_embed_dim": 32, "decoder_embed_dim": 32}
    sizes.update(encoder_layers=1, decoder_layers=1)
    model = small_model(0, task(known, known), **{**sizes, **options})
    train(model, known)
    packed.write(folder, model, RECIPE, known)
    if search:
        change(folder, "generation", **search)
    return folder


def change(folder: Path, section: str, **values: Any) -> None:
    """Change config.json (or vaswani.json), including its hash."""
    name = next(n for n in ("vaswani.json", "config.json") if (folder / n).is_file())
    table = json.loads((folder / name).read_text())
    (table[section] if section else table).update(values)
    (folder / name).write_text(json.dumps(table))
    renew(folder, name)


def renew(folder: Path, name: str) -> None:
    """Put a file's new hash into the list of hashes, as somebody might."""
    sums = model_folder.read_sums(folder / "SHA256SUMS")
    sums[name] = model_folder.sha256_of(folder / name)
    (folder / "SHA256SUMS").write_text("".join(f"{h}  {n}\n" for n, h in sums.items()))


def sentences(count: int = 24) -> List[str]:
    """Sentences of the models' words; the last one has an unknown word."""
    rng = random.Random(1)
    made = [" ".join(rng.choices(packed.WORDS, k=rng.randint(2, 8))) for _ in range(count - 1)]
    return [*made, "the elephant sees 2 ."]


def packed_like(model: Path, folder: Path, **search: Any) -> Path:
    """A copy of a packed model with other search options; returns the folder."""
    shutil.copytree(model, folder)
    change(folder, "generation", **search)
    return folder
