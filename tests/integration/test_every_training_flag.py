"""Each option of fairseq-train that the documentation calls working changes what it should.

What unit tests hold already (the numbers of the model, the loss, Adam and the schedule) is only
seen to arrive here. test_training_options.py has what must not change the result, fine-tuning,
TensorBoard, ``--eval-bleu`` and ``--patience``; test_resume.py has interrupted trainings. Each case
trains, all in `make test-all`.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
import torch
from fairseq.tasks.translation import TranslationTask

from tests import stock
from transformer_plugin.checkpoints import load_checkpoint

pytestmark = pytest.mark.slow
QUICK = ["--disable-validation", "--no-epoch-checkpoints", "--max-update", "2"]


def last(folder: Path) -> Path:
    return folder / "checkpoint_last.pt"


def values(lines: List[str], part: str) -> List[Dict[str, float]]:
    """What ``--log-format json`` logged at the end of each epoch, or of each validation."""
    found = [
        json.loads(line) for line in lines if line.startswith("{") and f'"{part}_loss"' in line
    ]
    return [{name: float(value) for name, value in record.items()} for record in found]


def batches(lines: List[str]) -> int:
    """Batches of an epoch."""
    (count,) = {int(line.split("= ")[1]) for line in lines if line.startswith("grouped total")}
    return count


def test_which_checkpoints_stay(tiny_data_bin, tmp_path) -> None:
    """Three epochs of four updates; one of each kind stays, and none has the optimizer's state."""
    flags = "--save-interval-updates 3 --keep-interval-updates 1 --keep-last-epochs 1 "
    flags += "--keep-best-checkpoints 1 --no-save-optimizer-state --max-epoch 3 "
    flags += "--best-checkpoint-metric nll_loss --maximize-best-checkpoint-metric"
    lines = stock.train(tiny_data_bin, tmp_path, *flags.split(), "--log-format", "json")
    worst = max(record["valid_nll_loss"] for record in values(lines, "valid"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"checkpoint.best_nll_loss_{worst:.4f}.pt",
        *("checkpoint3.pt", "checkpoint_3_9.pt", "checkpoint_best.pt", "checkpoint_last.pt"),
    ]
    state = load_checkpoint(last(tmp_path))
    assert "last_optimizer_state" not in state
    assert state["optimizer_history"][-1]["num_updates"] == 12


@pytest.mark.parametrize(
    "flags,names",
    [
        ("--no-save", set()),
        ("--no-last-checkpoints --save-interval 2", {"checkpoint2.pt", "checkpoint_best.pt"}),
        ("--checkpoint-suffix .part --no-epoch-checkpoints --disable-validation",
         {"checkpoint_last.part.pt"}),
    ],
)  # fmt: skip
def test_which_checkpoints_are_written(flags: str, names: set, tiny_data_bin, tmp_path) -> None:
    stock.train(tiny_data_bin, tmp_path, "--max-epoch", "2", *flags.split())
    assert {path.name for path in tmp_path.iterdir()} == names


def test_when_and_on_what_is_validated(tiny_data_bin, tmp_path, monkeypatch) -> None:
    """Every third update from the sixth on, two parts, two batches of each, of four sentences."""
    sizes: List[int] = []
    original = TranslationTask.valid_step

    def counting(task: Any, sample: Any, *args: Any) -> Any:
        sizes.append(len(sample["id"]))
        return original(task, sample, *args)

    monkeypatch.setattr(TranslationTask, "valid_step", counting)
    log = tmp_path / "log"
    flags = "--validate-interval-updates 3 --validate-after-updates 6 --validate-interval 9 "
    flags += "--valid-subset valid,test --batch-size-valid 4 --max-valid-steps 2 --max-update 10 "
    flags += f"--required-batch-size-multiple 4 --log-format json --log-file {log}"
    lines = stock.train(tiny_data_bin, tmp_path, *flags.split(), "--log-interval", "5")
    found = [record["valid_num_updates"] for record in values(lines, "valid")]
    assert found == [6, 9, 10] == [r["test_num_updates"] for r in values(lines, "test")]
    assert sizes == [4] * 3 * 2 * 3  # fairseq counts batches from 0: one more than asked for
    inner = [json.loads(line) for line in lines if line.startswith("{") and '"num_updates"' in line]
    assert [record["num_updates"] for record in inner] == ["5", "10"]
    assert "valid_nll_loss" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "flags,message,updates",
    [
        ("--max-epoch 1", "done training", 4),
        ("--max-epoch 1 --update-freq 3 --skip-remainder-batch", "skip final residual batch", 1),
        ("--stop-time-hours 0.0000001", "cumulative_training_time", 1),
    ],
)
def test_when_training_stops(
    flags: str, message: str, updates: int, tiny_data_bin, tmp_path
) -> None:
    options = ["--max-update", "20", "--disable-validation", "--no-epoch-checkpoints"]
    lines = stock.train(tiny_data_bin, tmp_path, *options, *flags.split())
    assert any(message in line for line in lines)
    assert load_checkpoint(last(tmp_path))["optimizer_history"][-1]["num_updates"] == updates


