"""examples/train.py makes the parameters that fairseq-train makes, to the last bit, on one thread.

The loop is the paper's. fairseq's differs in the lines below and in no other; once they are
replaced, every parameter after 8 updates is the same.
"""

import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from tests import stock
from tests.conftest import preprocess
from transformer_plugin.optimizer import EpsilonHatAdam as EpsilonHatAdam
from vaswani.common.environment import environment
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.fast.chunked_loss import projected_loss

LOOP = Path(__file__).resolve().parents[2] / "examples" / "train.py"
UPDATES = 8

FAIRSEQS = {
    # the order of pairs and of batches comes from NumPy, with a seed of its own for each epoch (in
    # 0.12.2 that of pairs with the same one in all)
    "    numbers = random.Random(seed)\n    order = numbers.sample(pairs, len(pairs))\n": """\
    numbers = numpy.random.RandomState(seed)
    of_pairs = numpy.random.RandomState(SEED if OFFICIAL else seed)
    order = [pairs[n] for n in of_pairs.permutation(len(pairs))]
""",
    # batches have a multiple of eight pairs, if they have more than eight (in 0.12.2 not the last)
    "    groups: list[list[Pair]] = [[]]\n": "    return fairseqs_batches(order, numbers)\n",
    # in a batch, long sources come first
    "    sources, targets = zip(*pairs, strict=True)\n": """\
    lengths = torch.tensor([len(source) for source, _ in pairs])
    sources, targets = zip(*[pairs[n] for n in lengths.argsort(descending=True)], strict=True)
""",
    # the source is padded on the left
    "    return Batch(padded(sources), ": "    return Batch(padded_on_the_left(sources), ",
    # every update has its own seed for dropout
    "        model.train()\n": "        model.train(); torch.manual_seed(SEED + step - 1)\n",
    # gradients, not the loss, are divided by the number of tokens
    "        (loss / tokens).backward()\n": """\
        loss.backward()
        for parameter in model.parameters():
            parameter.grad *= 1 / tokens
""",
    # ε is added to √v before the correction of v, as at the end of section 2 of Kingma and Ba
    "        adam.step()\n": """\
        adam.param_groups[0]["eps"] = 1e-9 / (1 - 0.98**step) ** 0.5
        adam.step()
""",
    # the kernel of --optimizer vaswani_adam
    "eps=1e-9)\n": "eps=1e-9, **KERNEL)\n",
}


HELPERS = """
def fairseqs_batches(order, numbers):
    '''As batch_by_size of fairseq cuts them.'''
    found = []
    while order:
        size = 1
        while size < len(order) and fits(order[: size + 1]):
            size += 1
        if size < len(order) or not OFFICIAL:
            size = size // 8 * 8 or size
        found.append(order[:size])
        del order[:size]
    numbers.shuffle(found)
    return iter(found)


def padded_on_the_left(rows):
    longest = max(map(len, rows))
    return torch.tensor([[PAD] * (longest - len(row)) + row for row in rows])
"""


def loop() -> Any:
    """Execute examples/train.py as a module, with these lines in place of its own."""
    source = LOOP.read_text(encoding="utf-8")
    for ours, theirs in FAIRSEQS.items():
        assert source.count(ours) == 1, ours
        source = source.replace(ours, theirs)
    module = types.ModuleType("loop")
    vars(module).update(__file__=str(LOOP), numpy=numpy, KERNEL=kernel())
    module.OFFICIAL = "fairseq-fixed" not in environment()["versions"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(LOOP.parent))  # train_text.py is beside it
        exec(compile(source + HELPERS, str(LOOP), "exec"), vars(module))
    return module


def kernel() -> dict[str, bool]:
    """Return the option of torch's kernel that vaswani_adam uses; 2.2 has no fused one on a CPU."""
    return EpsilonHatAdam([torch.nn.Parameter(torch.ones(1))]).implementation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepare 100 pairs of random words, as 'vaswani prepare' leaves them.

    They are so few that 8 updates are several epochs, and that batches have padding on both sides.
    """
    folder = tmp_path_factory.mktemp("data")
    (folder / "bpe").mkdir()
    numbers = random.Random(1)
    for part, count in (("train", 100), ("valid", 2), ("test", 2)):
        for language in ("en", "de"):
            rows = [numbers.choices(range(200), k=numbers.randint(3, 40)) for _ in range(count)]
            lines = "".join(" ".join(map(str, row)) + "\n" for row in rows)
            (folder / "bpe" / f"{part}.{language}").write_text(lines, encoding="utf-8")
    preprocess(folder / "bpe", folder / "data-bin", "--joined-dictionary")
    return folder


def by_fairseq(folder: Path, save_dir: Path, config: Any, **options: Any) -> dict[str, Tensor]:
    """Return the parameters after fairseq-train with the plugin."""
    sizes = {name: value for name, value in vars(config).items() if value}
    given = {
        **{name: value for name, value in sizes.items() if "positions" not in name},
        "max_update": UPDATES,
        "update_epoch_batch_itr": True,  # new batches in each epoch
        "seed": 1,
        **options,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    flags += ["--disable-validation", "--no-epoch-checkpoints", "--max-tokens=1024"]
    flags += ["--task=vaswani_translation"]
    recipe = [*stock.OURS, "--optimizer=vaswani_adam", "--warmup-updates=500"]
    model = ["--arch=vaswani_transformer_tiny"]
    stock.train(folder / "data-bin", save_dir, *flags, model=model, recipe=recipe)
    return stock.parameters(save_dir / "checkpoint_last.pt")


def by_the_loop(
    train: Any, folder: Path, prepare: Callable[[Any], Any] = lambda model: model
) -> dict[str, Tensor]:
    """Return the parameters after the loop's updates; ``prepare`` may change the new model."""
    corpus = train.prepared_text(folder)
    torch.manual_seed(train.SEED)
    model = prepare(train.Transformer(train.CONFIG, len(corpus.vocabulary), len(corpus.vocabulary)))
    steps = [step for step, _ in train.train(model, corpus.train, UPDATES)]
    assert steps == list(range(1, UPDATES + 1))
    return model.state_dict()


def different(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, float]:
    """Return the greatest difference in each tensor that is not equal."""
    assert ours.keys() == theirs.keys()
    return {
        name: float((ours[name] - tensor).abs().max())
        for name, tensor in theirs.items()
        if not torch.equal(ours[name], tensor)
    }


def test_the_loop_makes_fairseqs_parameters(folder, tmp_path) -> None:
    train = loop()
    theirs = by_fairseq(folder, tmp_path, train.CONFIG, attention_impl="readable")
    assert different(by_the_loop(train, folder), theirs) == {}
    train.SEED = 2  # else nothing may have been compared
    assert len(different(by_the_loop(train, folder), theirs)) == len(theirs)


def test_two_replacements_make_the_loop_fast(folder, tmp_path) -> None:
    """``use_fast_kernels`` and a loss without logits: equal to fairseq-train's default."""
    train = loop()

    def summed_losses(model, batch):
        features, _ = model.decoder.features(batch.shifted, model.encoder(batch.source))
        real = batch.target.ne(train.PAD)
        weight = model.decoder.output_projection.weight
        sums = projected_loss(features[real], weight, batch.target[real], train.SMOOTHING)
        return sums.loss, sums.nll

    train.summed_losses = summed_losses
    theirs = by_fairseq(folder, tmp_path, train.CONFIG)
    assert different(by_the_loop(train, folder, use_fast_kernels), theirs) == {}
