"""``vaswani train``: what a run leaves, why it ends, and with what it goes on, or does not."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import yaml

from tests.conftest import preprocess
from transformer_plugin.checkpoints import load_checkpoint
from vaswani.common.options import last_of_each
from vaswani.training import training_progress

DRAW_CURVE = training_progress.draw_curve  # which conftest.py leaves out
#: validation is not to improve: the loss's three digits do not change at such a rate
STANDING_STILL = ("lr_scheduler.lr_factor=1e-12", "dataset.batch_size=40")
RUN = Path("runs/small")


def finished() -> dict:
    return json.loads((RUN / "finished.json").read_text(encoding="utf-8"))


def statistics() -> list[dict]:
    return [json.loads(line) for line in (RUN / "train.jsonl").read_text().splitlines()]


def contents() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (RUN / "checkpoints").iterdir()}


def updates(path: Path) -> int:
    return load_checkpoint(path)["optimizer_history"][-1]["num_updates"]


class Killed(Exception):
    """The process ends here, with nothing more written."""


def stop_after(patch, updates: int, error=Killed) -> None:
    """Make every training fail with an error at the beginning of the update after this many."""
    from fairseq.trainer import Trainer

    step = Trainer.train_step

    def train_step(trainer, *arguments, **options):
        if trainer.get_num_updates() == updates:
            raise error
        return step(trainer, *arguments, **options)

    patch.setattr(Trainer, "train_step", train_step)


# ---- what a run leaves ------------------------------------------------------------------------


def test_a_run_leaves_what_it_promises_and_continues(own_run, cli, monkeypatch):
    """After 6 updates, 8."""
    monkeypatch.setattr(training_progress, "draw_curve", DRAW_CURVE)
    ended = cli("train", "small", "optimization.max_update=8")
    assert "continuing at update 6 on the CPU in fp32" in ended.err and "train.log" in ended.err
    config = yaml.safe_load((RUN / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"]["decoder_ffn_embed_dim"] == 16
    environment = json.loads((RUN / "env.json").read_text(encoding="utf-8"))
    assert {"versions", "commit", "cpu", "command", "data"} <= set(environment)
    assert (environment["device"], environment["precision"]) == ("cpu", "fp32")
    assert environment["tf32"] is False and len(environment["earlier_starts"]) == 1
    lines = statistics()
    assert [line["num_updates"] for line in lines if line["tag"] == "resumed"] == [6]
    assert max(line.get("valid_num_updates", 0) for line in lines) == 8
    assert (RUN / "train.log").read_text(encoding="utf-8").count("done training") == 2
    assert (RUN / "curve.png").is_file()


# ---- why it ends ------------------------------------------------------------------------------

NO_LIMIT = "optimization.max_update=0"
#: 0.00025 at first, 0.00010 after 5 updates
FALLING = ("lr_scheduler.warmup_updates=1", "lr_scheduler.lr_factor=0.001", "dataset.batch_size=40")


@pytest.mark.parametrize(
    ("reason", "overrides", "updates"),
    [
        ("max_epoch", [NO_LIMIT, "optimization.max_epoch=1", "dataset.batch_size=40"], 5),
        ("stop_time_hours", ["optimization.stop_time_hours=1e-9"], 1),
        ("stop_min_lr", [NO_LIMIT, *FALLING, "optimization.stop_min_lr=0.00013"], 5),
        ("patience", ["optimization.max_update=90", "checkpoint.patience=2", *STANDING_STILL], 5),
    ],
)
def test_why_a_training_ended_is_said_and_recorded(workplace, cli, reason, overrides, updates):
    """5 updates an epoch where 40 sentences make a batch: validated at 2, 4 and 5."""
    last = cli("train", "small", *overrides).err.splitlines()[-1]
    assert f"{reason} at update {updates}" in last and "vaswani average runs/small" in last
    found = finished()
    assert (found["reason"], found["num_updates"]) == (reason, updates)
    perplexities = [line["valid_ppl"] for line in statistics() if "valid_ppl" in line]
    assert found["perplexity"] == perplexities[-1]
    assert f"already trained, {updates} update" in cli("train", "small", *overrides).err


@pytest.mark.parametrize(("updates", "continues"), [(1, False), (3, True)])
def test_the_same_command_continues_once_something_is_saved(workplace, cli, updates, continues):
    """Saved at update 2."""
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, updates, KeyboardInterrupt)
        ended = cli("train", "small")
    assert ended.code == 130 and ("the same command continues" in ended.err) == continues


PATIENT = ("optimization.max_update=90", "checkpoint.patience=6", *STANDING_STILL)


def test_patience_survives_a_kill(workplace, cli):
    """Validated at 2, 4, 5, 6, 8, 10, 12 …: without improvement since the first of these.

    Killed again before finished.json, nothing is left to train, until patience is raised.
    """
    for reached in (7, 9):
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, reached)
            with pytest.raises(Killed):
                cli("train", "small", *PATIENT)
    assert cli("train", "small", *PATIENT).code == 0
    assert (finished()["num_updates"], finished()["reason"]) == (12, "patience")
    (RUN / "finished.json").unlink()
    assert "nothing is left to train" in cli("train", "small", *PATIENT).err
    assert (finished()["num_updates"], finished()["reason"]) == (12, "patience")
    assert cli("train", "small", *last_of_each([*PATIENT, "checkpoint.patience=7"])).code == 0
    assert finished()["num_updates"] == 14


def test_a_kill_between_the_last_save_and_finished_json_adds_no_update(own_run, cli):
    (RUN / "finished.json").unlink()
    before = contents()
    assert "nothing is left to train" in cli("train", "small").err
    assert contents() == before and finished()["num_updates"] == 6


# ---- with what it goes on ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resets", "first"),
    [((), 6), (("checkpoint.reset_optimizer=true", "checkpoint.reset_dataloader=true"), 0)],
    ids=["whole", "parameters"],
)
def test_a_restore_file_begins_a_run_once(own_run, cli, resets, first):
    """The same command again goes on with all that the run has trained since."""
    begin = (f"checkpoint.restore_file={RUN.absolute()}/checkpoints/checkpoint_last.pt", *resets)
    for limit in (7, 8):
        assert (
            cli("train", "small", "run=new", *begin, f"optimization.max_update={limit}").code == 0
        )
    lines = Path("runs/new/train.jsonl").read_text().splitlines()
    resumed = [json.loads(line)["num_updates"] for line in lines if '"resumed"' in line]
    assert resumed == [first, 7]


def resumed_at() -> list[int]:
    """Return the updates at which the run was continued."""
    return [line["num_updates"] for line in statistics() if line["tag"] == "resumed"]


def reset_command(reset: str, limit: int = 10) -> list[str]:
    return ["train", "small", f"checkpoint.{reset}=true", f"optimization.max_update={limit}"]


def swap_first_words(path: Path) -> None:
    """Replace the text by another of the same lengths, so that sizes and index stay."""
    text = path.read_bytes()
    path.write_bytes(text[2:4] + text[:2] + text[4:])


@pytest.mark.parametrize(
    "reset",
    [
        "reset_dataloader",
        pytest.param("reset_lr_scheduler", marks=pytest.mark.slow),
        pytest.param("reset_meters", marks=pytest.mark.slow),
    ],
)
def test_a_reset_is_done_once_however_often_the_command_is_stopped(own_run, cli, reset):
    """6 updates before; stopped twice after it, the run ends as if it had not been stopped."""
    shutil.copytree(RUN, "runs/unbroken")
    assert cli(*reset_command(reset), "run=unbroken").code == 0
    for updates in (7, 9):  # saved at 8
        with pytest.MonkeyPatch.context() as patch:
            stop_after(patch, updates)
            with pytest.raises(Killed):
                cli(*reset_command(reset))
    last = cli(*reset_command(reset))
    assert last.code == 0 and f"checkpoint.{reset} was already applied to this run" in last.err
    assert resumed_at() == [6, 6, 8]
    ours, theirs = (
        load_checkpoint(folder / "checkpoints" / "checkpoint_last.pt")
        for folder in (RUN, Path("runs/unbroken"))
    )
    assert all(torch.equal(ours["model"][name], theirs["model"][name]) for name in ours["model"])
    assert [state["optimizer_history"][-1]["num_updates"] for state in (ours, theirs)] == [10, 10]
    assert ours["extra_state"]["train_iterator"] == theirs["extra_state"]["train_iterator"]


def test_a_reset_optimizer_counts_from_0_once(own_run, cli):
    """A job that is requeued often would never end."""
    for limit in (2, 4, 6):
        assert cli(*reset_command("reset_optimizer", limit)).code == 0
    assert resumed_at() == [0, 2, 4]


def test_a_text_that_changes_again_begins_anew_again(own_run, cli):
    """At epoch 1, each time; without the option in between, the next time counts as the first."""
    path = Path("data/digits/data-bin/train.en-de.en.bin")
    for limit in (8, 10):
        swap_first_words(path)
        started = cli(*reset_command("reset_dataloader", limit))
        assert started.code == 0 and "was already applied to this run" not in started.err
    again = cli(*reset_command("reset_dataloader", 12))
    assert "was already applied to this run" in again.err
    assert cli("train", "small", "optimization.max_update=14").code == 0
    anew = cli(*reset_command("reset_dataloader", 16))
    assert anew.code == 0 and "was already applied to this run" not in anew.err


@pytest.mark.parametrize("key", ["restore_file", "finetune_from_model"])
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("encoder_layers=2", "of another architecture (encoder.layers.1."),
        ("decoder_ffn_embed_dim=20", "another size (decoder.layers.0.feed_forward.fc1.bias"),
    ],
)
def test_a_checkpoint_that_does_not_fit_says_where(own_run, cli, key, change, sentence):
    """fairseq's Trainer says only that the architectures should match."""
    path = f"{RUN.absolute()}/checkpoints/checkpoint_last.pt"
    ended = cli("train", "small", "run=other", f"checkpoint.{key}={path}", f"model.{change}")
    last = ended.err.splitlines()[-1]
    assert ended.code == 1 and path in last and sentence in last
    assert not list(Path("runs/other").rglob("*.pt"))


