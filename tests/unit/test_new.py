"""``vaswani new``: an experiment for one's own text, complete, and never over another file."""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests import stock
from tests.conftest import preprocess
from vaswani import cli
from vaswani.experiment.fairseq_config import experiment_config
from vaswani.planning import conditions, fine_tuning, first_experiment
from vaswani.planning import published_settings as published
from vaswani.planning.batching import Batch
from vaswani.planning.conditions import Conditions
from vaswani.planning.training_plan import Hardware, training_plan

PAPERS_WARMUP = 4000


@pytest.fixture
def place(tiny_data_bin, tmp_path, monkeypatch) -> Path:
    """An empty folder with data/mine as ``vaswani prepare`` leaves it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_data_bin, tmp_path / "data" / "mine" / "data-bin")
    return tmp_path


def new(*argv: str) -> int:
    with stock.fresh_process():
        return cli.main(["new", *argv])


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


# ---- the table --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "source"),
    [
        (1, published.SMALL_TEXT),
        (5_000, published.SMALL_TEXT),
        (13_000, published.MULTI30K),
        (29_000, published.MULTI30K),
        (40_000, published.MULTI30K),
        (160_000, published.IWSLT),
        (4_500_000, published.ENGLISH_GERMAN),
        (36_000_000, published.ENGLISH_FRENCH),
    ],
)
def test_each_source_stands_for_as_much_text_as_it_has(pairs, source):
    assert published.settings_for(pairs).source == source


def test_the_papers_settings_are_the_papers():
    """5.1: 25,000 tokens; 5.2: 100,000 and 300,000 updates; 5.3: 4,000; 5.4 and 6.1: P_drop 0.1,
    of big 0.3, of big in French 0.1; 6.1: 5 and 20 checkpoints."""
    german, french = published.settings_for(4_500_000), published.settings_for(36_000_000)
    for settings in (german, french):
        assert settings.batch_tokens == 25_000 and set(settings.warmup) == {PAPERS_WARMUP}
        assert [settings.updates(size, 5_400) for size in ("base", "big")] == [100_000, 300_000]
        assert [published.value_for(size, settings.average) for size in ("base", "big")] == [5, 20]
        assert settings.patience == 0 and settings.weight_decay == 0
    assert [published.value_for(size, german.dropout) for size in ("base", "big")] == [0.1, 0.3]
    assert [published.value_for(size, french.dropout) for size in ("base", "big")] == [0.1, 0.1]


def test_more_text_never_has_more_dropout():
    for preset in published.PRESETS:
        dropout = [published.value_for(preset, settings.dropout) for settings in published.TABLE]
        assert dropout == sorted(dropout, reverse=True)


def test_a_small_text_is_not_over_before_the_warm_up_is():
    settings = published.settings_for(100)
    assert settings.updates("base", 10) == 3 * published.value_for("base", settings.warmup)
    assert settings.updates("tiny", 10) == 3 * published.value_for("tiny", settings.warmup)


# ---- what is written --------------------------------------------------------------------------


def test_the_experiment_is_complete_and_every_choice_has_a_reason(place, capsys):
    assert new("mine", "--data", "data/mine") == 0
    message = capsys.readouterr()
    assert message.out == "mine.yaml\n"
    text = (place / "mine.yaml").read_text(encoding="utf-8")
    config = experiment_config(place / "mine.yaml")
    assert (config.task.source_lang, config.task.target_lang) == ("en", "de")
    assert config.task.data == "data/mine/data-bin" and config.task.length_penalty == "gnmt"
    assert (config.model.encoder_layers, config.model.encoder_embed_dim) == (4, 128)
    assert config.checkpoint.save_dir == "runs/mine/checkpoints"
    assert config.optimization.max_update == 3000 and config.lr_scheduler.warmup_updates == 1000
    given = read(place / "mine.yaml")
    assert given["model"]["init"] == "fairseq"
    assert given["dataset"]["skip_invalid_size_inputs_valid_test"] is True
    assert given["checkpoint"]["keep_last_epochs"] == 10
    for key in ("batch_tokens", "dropout", "init", "warmup_updates", "max_tokens", "max_update"):
        assert re.search(rf"^  # .+\n  {key}: ", text, re.MULTILINE), key
    assert max(map(len, text.splitlines())) <= 100
    commands = ["train mine", "average mine", "generate mine", "score mine", "pack mine"]
    for command in [*commands, "translate runs/mine/model"]:
        assert f"  vaswani {command}\n" in message.err
        assert f"#   vaswani {command}\n" in text


def test_plan_keeps_the_batch_that_was_written(place):
    """Or one that sees as many tokens, as nearly as training wants; it was halved and doubled."""
    assert new("mine", "--data", "data/mine") == 0
    written = read(place / "mine.yaml")["dataset"]["max_tokens"]
    speed = Hardware(tokens_per_second=1000)
    for kept in (written, round(0.97 * written)):
        plan = training_plan("mine", [f"dataset.max_tokens={kept}"], speed)
        assert (plan["max_tokens"], plan["update_freq"]) == (kept, 1)


def test_it_trains_and_a_second_one_begins_with_its_weights(place, capsys):
    """From an average and from a run without one; at the rate at which that run ended."""
    assert new("mine", "--data", "data/mine") == 0
    with stock.fresh_process():
        trained = ["train", "mine", "optimization.max_update=4", "checkpoint.save_interval=1"]
        assert cli.main([*trained, "dataset.validate_interval=1"]) == 0
    for name in ("last", "average"):
        if name == "average":
            assert cli.main(["average", "mine", "--last", "2"]) == 0
            for single in ("best", "last"):  # it has a higher loss than they
                (place / f"runs/mine/checkpoints/checkpoint_{single}.pt").unlink()
        assert new(name, "--data", "data/mine", "--from", "mine") == 0
        given = read(place / f"{name}.yaml")
        start = given["checkpoint"]["finetune_from_model"]
        assert ("average" in start) == (name == "average")
        schedule = given["lr_scheduler"]
        peak = schedule["lr_factor"] * (128 * schedule["warmup_updates"]) ** -0.5
        assert peak == pytest.approx(5 * (128 * 1000**3) ** -0.5, rel=1e-2), "of what came next"
        with stock.fresh_process():
            once = ["train", name, "optimization.max_update=1", "lr_scheduler.lr_factor=1e-9"]
            assert cli.main(once) == 0
        last = place / "runs" / name / "checkpoints" / "checkpoint_last.pt"
        difference, parameter = stock.largest_difference(last, Path(start))
        assert difference < 1e-7, parameter
        with stock.fresh_process():  # goes on from its own
            assert cli.main(["train", name, "optimization.max_update=2"]) == 0
        log = (place / "runs" / name / "train.jsonl").read_text(encoding="utf-8").splitlines()
        assert max(json.loads(line).get("train_num_updates", 0) for line in log) == 2


@pytest.mark.parametrize("an_epoch", [1, 4, 10, 99, 100, 1499, 1500, 40_000])
@pytest.mark.parametrize("source", ["the table", "fine-tuning"])
def test_however_short_a_training_it_saves_checkpoints_to_choose_from(source, an_epoch):
    """Of 100 updates in 10 epochs there was a single one, after the last."""
    entries = (
        [fine_tuning.tuning_settings(2000, 100)] if source == "fine-tuning" else published.TABLE
    )
    for settings in entries:
        for preset in published.PRESETS:
            mine = Conditions(
                *("mine", Path("data/mine"), ("en", "de"), 1000, 0, 16.0),
                *(preset, settings, True, 0, 20, 30),
            )
            batch = Batch(4000, 1, 2000.0, 2000.0, an_epoch, 0)
            given = yaml.safe_load(first_experiment.new_model(mine, batch, 2000))["checkpoint"]
            every = given.get("save_interval_updates") or an_epoch * given["save_interval"]
            saved = settings.updates(preset, an_epoch) // every
            assert saved >= min(10, settings.updates(preset, an_epoch) // an_epoch)


@pytest.mark.parametrize(
    ("recipe", "target", "expected"),
    [
        (None, "ein Haus", ("@@ ", "space", "none")),
        ({"bpe": 8}, "ein Haus", ("@@ ", "moses", "13a")),
        ({"tokenised": True}, "ein Haus", ("@@ ", "space", "none")),
        ({"subword": "sentencepiece"}, "ein Haus", ("sentencepiece", "space", "13a")),
        ({"subword": "sentencepiece"}, "这座房子很古老。", ("sentencepiece", "space", "char")),
        ({"trees": True}, "(S (NP x))", None),
    ],
)
def test_bleu_at_validation_is_of_text_restored_as_the_recipe_says(place, recipe, target, expected):
    """Without a recipe, or of tokens that were given, it is tokenised BLEU."""
    if recipe:
        (place / "data" / "mine" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        (place / "data" / "mine" / "text").mkdir()
        (place / "data" / "mine" / "text" / "valid.de").write_text(20 * f"{target}\n")
    assert new("mine", "--data", "data/mine") == 0
    task = read(place / "mine.yaml")["task"]
    names = ("remove_bpe", "detok", "tokens")
    found = tuple(task.get(f"eval_bleu_{name}") for name in names)
    assert found == (expected or (None,) * 3) and ("eval_bleu_lines" in task) == bool(expected)


def test_other_dictionaries_cannot_be_fine_tuned_on(place, tiny_text, tmp_path, capsys):
    assert new("mine", "--data", "data/mine") == 0
    with stock.fresh_process():
        assert cli.main(["train", "mine", "optimization.max_update=1"]) == 0
    other = preprocess(tiny_text, tmp_path / "other", "--joined-dictionary", "--nwordssrc", "9")
    capsys.readouterr()
    assert new("tuned", "--data", str(other), "--from", "mine") == 1
    assert "vaswani prepare --like runs/mine" in capsys.readouterr().err
    assert not (place / "tuned.yaml").exists()


@pytest.mark.parametrize("preset", published.PRESETS)
def test_a_preset_has_its_sizes_and_the_papers_rate(place, preset):
    width = {"tiny": 128, "base": 512, "big": 1024}[preset]
    assert new("mine", "--data", "data/mine", "--preset", preset) == 0
    config = experiment_config(place / "mine.yaml")
    assert config.model.encoder_embed_dim == config.model.decoder_embed_dim == width
    peak = f"{width}^-0.5 × {config.lr_scheduler.warmup_updates:,}^-0.5"
    assert peak in (place / "mine.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("pairs", "gpus", "preset"),
    [(200, 0, "tiny"), (200, 2, "tiny"), (160_000, 1, "base"), (160_000, 0, "tiny")],
)
def test_the_preset_follows_from_text_and_gpu(place, monkeypatch, pairs, gpus, preset):
    settings = published.settings_for(pairs)
    monkeypatch.setattr(conditions, "settings_for", lambda _: settings)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(conditions, "memory_of_machine", lambda _: 16.0)
    assert new("mine", "--data", "data/mine") == 0
    suffix = {"tiny": "_tiny", "base": ""}[preset]
    given = read(place / "mine.yaml")
    assert given["model"]["_name"] == f"vaswani_transformer{suffix}"
    assert given["dataset"]["num_workers"] == (2 if gpus else 0)


def test_sentences_that_are_too_long_are_counted(place, tiny_text, tmp_path, capsys):
    text = shutil.copytree(tiny_text, tmp_path / "long")
    for language in ("en", "de"):
        with open(text / f"valid.{language}", "a", encoding="utf-8") as stream:
            stream.write("1 " * 1100 + "2\n" + "3 " * 1020 + "4\n")
    data = preprocess(text, tmp_path / "long-bin", "--joined-dictionary")
    assert new("mine", "--data", str(data)) == 0
    assert "1 of 22 validation sentences, longer than 1,024 tokens" in capsys.readouterr().err
    assert "left out: 1 of 22" in (place / "mine.yaml").read_text(encoding="utf-8")


def test_two_dictionaries_share_no_matrix(place, tiny_text, tmp_path):
    """(Validation text without a known word would be refused; these have the digits.)"""
    text = shutil.copytree(tiny_text, tmp_path / "two")
    with open(text / "train.de", "a", encoding="utf-8") as stream:
        stream.write("zehn\n")
    with open(text / "train.en", "a", encoding="utf-8") as stream:
        stream.write("1\n")
    data = preprocess(text, tmp_path / "two-bin")
    assert new("mine", "--data", str(data)) == 0
    assert read(place / "mine.yaml")["model"]["untie_embeddings"] is True


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["a/b", "--data", "data/mine"], "not a valid experiment name"),
        (["", "--data", "data/mine"], "not a valid experiment name"),
        (["demo-en-de", "--data", "data/mine"], "already exists: choose another name"),
        (["taken", "--data", "data/mine"], "taken.yaml already exists"),
        (["ran", "--data", "data/mine"], "runs/ran already exists"),
        (["mine", "--data", "nowhere"], "there is no data in nowhere"),
        (["mine", "--data", "data"], "holds no binarised text"),
        (["mine", "--data", "data/mine", "--from", "nobody"], "there is no run 'nobody'"),
        (["mine", "--data", "data/mine", "--from", "x", "--preset", "big"], "exclude each other"),
    ],
)
def test_what_is_refused_is_one_sentence_and_leaves_nothing(place, argv, message, capsys):
    (place / "taken.yaml").write_text("mine\n")
    (place / "runs" / "ran").mkdir(parents=True)
    before = sorted(place.rglob("*"))
    assert new(*argv) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]
    assert sorted(place.rglob("*")) == before
    assert (place / "taken.yaml").read_text() == "mine\n"


def test_text_without_a_validation_set_is_refused_with_the_option_that_gives_one(place, capsys):
    """``prepare --like mine --train more`` makes such data."""
    for path in (place / "data" / "mine" / "data-bin").glob("valid.*"):
        path.unlink()
    assert new("mine", "--data", "data/mine") == 1
    assert "has no part 'valid'; it has: " in (said := capsys.readouterr().err)
    assert ": prepare it with --valid too\n" in said


def test_a_folder_of_experiments_gets_the_file(place):
    (place / "configs").mkdir()
    assert new("my-own", "--data", "data/mine/data-bin") == 0
    assert (place / "configs" / "my_own.yaml").is_file()


def test_a_model_of_ones_own_keeps_its_user_dir():
    """For ``--from``; the plugin's own folder is written without a place, as everywhere."""
    own = {"common": {"user_dir": "/mine/relative_positions"}}
    assert fine_tuning.user_dir_of(own) == "/mine/relative_positions"
    for plugins in (None, "transformer_plugin", "/elsewhere/transformer_plugin"):
        common = {"common": {"user_dir": plugins}}
        assert fine_tuning.user_dir_of(common) == "transformer_plugin"
    assert fine_tuning.user_dir_of({}) == "transformer_plugin"  # of a packed model
