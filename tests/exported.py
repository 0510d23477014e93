"""Small packed models that know a few sentences, and text to check an export with."""

import functools
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens

from tests import packed
from tests.models import small_model, task
from transformer_plugin.model import VaswaniTransformerModel
from vaswani.folders import model_folder
from vaswani.folders.recipe import TextRecipe

RECIPE = TextRecipe("en", "de", tokeniser="none", subword=None)
#: what the models copy besides sentences()
MORE = ["the house", "the house is big .", "a dog", "the cat sees 1 , 2", "the elephant"]


def train(
    model: VaswaniTransformerModel,
    known: Dictionary,
    updates: int,
    copied: Sequence[str] | None = None,
) -> None:
    """Train a model to copy sentences, by default :func:`sentences` and ``MORE``.

    After 250 updates every token has a probability above 0.99: no two hypotheses are nearly equal,
    and every processor finds the same. With three seeds the least was 0.991 to 0.995, on each of
    three instruction sets (AMX, AVX2 and none of AVX).
    """
    lines = [
        known.encode_line(line, add_if_not_exist=False, append_eos=True).long()
        for line in copied or [*sentences(), *MORE]
    ]
    source = collate_tokens(lines, known.pad(), left_pad=True)
    target = collate_tokens(lines, known.pad())
    previous = collate_tokens([line.roll(1) for line in lines], known.pad())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, foreach=True)
    model.train()
    for _ in range(updates):
        log_probs = model(source, None, previous)[0].log_softmax(-1)
        loss = torch.nn.functional.nll_loss(
            log_probs.flatten(0, 1), target.flatten(), ignore_index=known.pad()
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()


@functools.lru_cache(maxsize=None)
def trained(updates: int, **options: Any) -> VaswaniTransformerModel:
    """Return a model that copies its sentences, trained once in a process."""
    known = packed.dictionary()
    sizes = {"encoder_embed_dim": 32, "decoder_embed_dim": 32}
    sizes.update(encoder_layers=1, decoder_layers=1)
    model = small_model(0, task(known, known), **{**sizes, **options})
    train(model, known, updates)
    return model


def pack(folder: Path, search: Any = None, updates: int = 250, **options: Any) -> Path:
    """Pack a small model that knows its sentences, and return the folder.

    Args:
        folder: the folder to make
        search: changes to the section ``generation``
        updates: fewer leave a model that knows little
        options: the model's options
    """
    packed.write(folder, trained(updates, **options), RECIPE, packed.dictionary())
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


def sentences(count: int = 24) -> list[str]:
    """Return sentences of the models' words; the last one has an unknown word."""
    rng = random.Random(1)
    made = [" ".join(rng.choices(packed.WORDS, k=rng.randint(2, 8))) for _ in range(count - 1)]
    return [*made, "the elephant sees 2 ."]


def packed_like(model: Path, folder: Path, **search: Any) -> Path:
    """Copy a packed model, change its search options, and return the folder."""
    shutil.copytree(model, folder)
    change(folder, "generation", **search)
    return folder
