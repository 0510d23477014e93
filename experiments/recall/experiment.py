"""Recall: how many pairs does a system remember, with attention and without?

Multi-query recall, as in Arora et al. (2023, arXiv:2312.04927). The source is k pairs of a key and
a name, the target the same keys in another order, each followed by its name::

    k3 n7 k1 n2 k9 n7   →   k9 n7 k3 n7 k1 n2          k = 3

The keys of a sentence are different, and each key's name is drawn among 64. A batch has new
sentences of one k, which is log-uniform from 1 to 64. A training begins with 4 keys and 4 names.
Both double, up to 64, as soon as 98 % of the last 200 updates' names are right, or after 2,000
updates: each system goes on at its own pace, and every one is trained with all keys in the end.
(With all keys from the start none of three had learned it after 4,000 updates.)
Only the names are learned and scored, with the right words before them. What a system knows of the
source when it writes is its state: as many floats for any k in an LSTM without attention, one
vector for each word of the source where there is attention.

The layers are those of vaswani_transformer and examples/user_dirs/recurrent, trained by one short
loop. Each system is trained at each of ``RATES``; the best, on sentences set aside (of those that
end alike, the one that is first at 90 %), is trained with another seed. A training ends early when
99.9 % of the names are right three times in a row.
"""

import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from experiments.harness import HERE, Experiment, Row, stem
from experiments.intervals import mean_text
from experiments.pictures import figure_of, save_figure
from experiments.records import PICTURE, Record
from experiments.tables import Table
from vaswani.common.environment import environment
from vaswani.common.files import atomic_write, read_json
from vaswani.experiment.plugin import load_user_dir
from vaswani.experiment.run_record import STATISTICS
from vaswani_transformer import Transformer, TransformerConfig
from vaswani_transformer.fast import use_fast_kernels
from vaswani_transformer.initialisation import initialise
from vaswani_transformer.vocabulary import PAD

RUNS = Path("runs/recall")
KEYS = NAMES = 64
FIRST = 4
"""The first key, after the special symbols; the names follow the keys."""
TYPES = FIRST + KEYS + NAMES
TOKENS = 2048
"""Of source and target, in a batch."""
UPDATES, WARMUP, VALIDATE = 16_000, 400, 200
SEEDS = 2
LEARNED = 99.9
"""Per cent: a training ends after three validations with as much."""
ASKED = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""The k of validation and test."""
VALID, TEST = 1001, 1002
"""Their seeds; a training's is from 1 to ``SEEDS``."""
WIDTH = 64
FEW = 4
"""So many keys, and names, there are at first."""
ENOUGH, PATIENCE = 98.0, 2000
"""They double when so many per cent of the names are right, or after so many updates."""


class System(NamedTuple):
    """One of the systems compared.

    Attributes:
        build: makes a model that takes source and target, as fairseq's and ours do
        floats: what it knows of a source of k pairs, in numbers
    """

    build: Callable[[], nn.Module]
    floats: Callable[[int], int]


def example(name: str) -> Any:
    """A module of examples/, imported as fairseq imports a user-dir: once."""
    load_user_dir(str(HERE.parent / "examples" / "user_dirs" / name))
    return importlib.import_module(name)


class Sequential(nn.Module):
    """A recurrent encoder and decoder as one module: source and target to logits."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        recurrent = example("recurrent")
        cfg = recurrent.RecurrentConfig(embed_dim=WIDTH, dropout=0.0, **changes)
        tokens = nn.Embedding(TYPES, WIDTH, PAD)
        nn.init.normal_(tokens.weight, std=WIDTH**-0.5)
        self.encoder = recurrent.RecurrentEncoder(cfg, None, tokens)
        self.decoder = recurrent.RecurrentDecoder(cfg, None, tokens)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[B, S], [B, T] → logits [B, T, V]."""
        return self.decoder(target, self.encoder(source))[0]


def transformer(relative: bool = False) -> nn.Module:
    """The paper's model; ``relative``: with relative_positions' self-attention."""
    sizes = {"layers": 2, "embed_dim": WIDTH, "ffn_embed_dim": 256, "attention_heads": 4}
    both: dict[str, Any] = {
        f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()
    }
    model = Transformer(TransformerConfig(**both, dropout=0.0), TYPES, TYPES)
    if relative:
        attention = example("relative_positions").RelativeSelfAttention
        for layer in [*model.encoder.layers, *model.decoder.layers]:
            layer.self_attention = attention(WIDTH, 4, max_distance=16)
        initialise(model, "fairseq")
    return use_fast_kernels(model)


def lstm(hidden_size: int, score: str = "none") -> System:
    """An LSTM; its state is h and c of two layers, and with attention what the encoder made."""
    state, each = 2 * 2 * hidden_size, 0 if score == "none" else 2 * hidden_size
    return System(
        lambda: Sequential(hidden_size=hidden_size, attention_score=score),
        lambda k: state + k * each,
    )


SYSTEMS = {
    "LSTM": lstm(96),
    "LSTM, half the state": lstm(48),
    "LSTM, dot attention": lstm(92, "dot"),
    "ours": System(transformer, lambda k: 2 * k * WIDTH),
    "ours, relative positions": System(lambda: transformer(relative=True), lambda k: 2 * k * WIDTH),
}


