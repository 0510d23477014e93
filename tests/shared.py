"""What all workers of pytest-xdist share: made once, by the first that asks. Read it; copy it first
to change it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SIZES_PER_SIDE = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2}
SIZES = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in SIZES_PER_SIDE.items()}


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name, which ``make`` fills; other workers wait for it."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    base = base / "shared"
    base.mkdir(exist_ok=True)
    folder, done = base / name, base / f"{name}.done"
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def experiment() -> dict[str, Any]:
    """Return the demo's experiment with a model so small that 6 updates take less than a second.

    With these first weights it says words, and not only the end of the sentence.
    """
    import yaml  # not above: tests/plain has PyTorch alone

    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = "data/digits/data-bin"
    table["model"] = {"_name": "vaswani_transformer_tiny", "init": "t2t", **SIZES}
    table["dataset"]["max_tokens"] = 500
    table["optimization"]["max_update"] = 6
    table["checkpoint"] = {"save_interval_updates": 2, "no_epoch_checkpoints": True}
    return table


def write_workplace(folder: Path, text: Path, data_bin: Path) -> None:
    """Write ``configs/small.yaml``, and its data as ``vaswani prepare`` leaves them."""
    import yaml

    data = folder / "data" / "digits"
    shutil.copytree(data_bin, data / "data-bin")
    for name in ("text", "tok"):
        shutil.copytree(text, data / name)
    recipe = {"source_lang": "en", "target_lang": "de", "tokenised": False, "bpe": 1}
    (data / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (folder / "configs").mkdir()
    (folder / "configs" / "small.yaml").write_text(yaml.safe_dump(experiment()), encoding="utf-8")