def test_a_checkpoint_of_another_dictionary_says_so(own_run, tiny_text, cli):
    preprocess(tiny_text, Path("padded"), "--joined-dictionary", "--padding-factor", "32")
    path = f"{RUN.absolute()}/checkpoints/checkpoint_last.pt"
    changes = ("run=other", "task.data=padded", f"checkpoint.finetune_from_model={path}")
    ended = cli("train", "small", *changes)
    last = ended.err.splitlines()[-1]
    assert ended.code == 1 and path in last and "trained with another dictionary" in last


def test_what_fairseq_refuses_in_training_is_in_the_log_as_a_whole(workplace, cli):
    """Its sentence on the terminal, after minutes or days; the traceback is not lost."""
    changes = ("lr_scheduler._name=inverse_sqrt", "optimization.lr=[1e-3,1e-4]")
    ended = cli("train", "small", *changes)
    assert ended.code == 1
    assert "Cannot use a fixed learning rate schedule with inverse_sqrt" in ended.err
    assert ended.err.endswith("(in fairseq; runs/small/train.log shows where)\n")
    log = (RUN / "train.log").read_text(encoding="utf-8")
    assert "the training failed" in log and "inverse_square_root_schedule.py" in log


def test_a_restore_file_does_not_replace_what_a_run_has_trained(own_run, cli):
    """For example where the path is written otherwise than in the first command."""
    shutil.copy(RUN / "checkpoints" / "checkpoint_last.pt", "other.pt")
    before = contents()
    ended = cli("train", "small", "checkpoint.restore_file=other.pt", "optimization.max_update=7")
    assert ended.code == 1 and "checkpoints of its own" in ended.err
    assert contents() == before