COMMON_RATES = (0.001, 0.003, 0.009)
RATES: dict[str, tuple[float, ...]] = dict.fromkeys(SYSTEMS, COMMON_RATES)
RATES["ours"] = (0.0003, *COMMON_RATES)
RATES["LSTM"] = (*COMMON_RATES, 0.027)
RATES["LSTM, dot attention"] = (0.003, 0.009)
RATES["ours, relative positions"] = (0.003,)
"""Those that were tried, one beyond each edge where the best of a system lay there."""


# ---- sentences ---------------------------------------------------------------------------------


Batch = tuple[Tensor, Tensor]


def sentences(count: int, k: int, dice: torch.Generator, types: int = KEYS) -> Batch:
    """Sources and targets of k pairs [count, 2k]; the odd words are the names.

    Args:
        types: how many of the keys may occur, and how many of the names
    """
    keys = torch.rand(count, types, generator=dice).argsort(1)[:, :k] + FIRST
    names = torch.randint(types, (count, k), generator=dice) + FIRST + KEYS
    order = torch.rand(count, k, generator=dice).argsort(1)
    source = torch.stack([keys, names], dim=2)  # [count, k, 2]
    target = source.gather(1, order[:, :, None].expand_as(source))
    return source.flatten(1), target.flatten(1)


