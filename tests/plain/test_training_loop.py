"""examples/train.py: what tests/parity/test_train.py cannot see; and README's example."""

import contextlib
import importlib
import io
import math
import random
import re
import sys
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from vaswani_transformer import Transformer, Vocabulary, base
from vaswani_transformer.schedule import learning_rate

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
README = ROOT / "README.md"
WORDS = [f"w{number}" for number in range(26)]
TYPES = 4 + len(WORDS)


@pytest.fixture(scope="module")
def loop() -> Any:
    """Import the loop as a module."""
    pytest.importorskip("sacrebleu")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        return importlib.import_module("train")


def small_model(d_model: int) -> Transformer:
    torch.manual_seed(1)
    config = base(layers=1, d_model=d_model, d_ff=32, heads=2, dropout=0.3)
    return Transformer(config, TYPES, TYPES)


def pairs(count: int) -> list[tuple[list[int], list[int]]]:
    """Return random sentences; the end of sentence is 2."""
    dice = random.Random(1)
    return [
        ([*dice.choices(range(4, TYPES), k=n % 5 + 1), 2], [*dice.choices(range(4, TYPES), k=3), 2])
        for n in range(count)
    ]


@pytest.mark.paper("5.3")
@pytest.mark.parametrize("d_model", [16, 64])
def test_the_rate_is_that_of_the_models_width(d_model: int, loop: Any) -> None:
    """Adam's first step moves each parameter that has a gradient by the rate."""
    model = small_model(d_model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    ((step, _),) = loop.train(model, pairs(20), updates=1, warmup_steps=10)
    moved = [
        float((parameter - old).abs().max().detach())
        for parameter, old in zip(model.parameters(), before, strict=True)
    ]
    assert step == 1
    assert max(moved) == pytest.approx(learning_rate(1, d_model, 10), rel=1e-3)


def test_the_validation_loss_is_that_of_each_pair_alone(loop: Any) -> None:
    """In bits per token, without dropout, smoothing or padding; and training is not disturbed."""
    model = small_model(16)
    some = pairs(20)
    found = loop.validate(model.train(), some)
    total, tokens = 0.0, 0
    for source, target in some:
        with torch.no_grad():
            logits = model(torch.tensor([source]), torch.tensor([[2, *target[:-1]]]))[0]
        mean = torch.nn.functional.cross_entropy(logits, torch.tensor(target))
        total += mean.item() * len(target)
        tokens += len(target)
    assert found == pytest.approx(total / tokens / math.log(2), rel=1e-5)
    state = torch.random.get_rng_state()
    loop.validate(model, some)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_variant_is_trained_from_its_file(
    loop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """From the command to the score; its class is the one asked for."""
    variant = tmp_path / "variant.py"
    variant.write_text(
        "from vaswani_transformer import Transformer\n"
        "class Mine(Transformer):\n"
        "    def build_final_norm(self):\n"
        "        print('of my own')\n"
        "        return super().build_final_norm()\n"
    )
    some = pairs(10)
    corpus = importlib.import_module("train_text").Corpus(Vocabulary(WORDS), some, some, some)
    monkeypatch.setattr(loop, "demo_text", lambda: corpus)
    sizes = "--layers=1 --d-model=16 --d-ff=16 --heads=2 --updates=2"
    command = ["train.py", *sizes.split(), "--model"]
    monkeypatch.setattr(sys, "argv", [*command, f"{variant}:Mine"])
    loop.main()
    out = capsys.readouterr().out
    assert (
        out.count("of my own") == 2 and "update     2  smoothed loss " in out and "BLEU = " in out
    )
    monkeypatch.setattr(sys, "argv", [*command, str(variant)])
    with pytest.raises(SystemExit, match="give --model FILE:CLASS"):
        loop.main()


@pytest.mark.slow
def test_the_readmes_example_copies_nearly_all() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    torch.manual_seed(1)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(example, {})
    copied, of = map(int, re.findall(r"\d+", said.getvalue()))
    assert copied >= 0.95 * of


# ---- Section 5.3: equation 3 as decimals ------------------------------------------------------


def equation_3(n: int, d_model: int, warmup: int) -> float:
    """Compute the paper's formula in 50 digits."""
    getcontext().prec = 50
    root = Decimal(n).sqrt()
    growing = Decimal(n) / (Decimal(warmup) * Decimal(warmup).sqrt())
    return float(min(1 / root, growing) / Decimal(d_model).sqrt())


@pytest.mark.paper("5.3")
@pytest.mark.parametrize("d_model, warmup", [(512, 4000), (1024, 4000), (64, 7)])
def test_equation_3(d_model: int, warmup: int) -> None:
    for n in (1, 2, 6, 7, 8, 3999, 4000, 4001, 100_000, 300_000):
        expected = pytest.approx(equation_3(n, d_model, warmup), rel=1e-13)
        assert learning_rate(n, d_model, warmup) == expected


def test_known_values() -> None:
    """Worked out by hand for the base model: n = 1, the peak, 100,000; and the big one's peak."""
    assert learning_rate(1, 512) == pytest.approx(1.746928e-7, rel=1e-6)
    assert learning_rate(4000, 512) == pytest.approx(6.988e-4, abs=5e-8)
    assert learning_rate(100_000, 512) == pytest.approx(1.397542e-4, rel=1e-6)
    assert learning_rate(4000, 1024, factor=2.0) == pytest.approx(9.882e-4, abs=1e-7)
