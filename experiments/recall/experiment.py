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

import json
import math
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from experiments.harness import Experiment, Row, stem
from experiments.intervals import mean_text
from experiments.pictures import figure_of, save_figure
from experiments.recall.systems import FIRST, KEYS, RATES, SYSTEMS
from experiments.records import PICTURE, Record
from experiments.tables import Table
from vaswani.common.environment import environment
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, read_json
from vaswani.folders.run import Run

RUNS = Path("runs/recall")
TOKENS = 2048
"""Of source and target, in a batch."""
UPDATES = 16_000
WARMUP = 400
VALIDATE = 200
SEEDS = 2
LEARNED = 99.9
"""Per cent: a training ends after three validations with as much."""
ASKED = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""The k of validation and test."""
VALID = 1001
"""The seed of the validation; a training's is from 1 to ``SEEDS``."""
TEST = 1002
"""That of the test."""
FEW = 4
"""So many keys, and names, there are at first."""
ENOUGH = 98.0
"""They double when so many per cent of the names are right,"""
PATIENCE = 2000
"""or after so many updates."""

# ---- sentences ---------------------------------------------------------------------------------


Batch = tuple[Tensor, Tensor]


def sentences(count: int, k: int, rng: torch.Generator, types: int = KEYS) -> Batch:
    """Return sources and targets of k pairs, each [count, 2k]; the words at odd places are names.

    Args:
        count: number of sentences
        k: pairs in each
        rng: random generator
        types: how many of the keys may occur, and how many of the names
    """
    keys = torch.rand(count, types, generator=rng).argsort(1)[:, :k] + FIRST
    names = torch.randint(types, (count, k), generator=rng) + FIRST + KEYS
    order = torch.rand(count, k, generator=rng).argsort(1)
    source = torch.stack([keys, names], dim=2)  # [count, k, 2]
    target = source.gather(1, order[:, :, None].expand_as(source))
    return source.flatten(1), target.flatten(1)