def batches_of(sizes: Sequence[int], seed: int) -> list[Batch]:
    """One batch for each k, of ``TOKENS`` or a little less."""
    dice = torch.Generator().manual_seed(seed)
    return [sentences(TOKENS // (4 * k), k, dice) for k in sizes]


def log_uniform(most: int, dice: torch.Generator) -> int:
    """k from 1 to the most."""
    return int((most + 1) ** torch.rand((), generator=dice))


def names_and_logits(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """The names asked for [B, k], and what the model makes of the keys before them [B, k, V]."""
    source, target = batch
    return target[:, 1::2], model(source, target[:, :-1])[:, ::2]


# ---- training ----------------------------------------------------------------------------------


def rate_at(update: int, peak: float) -> float:
    """A linear warm-up, then the inverse square root (5.3)."""
    return peak * min(update / WARMUP, (WARMUP / update) ** 0.5)


def correct_names(model: nn.Module, data: list[Batch]) -> dict[int, tuple[int, int]]:
    """For each k, how many of the names are the likeliest, and of how many."""
    counts: dict[int, tuple[int, int]] = {}
    model.eval()
    with torch.no_grad():
        for batch in data:
            names, logits = names_and_logits(model, batch)
            k, hits = names.size(1), int((logits.argmax(-1) == names).sum())
            before = counts.get(k, (0, 0))
            counts[k] = (before[0] + hits, before[1] + names.numel())
    model.train()
    return counts


def share(counts: Iterable[tuple[int, int]]) -> float:
    """The per cent that is right in all."""
    hits, names = map(sum, zip(*counts, strict=True))
    return 100 * hits / names


def learn(model: nn.Module, rate: float, seed: int) -> Iterator[dict[str, Any]]:
    """Train; yields what is right of the validation every ``VALIDATE`` updates."""
    valid = batches_of(ASKED, VALID)
    dice = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    types, since, learned = FEW, 0, 0
    seen: list[tuple[int, int]] = []
    for update in range(1, UPDATES + 1):
        optimizer.param_groups[0]["lr"] = rate_at(update, rate)
        k = log_uniform(types, dice)
        batch = sentences(TOKENS // (4 * k), k, dice, types)
        names, logits = names_and_logits(model, batch)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), names.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen.append((int((logits.argmax(-1) == names).sum()), names.numel()))
        if update % VALIDATE:
            continue
        now, trained_on = share(correct_names(model, valid).values()), share(seen)
        yield {"update": update, "keys": types, "right in training": trained_on, "right": now}
        seen, learned = [], learned + 1 if now >= LEARNED else 0
        if learned == 3:
            return
        if types < KEYS and (trained_on >= ENOUGH or update - since >= PATIENCE):
            types, since = 2 * types, update


def run_of(name: str, rate: float, seed: int) -> Path:
    """The folder of a training."""
    return RUNS / f"{stem(name)}_rate{rate:g}_seed{seed}"


def finished(name: str, rate: float, seed: int) -> dict[str, Any]:
    """The figures of a training that has ended; none if it has not."""
    return read_json(run_of(name, rate, seed) / "result.json")


def train_or_load(name: str, rate: float, seed: int) -> dict[str, Any]:
    """A training's figures; what was trained before is not trained again."""
    done = finished(name, rate, seed)
    if done:
        return done
    torch.set_num_threads(1)
    system, run = SYSTEMS[name], run_of(name, rate, seed)
    run.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model, curve, begun = system.build(), [], time.perf_counter()
    for line in learn(model, rate, seed):
        curve.append(line)
        print(f"{run.name}: {json.dumps(line)}", file=sys.stderr, flush=True)
    lines = "".join(json.dumps(line) + "\n" for line in curve)
    (run / STATISTICS).write_text(lines, encoding="utf-8")
    facts = environment()
    correct = correct_names(model, batches_of(8 * ASKED, TEST))
    figures = {
        "run": str(run),
        "rate": rate,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "floats": {k: system.floats(k) for k in ASKED},
        "updates": curve[-1]["update"],
        "seconds": time.perf_counter() - begun,
        "validation": curve[-1]["right"],
        "updates to 90 %": next((line["update"] for line in curve if line["right"] >= 90), None),
        "accuracy": {k: share([counts]) for k, counts in correct.items()},
        "cpu": facts["cpu"],
        "commit": facts["commit"],
    }
    with atomic_write(run / "result.json") as stream:
        json.dump(figures, stream, indent=1)
    return finished(name, rate, seed)


def sort_key(run: dict[str, Any]) -> tuple[float, float]:
    """What is smaller for the better training: by validation, then by when it was at 90 %."""
    return -round(run["validation"]), run["updates to 90 %"] or math.inf


def best_rate(name: str) -> float | None:
    """The learning rate of the best training with the first seed; None before all have ended."""
    tried = [finished(name, rate, 1) for rate in RATES[name]]
    if not all(tried):
        return None
    best: float = min(tried, key=sort_key)["rate"]
    return best


class RecallExperiment(Experiment):
    """Its systems, each at the best of its learning rates."""

    @property
    def rows(self) -> list[Row]:
        """The systems."""
        return [Row(name, SEEDS) for name in SYSTEMS]

    def train(self, row: Row, seed: int) -> None:
        """The first seed at every rate, then the others at the best."""
        for rate in RATES[row.name]:
            train_or_load(row.name, rate, 1)
        best = best_rate(row.name)
        assert best is not None
        train_or_load(row.name, best, seed)

    def runs(self, row: Row) -> list[Path]:
        """Those at the best rate."""
        best = best_rate(row.name)
        if best is None:
            return []
        seeds = [seed for seed in range(1, SEEDS + 1) if finished(row.name, best, seed)]
        return [run_of(row.name, best, seed) for seed in seeds]

    def measure(self, run: Path) -> dict[str, Any]:
        """What the training wrote when it ended."""
        return read_json(run / "result.json")

    def describe(self, row: Row) -> dict[str, Any]:
        """The trainings at other rates."""
        best = best_rate(row.name)
        if best is None:
            return {}
        return {"rates": [finished(row.name, r, 1) for r in RATES[row.name] if r != best]}

    def tables(self, record: Record) -> list[Table]:
        """Accuracy by k; then every training."""
        return [accuracy_table(record, ASKED), rate_table(record)]

    def draw(self, record: Record, folder: Path) -> None:
        """Accuracy against k."""
        draw_accuracy(record, folder / PICTURE)


# ---- the record --------------------------------------------------------------------------------


def accuracy_table(record: Record, asked: Sequence[int]) -> Table:
    """Accuracy by k: the mean over the seeds, and each."""
    columns = ["system", "parameters", "floats at k 64", "updates to 90 %"]
    columns += [f"k = {k}" for k in asked]
    lines = []
    for system, row in record["rows"].items():
        runs = row["runs"]
        when = ", ".join(str(run["updates to 90 %"] or "never") for run in runs)
        cells = [system, f"{runs[0]['parameters']:,}", f"{runs[0]['floats']['64']:,}", when]
        for k in asked:
            cells.append(mean_text([run["accuracy"][str(k)] for run in runs], ".1f"))
        lines.append(cells)
    return Table(columns, lines)


def rate_table(record: Record) -> Table:
    """Every training: its rate and seed, and how far it came."""
    lines = []
    for row in record["rows"].values():
        for run in [*row["runs"], *row["rates"]]:
            cells = [Path(run["run"]).name, f"{run['updates']:,}", f"{run['validation']:.1f}"]
            lines.append([*cells, str(run["updates to 90 %"] or "never")])
    return Table(["training", "updates", "right of the validation, %", "to 90 %"], lines)


def draw_accuracy(record: Record, path: Path) -> None:
    """Accuracy against k: the mean of the seeds, and a band over them."""
    figure, axis = figure_of(1, 1, size=(6.4, 3.4))
    for number, (system, row) in enumerate(record["rows"].items()):
        values = [[run["accuracy"][str(k)] for run in row["runs"]] for k in ASKED]
        floats = row["runs"][0]["floats"]
        size = " to ".join(sorted({f"{floats[k]:,}" for k in ("1", "64")}, key=len))
        means = [statistics.mean(each) for each in values]
        label = f"{system} ({size} floats)"
        axis.plot(ASKED, means, "o-", color=f"C{number}", markersize=3, label=label)
        low, high = [min(each) for each in values], [max(each) for each in values]
        axis.fill_between(ASKED, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_xticks(ASKED, [str(k) for k in ASKED])
    axis.set_ylim(-3, 103)
    axis.set_xlabel("k, pairs to remember")
    axis.set_ylabel("names right, %")
    axis.legend(fontsize=7, loc="lower left")
    save_figure(figure, path)


make = RecallExperiment