def test_the_least_rate_ends_a_training(tiny_data_bin, tmp_path):
    options = ["--max-update", "20", "--disable-validation", "--no-epoch-checkpoints"]
    falling = ["--warmup-updates", "1", "--lr-factor", "0.01", "--stop-min-lr", "0.0009"]
    lines = stock.train(tiny_data_bin, tmp_path, *options, *falling)
    assert any("current learning rate" in line for line in lines)
    assert load_checkpoint(last(tmp_path))["optimizer_history"][-1]["num_updates"] == 4, "epoch 1"


@pytest.fixture(scope="module")
def plain(tiny_data_bin, tmp_path_factory) -> Path:
    """The checkpoint of two updates without any other option."""
    folder = tmp_path_factory.mktemp("plain")
    stock.train(tiny_data_bin, folder, *QUICK)
    return last(folder)


NUMBERS = ["--sentence-avg", "--truncate-source --max-source-positions 4", "--clip-norm 1e-3"]
NUMBERS += [
    *("--batch-size 16", "--seed 3", "--curriculum 1", "--max-tokens 200", "--train-subset valid"),
    *("--source-lang de --target-lang en", "--required-seq-len-multiple 8"),
    *("--label-smoothing 0", "--adam-betas (0.5,0.5)", "--adam-eps 1", "--weight-decay 0.5"),
    *("--warmup-updates 5", "--lr-factor 2", "--d-model 512", "--dropout 0"),
    *("--attention-dropout 0.5", "--activation-dropout 0.5", "--encoder-learned-pos"),
    *("--decoder-learned-pos", "--head-key-dim 4", "--head-value-dim 4", "--layer-norm-eps 0.1"),
    *("--sinusoid-layout t2t", "--sinusoid-layout fairseq", "--attention-impl readable"),
    *("--optimizer vaswani_adam", "--untie-embeddings"),
]


@pytest.mark.parametrize("flags", NUMBERS)
def test_it_arrives_in_what_is_learned(flags: str, plain, tiny_data_bin, tmp_path) -> None:
    stock.train(tiny_data_bin, tmp_path, *QUICK, *flags.split())
    before, after = stock.parameters(plain), stock.parameters(last(tmp_path))
    shapes = [{n: tuple(p.shape) for n, p in found.items()} for found in (before, after)]
    assert shapes[0] != shapes[1] or not all(torch.equal(p, after[n]) for n, p in before.items())


def test_gradients_are_clipped(tiny_data_bin, tmp_path) -> None:
    """``--clip-norm``: fairseq logs the share of updates in which it cut the gradient."""
    flags = [*QUICK, "--log-format", "json", "--clip-norm"]
    for norm, share in (("1e-3", 100), ("1e3", 0)):
        lines = stock.train(tiny_data_bin, tmp_path / norm, *flags, norm)
        assert [record["train_clip"] for record in values(lines, "train")] == [share]


@pytest.fixture(scope="module")
def two_parts(tiny_data_bin, tmp_path_factory) -> Path:
    """A data-bin with ``train1`` and ``valid1`` beside ``train`` and ``valid``."""
    folder = tmp_path_factory.mktemp("parts") / "data"
    shutil.copytree(tiny_data_bin, folder)
    for name in ("train", "valid"):
        for path in folder.glob(f"{name}.*"):
            shutil.copy(path, folder / path.name.replace(name, f"{name}1", 1))
    return folder


def test_parts_of_the_data(two_parts, tmp_path) -> None:
    """All parts of the training data are read, the first ``--upsample-primary`` times as often."""
    flags = [*QUICK, "--max-tokens", "80", "--max-update", "1"]
    counts = {}
    for times in ("1", "3"):
        lines = stock.train(two_parts, tmp_path, *flags, "--upsample-primary", times)
        counts[times] = batches(lines)
        shutil.rmtree(tmp_path)
    assert counts["3"] == pytest.approx(2 * counts["1"], rel=0.1)  # 3 + 1 parts instead of 1 + 1


def test_parts_of_the_validation_set(two_parts, tmp_path) -> None:
    flags = ["--max-update", "1", "--no-save", "--upsample-primary", "1"]
    with pytest.raises(ValueError, match="ignore-unused-valid-subsets"):
        stock.train(two_parts, tmp_path, *flags)
    lines = stock.train(two_parts, tmp_path, *flags, "--ignore-unused-valid-subsets")
    assert not any("valid1" in line for line in lines)
    lines = stock.train(two_parts, tmp_path, *flags, "--combine-valid-subsets")
    assert any("valid1 en-de 20 examples" in line for line in lines)