def batches_of(sizes: Sequence[int], seed: int) -> list[Batch]:
    """Return one batch for each k, of ``TOKENS`` or a little less."""
    rng = torch.Generator().manual_seed(seed)
    return [sentences(TOKENS // (4 * k), k, rng) for k in sizes]


def log_uniform(most: int, rng: torch.Generator) -> int:
    """Draw k from 1 to ``most``, uniformly on a logarithmic scale."""
    return int((most + 1) ** torch.rand((), generator=rng))


def names_and_logits(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the names asked for [B, k], and the logits of the keys before them [B, k, V]."""
    source, target = batch
    return target[:, 1::2], model(source, target[:, :-1])[:, ::2]


# ---- training ----------------------------------------------------------------------------------


def rate_at(update: int, peak: float) -> float:
    """Return the learning rate: a linear warm-up, then the inverse square root (5.3)."""
    return peak * min(update / WARMUP, (WARMUP / update) ** 0.5)


def correct_names(model: nn.Module, data: list[Batch]) -> dict[int, tuple[int, int]]:
    """Return, for each k, how many names the model finds most probable where they are right.

    Returns:
        k → (number right, number of names)
    """
    counts: dict[int, tuple[int, int]] = {}
    model.eval()
    with torch.no_grad():
        for batch in data:
            names, logits = names_and_logits(model, batch)
            k = names.size(1)
            hits = int((logits.argmax(-1) == names).sum())
            hits_before, names_before = counts.get(k, (0, 0))
            counts[k] = (hits_before + hits, names_before + names.numel())
    model.train()
    return counts


def share(counts: Iterable[tuple[int, int]]) -> float:
    """Return the per cent of right names over all k."""
    hits = 0
    names = 0
    for hits_of_k, names_of_k in counts:
        hits += hits_of_k
        names += names_of_k
    return 100 * hits / names


def learn(model: nn.Module, rate: float, seed: int) -> Iterator[dict[str, Any]]:
    """Train, and yield the right names of the validation every ``VALIDATE`` updates."""
    valid = batches_of(ASKED, VALID)
    rng = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    types = FEW
    types_since = 0
    times_learned = 0
    recent: list[tuple[int, int]] = []
    for update in range(1, UPDATES + 1):
        optimizer.param_groups[0]["lr"] = rate_at(update, rate)
        k = log_uniform(types, rng)
        batch = sentences(TOKENS // (4 * k), k, rng, types)
        names, logits = names_and_logits(model, batch)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), names.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        recent.append((int((logits.argmax(-1) == names).sum()), names.numel()))
        if update % VALIDATE:
            continue
        accuracy = share(correct_names(model, valid).values())
        in_training = share(recent)
        yield {"update": update, "keys": types, "right in training": in_training, "right": accuracy}
        recent = []
        times_learned = times_learned + 1 if accuracy >= LEARNED else 0
        if times_learned == 3:
            return
        if types < KEYS and (in_training >= ENOUGH or update - types_since >= PATIENCE):
            types = 2 * types
            types_since = update


def run_of(name: str, rate: float, seed: int) -> Path:
    """Return the folder of a training."""
    return RUNS / f"{stem(name)}_rate{rate:g}_seed{seed}"


def figures_of(name: str, rate: float, seed: int) -> dict[str, Any]:
    """Return the figures of a finished training; none if it has not finished."""
    return read_json(run_of(name, rate, seed) / "result.json")


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings that all trainings of a system share, as results have them."""
    parameters = sum(p.numel() for p in SYSTEMS[name].build().parameters())
    return {"parameters": parameters, "most updates": UPDATES, "batch": TOKENS, "warmup": WARMUP}


def refuse_other_settings(figures: dict[str, Any], settings: dict[str, Any]) -> None:
    """Raise UserError for a result of other settings; early results name the parameters alone."""
    for setting, value in settings.items():
        trained_with = figures.get(setting, value)
        if trained_with != value:
            raise UserError(
                f"{figures['run']} was trained with {setting} {trained_with:,}, not {value:,}: "
                "rename or remove this folder to have it trained again, or undo the change"
            )


def train_or_load(name: str, rate: float, seed: int) -> dict[str, Any]:
    """Return a training's figures, and train only if there are none.

    Raises:
        UserError: it was trained with other settings.
    """
    figures = figures_of(name, rate, seed)
    if figures:
        refuse_other_settings(figures, settings_of(name))
        return figures
    torch.set_num_threads(1)
    system = SYSTEMS[name]
    run = run_of(name, rate, seed)
    run.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = system.build()
    curve = []
    begun = time.perf_counter()
    for line in learn(model, rate, seed):
        curve.append(line)
        print(f"{run.name}: {json.dumps(line)}", file=sys.stderr, flush=True)
    lines = "".join(json.dumps(line) + "\n" for line in curve)
    Run(run).statistics_file.write_text(lines, encoding="utf-8")
    facts = environment()
    correct = correct_names(model, batches_of(8 * ASKED, TEST))
    figures = {
        "run": str(run),
        "rate": rate,
        "seed": seed,
        **settings_of(name),
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
    return figures_of(name, rate, seed)


def sort_key(run: dict[str, Any]) -> tuple[float, float]:
    """Return a key that sorts better trainings first: by validation, then by the update at 90 %."""
    return -round(run["validation"]), run["updates to 90 %"] or math.inf


def best_rate(name: str) -> float | None:
    """Return the best training's learning rate, of the first seed; None until all have ended."""
    trainings = [figures_of(name, rate, 1) for rate in RATES[name]]
    if not all(trainings):
        return None
    best: float = min(trainings, key=sort_key)["rate"]
    return best


class RecallExperiment(Experiment):
    """Its systems, each at the best of its learning rates."""

    @property
    def rows(self) -> list[Row]:
        """The systems to compare."""
        return [Row(name, SEEDS) for name in SYSTEMS]

    def train(self, row: Row, seed: int) -> None:
        """Train the first seed at every rate, then this seed at the best."""
        for rate in RATES[row.name]:
            train_or_load(row.name, rate, 1)
        best = best_rate(row.name)
        assert best is not None
        train_or_load(row.name, best, seed)

    def runs(self, row: Row) -> list[Path]:
        """Return the runs at the best rate."""
        best = best_rate(row.name)
        if best is None:
            return []
        seeds = [seed for seed in range(1, SEEDS + 1) if figures_of(row.name, best, seed)]
        return [run_of(row.name, best, seed) for seed in seeds]

    def measure(self, run: Path) -> dict[str, Any]:
        """Return the figures that a training wrote at its end."""
        return read_json(run / "result.json")

    def describe(self, row: Row) -> dict[str, Any]:
        """Return the figures of trainings at other rates."""
        best = best_rate(row.name)
        if best is None:
            return {}
        return {"rates": [figures_of(row.name, r, 1) for r in RATES[row.name] if r != best]}

    def tables(self, record: Record) -> list[Table]:
        """Return the table of accuracy by k, and that of every training."""
        return [accuracy_table(record, ASKED), rate_table(record)]

    def draw(self, record: Record, folder: Path) -> None:
        """Draw accuracy against k."""
        draw_accuracy(record, folder / PICTURE)


# ---- the record --------------------------------------------------------------------------------


def accuracy_table(record: Record, sizes: Sequence[int]) -> Table:
    """Return the table of accuracy by k: the mean over the seeds, and each."""
    columns = ["system", "rate", "parameters", "floats at k 64", "updates to 90 %"]
    columns += [f"k = {k}" for k in sizes]
    lines = []
    for system, row in record["rows"].items():
        runs = row["runs"]
        when = ", ".join(str(run["updates to 90 %"] or "never") for run in runs)
        cells = [system, f"{runs[0]['rate']:g}", f"{runs[0]['parameters']:,}"]
        cells += [f"{runs[0]['floats']['64']:,}", when]
        for k in sizes:
            cells.append(mean_text([run["accuracy"][str(k)] for run in runs], ".1f"))
        lines.append(cells)
    return Table(columns, lines)


def rate_table(record: Record) -> Table:
    """Return the table of every training: its rate, its seed, and its accuracy."""
    lines = []
    for row in record["rows"].values():
        for run in [*row["runs"], *row["rates"]]:
            cells = [Path(run["run"]).name, f"{run['updates']:,}", f"{run['validation']:.1f}"]
            lines.append([*cells, str(run["updates to 90 %"] or "never")])
    return Table(["training", "updates", "right of the validation, %", "to 90 %"], lines)


def draw_accuracy(record: Record, path: Path) -> None:
    """Draw accuracy against k: the mean of the seeds, and a band over them."""
    figure, axis = figure_of(1, 1, size=(6.4, 3.4))
    for number, (system, row) in enumerate(record["rows"].items()):
        values = [[run["accuracy"][str(k)] for run in row["runs"]] for k in ASKED]
        floats = row["runs"][0]["floats"]
        size = " to ".join(sorted({f"{floats[k]:,}" for k in ("1", "64")}, key=len))
        means = [statistics.mean(each) for each in values]
        label = f"{system} ({size} floats)"
        axis.plot(ASKED, means, "o-", color=f"C{number}", markersize=3, label=label)
        low = [min(each) for each in values]
        high = [max(each) for each in values]
        axis.fill_between(ASKED, low, high, color=f"C{number}", alpha=0.2, linewidth=0)
    axis.set_xscale("log", base=2)
    axis.set_xticks(ASKED, [str(k) for k in ASKED])
    axis.set_ylim(-3, 103)
    axis.set_xlabel("k, pairs to remember")
    axis.set_ylabel("names right, %")
    axis.legend(fontsize=7, loc="lower left")
    save_figure(figure, path)


make = RecallExperiment