def test_a_changed_training_text_is_refused(own_run, cli):
    before = contents()
    swap_first_words(Path("data/digits/data-bin/train.en-de.en.bin"))
    ended = cli("train", "small", "optimization.max_update=7")
    assert ended.code == 1 and "train.en-de.en.bin has changed" in ended.err
    assert contents() == before
    again = ("optimization.max_update=7", "checkpoint.reset_dataloader=true")
    assert cli("train", "small", *again).code == 0


def test_a_users_config_yaml_is_not_replaced(workplace, cli):
    """``vaswani train mine/config.yaml`` with ``mine/checkpoints``, or ``run=mine``."""
    Path("mine").mkdir()
    shutil.copy("configs/small.yaml", "mine/config.yaml")
    before = Path("mine/config.yaml").read_bytes()
    ended = cli("train", "mine/config.yaml", "run=./mine")
    assert ended.code == 1 and "mine has config.yaml" in ended.err and "env.json" in ended.err
    assert Path("mine/config.yaml").read_bytes() == before
    assert [path.name for path in Path("mine").iterdir()] == ["config.yaml"]


def test_a_training_that_diverges_ends_in_a_sentence(own_run, cli):
    before = contents()
    ended = cli("train", "small", "lr_scheduler.lr_factor=1e30", "optimization.max_update=9")
    message = ended.err.splitlines()[-1]
    assert ended.code == 1 and "diverged at update 8" in message and "learning rate" in message
    assert "last good checkpoint: runs/small" in message
    after = contents()
    assert {name: after[name] for name in before} == before


@pytest.mark.skipif(find_spec("fairscale") is not None, reason="fairscale is installed")
def test_sharding_without_its_package_is_refused_before_the_training_begins(workplace, cli):
    ended = cli("train", "small", "distributed_training.ddp_backend=fully_sharded")
    assert ended.code == 1
    assert "needs the package 'fairscale'" in ended.err
    assert not (workplace / "runs").exists()
