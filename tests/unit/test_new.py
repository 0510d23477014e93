"""``vaswani new``: an experiment for one's own text, complete, and never over another file."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests import stock
from tests.files import needs_records
from vaswani import cli
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.planning import batching, fine_tuning, first_experiment
from vaswani.planning import published_settings as published

PAPERS_WARMUP = 4000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tiny_data_bin, tmp_path, monkeypatch) -> Path:
    """Enter a folder with only data/mine, as ``vaswani prepare`` leaves it."""
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
        (29_000, published.MULTI30K),
        (160_000, published.IWSLT),
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


def test_a_choice_of_ours_is_not_said_to_be_the_sources():
    """fairseq's example has dropout 0.3 and warm-up 4,000; tiny has 0.1 and 1,000 here."""
    settings = published.settings_for(160_000)
    for name in ("dropout", "warmup"):
        assert settings.reason("base", name) == published.IWSLT
        assert "our choice" in settings.reason("tiny", name)
    assert settings.reason("base", "epochs") == published.OUR_CHOICE


@needs_records
def test_every_record_that_a_reason_names_is_there():
    texts = [published.__doc__, published.BPE_DROPOUT]
    for settings in published.TABLE:
        texts += settings.reasons.values()
    records = re.findall(r"(?:benchmarks|experiments)/[\w./-]+", " ".join(texts))
    assert len(set(records)) >= 3
    assert [record for record in records if not (ROOT / record).exists()] == []


# ---- what is written --------------------------------------------------------------------------


def test_the_experiment_is_complete_and_every_choice_has_a_reason(place):
    assert new("mine", "--data", "data/mine") == 0
    text = (place / "mine.yaml").read_text(encoding="utf-8")
    config = read_configuration(place / "mine.yaml")
    assert (config.task.source_lang, config.task.target_lang) == ("en", "de")
    assert config.task.data == "data/mine/data-bin" and config.task.length_penalty == "gnmt"
    assert (config.model.encoder_layers, config.model.encoder_embed_dim) == (4, 128)
    assert config.optimization.max_update == 3000 and config.lr_scheduler.warmup_updates == 1000
    assert config.dataset.skip_invalid_size_inputs_valid_test is True
    for key in ("batch_tokens", "dropout", "init", "warmup_updates", "max_tokens", "max_update"):
        assert re.search(rf"^  # .+\n  {key}: ", text, re.MULTILINE), key
    unwrapped = text.replace("\n  # ", " ")
    for key, name in (
        ("dropout", "dropout"),
        ("warmup_updates", "warmup"),
        ("max_update", "epochs"),
    ):
        reason = published.settings_for(200).reason("tiny", name)
        assert re.search(rf"{re.escape(reason)}[^#]+\n  {key}: ", unwrapped), key


def test_a_second_training_begins_with_the_weights_of_the_first(own_run, cli):
    """Its average, if that has the lowest loss; at the rate at which the first ended."""
    assert cli("average", "small", "--last", "2").code == 0
    for single in ("best", "last"):  # it has a higher loss than they
        (own_run / "checkpoints" / f"checkpoint_{single}.pt").unlink()
    assert cli("new", "tuned", "--data", "data/digits", "--from", "small").code == 0
    given = read(Path("configs/tuned.yaml"))
    begun, schedule = given["checkpoint"]["finetune_from_model"], given["lr_scheduler"]
    assert "average" in begun
    first = read(own_run / "config.yaml")["lr_scheduler"]
    rate = 7 * first["lr_factor"] * (16 * first["warmup_updates"] ** 3) ** -0.5
    peak = schedule["lr_factor"] * (16 * schedule["warmup_updates"]) ** -0.5
    assert peak == pytest.approx(rate, rel=1e-2), "of what came next, after 6 updates"
    assert (
        cli("train", "tuned", "optimization.max_update=1", "lr_scheduler.lr_factor=1e-9").code == 0
    )
    last = Path("runs/tuned/checkpoints/checkpoint_last.pt")
    difference, parameter = stock.largest_difference(last, Path(begun))
    assert difference < 1e-7, parameter


@pytest.mark.parametrize("an_epoch", [1, 100, 1499, 40_000])
@pytest.mark.parametrize(
    "settings", [fine_tuning.SETTINGS, *published.TABLE], ids=lambda s: s.source
)
def test_however_short_a_training_it_saves_checkpoints_to_choose_from(settings, an_epoch):
    """Of 100 updates in 10 epochs there was a single one, after the last."""
    mine = first_experiment.Conditions(
        *("mine", Path("data/mine"), ("en", "de"), 1000, 0, "tiny", settings),
        *(True, 0, 20, 30, True, {}),
    )
    batch = batching.Batch(4000, 1, 2000.0, 2000.0, an_epoch, 0)
    given = yaml.safe_load(first_experiment.new_model(mine, batch, 2000))["checkpoint"]
    every = given.get("save_interval_updates") or an_epoch * given["save_interval"]
    updates = settings.updates("tiny", an_epoch)
    assert updates // every >= min(10, updates // an_epoch)


@pytest.mark.parametrize(("pairs", "gpus", "suffix"), [(160_000, 1, ""), (160_000, 0, "_tiny")])
def test_the_preset_follows_from_text_and_gpu(place, monkeypatch, pairs, gpus, suffix):
    settings = published.settings_for(pairs)
    monkeypatch.setattr(first_experiment, "settings_for", lambda _: settings)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(batching, "gpu_memory", lambda _: 16.0)
    assert new("mine", "--data", "data/mine") == 0
    assert read(place / "mine.yaml")["model"]["_name"] == f"vaswani_transformer{suffix}"


def test_two_dictionaries_share_no_matrix(place):
    with open("data/mine/data-bin/dict.de.txt", "a", encoding="utf-8") as stream:
        stream.write("zehn 1\n")
    assert new("mine", "--data", "data/mine") == 0
    assert read(place / "mine.yaml")["model"]["untie_embeddings"] is True


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["a/b", "--data", "data/mine"], "a/b"),
        (["taken", "--data", "data/mine"], "taken.yaml"),
        (["ran", "--data", "data/mine"], "runs/ran"),
        (["mine", "--data", "nowhere"], "nowhere"),
        (["mine", "--data", "data/mine", "--from", "nobody"], "nobody"),
    ],
)
def test_a_refused_new_leaves_all_files_as_they_were(place, argv, named, capsys):
    (place / "taken.yaml").write_text("mine\n")
    (place / "runs" / "ran").mkdir(parents=True)
    before = sorted(place.rglob("*"))
    assert new(*argv) == 1
    assert named in capsys.readouterr().err
    assert sorted(place.rglob("*")) == before and (place / "taken.yaml").read_text() == "mine\n"