@pytest.mark.parametrize(
    "flags,epoch,updates",
    [
        ("", 16, 60),
        ("--reset-dataloader", 1, 60),
        ("--reset-optimizer", 16, 0),
        ("--reset-optimizer --reset-lr-scheduler --reset-meters --reset-dataloader", 1, 0),
    ],
)
def test_what_a_restored_training_forgets(
    flags: str, epoch: int, updates: int, tiny_data_bin, trained, tmp_path
) -> None:
    options = ["--restore-file", str(trained), "--max-update", str(updates + 1), "--no-save"]
    options += ["--disable-validation", "--warmup-updates", "100"]
    lines = stock.train(tiny_data_bin, tmp_path, *options, *flags.split(), "--log-format", "json")
    (record,) = values(lines, "train")
    assert record["train_num_updates"] == updates + 1
    assert record["epoch"] == epoch
    # the rate of the next update, by equation 3
    assert record["train_lr"] == pytest.approx(32**-0.5 * (updates + 2) * 100**-1.5, rel=0.01)


def test_the_optimizer_can_be_changed_on_the_way(tiny_data_bin, trained, tmp_path) -> None:
    """``--optimizer-overrides`` reaches what the checkpoint would set."""
    options = ["--restore-file", str(trained), "--max-update", "61", *QUICK[:2]]
    ends = []
    for name, change in (("plain", "{}"), ("decay", '{"weight_decay": 0.5}')):
        options_here = [*options, "--optimizer-overrides", change]
        stock.train(tiny_data_bin, tmp_path / name, *options_here)
        ends.append(last(tmp_path / name))
    assert stock.largest_difference(*ends)[0] > 1e-4


def test_the_moving_average_is_kept(tiny_data_bin, plain, tmp_path) -> None:
    stock.train(tiny_data_bin, tmp_path, *QUICK, "--store-ema", "--ema-decay", "0.5")
    average = load_checkpoint(last(tmp_path))["extra_state"]["ema"]
    learned = stock.parameters(plain)
    assert average.keys() == learned.keys()
    assert not all(torch.equal(average[name], value) for name, value in learned.items())


BLEU: Dict[str, Callable[[List[str]], bool]] = {
    "--eval-bleu-print-samples": lambda lines: any("example hypothesis: " in x for x in lines),
    "--eval-bleu-detok moses": lambda lines: any(" | bleu " in x for x in lines),
    "--eval-tokenized-bleu --eval-bleu-remove-bpe": lambda lines: any(
        " | bleu " in x for x in lines
    ),
}


@pytest.mark.parametrize("flags", BLEU)
def test_bleu_in_validation(flags: str, tiny_data_bin, tmp_path) -> None:
    options = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 4}', "--max-update=1"]
    assert BLEU[flags](stock.train(tiny_data_bin, tmp_path, *options, *flags.split()))


PARTS = {
    **{f"--optimizer {name} --lr-scheduler fixed": "0.01" for name in
       ("sgd", "nag", "adagrad", "adadelta", "adamax", "adafactor", "adam", "vaswani_adam")},
    **{f"--optimizer vaswani_adam --lr-scheduler {name}": "0.01" for name in
       ("inverse_sqrt", "cosine", "polynomial_decay --total-num-update 20", "step",
        "reduce_lr_on_plateau", "tri_stage --phase-ratio (0.1,0.4,0.5)", "triangular --max-lr 1")},
}  # fmt: skip
LOSSES = ["cross_entropy", "label_smoothed_cross_entropy", "vaswani_label_smoothed_cross_entropy"]


@pytest.mark.parametrize(
    "parts,criterion",
    [(parts, LOSSES[-1]) for parts in PARTS] + [(list(PARTS)[-1], loss) for loss in LOSSES[:-1]],
)
def test_fairseqs_parts_train_our_model(parts: str, criterion: str, tiny_data_bin, tmp_path):
    """Every optimizer and schedule that needs no other package with our loss; and its losses."""
    recipe = [*parts.split(), "--lr", PARTS[parts], "--criterion", criterion]
    flags = ["--max-update", "9", "--disable-validation", "--log-interval", "1"]
    lines = stock.train(
        tiny_data_bin, tmp_path, *flags, "--log-format", "json", "--no-save", recipe=recipe
    )
    inner = [json.loads(line) for line in lines if line.startswith("{") and '"loss"' in line]
    assert len(inner) == 9
    assert min(float(step["loss"]) for step in inner[1:]) < float(inner[0]["loss"])
