"""A variant as a subclass (examples/user_dirs/relative_positions): from training to export."""

import json
import math
import random
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from tests import shared, stock
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.configuration.plugin import saved_config
from vaswani.folders.run import Run

ROOT = Path(__file__).resolve().parents[2]
VARIANT = ROOT / "examples" / "user_dirs" / "relative_positions"
TO_FAIRSEQ = ("--to", "fairseq")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Make a folder with a trained run of the variant, and its packed model."""
    folder = tmp_path_factory.mktemp("variant")
    table = shared.experiment()
    table["common"]["user_dir"] = str(VARIANT)
    table["model"] = {"_name": "relative_transformer", "max_distance": 3, **shared.SIZES}
    table["optimization"]["max_update"] = 4
    table["checkpoint"] = {"save_dir": "runs/relative/checkpoints"}
    (folder / "relative.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    for part, count in (("train", 60), ("valid", 10), ("test", 10)):
        for language, words in (("en", "zero one two three"), ("de", "null eins zwei drei")):
            numbers = random.Random(part)
            lines = (numbers.choices(words.split(), k=numbers.randint(2, 6)) for _ in range(count))
            lines = "".join(" ".join(line) + "\n" for line in lines)
            (folder / f"{part}.{language}").write_text(lines, encoding="utf-8")
    text = [f"--{part}={part}" for part in ("train", "valid", "test")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        languages = ["--source-lang", "en", "--target-lang", "de"]
        assert not stock.vaswani("prepare", *languages, *text, "--bpe", 5, "--out", "data/digits")
        assert not stock.vaswani("train", "relative.yaml")
        assert not stock.vaswani("pack", "relative")
        assert not stock.vaswani("generate", "relative", "--max-len-a", 0, "--max-len-b", 5)
    return folder


def in_nats(row: list[str]) -> float:
    """Return the score in a line of results, which fairseq prints to the base 2, in nats."""
    return float(row[0]) * math.log(2)


@pytest.fixture
def model(place, monkeypatch) -> str:
    monkeypatch.chdir(place)
    return "runs/relative/model"


def test_it_translates_as_its_run_does(model, cli):
    """By scores: hardly trained, it finds some words as likely as others."""
    search = ["--max-len-a", 0, "--max-len-b", 5, "--scores"]
    said = cli("translate", model, "data/digits/text/test.en", "--user-dir", VARIANT, *search)
    log = Path("runs/relative/eval/test.log").read_text(encoding="utf-8").splitlines()
    expected = [in_nats(row) for _, row in sorted(stock.results(log, "H").items())]
    found = [float(line.split("\t")[1]) for line in said.out.splitlines()]
    assert found == pytest.approx(expected, abs=1e-4)  # printed to 4 places


def test_its_attention_is_shown(model, tmp_path):
    options = ["--user-dir", VARIANT, "--out", tmp_path / "page", "--no-pictures"]
    assert stock.vaswani("attention", model, "one two", *options) == 0


def test_nothing_is_imported_because_a_folder_or_a_checkpoint_names_it(model, tmp_path, cli):
    assert "--user-dir" in cli("translate", model, "data/digits/text/test.en").err
    last = Path("runs/relative/checkpoints/checkpoint_last.pt")
    alone = Path(shutil.copy(last, tmp_path / "alone.pt"))
    assert "user_dir" in saved_config(last, Run(Path("runs/relative")))["common"]
    assert "user_dir" not in saved_config(alone, Run(tmp_path))["common"]


def test_yaml_and_command_line_alike(place, monkeypatch):
    """A relative path is fairseq's: from the folder in which the command runs; kept absolute."""
    monkeypatch.chdir(VARIANT.parent)
    config = read_configuration(place / "relative.yaml", [f"common.user_dir={VARIANT.name}"])
    assert config == read_configuration(place / "relative.yaml")
    assert config.common.user_dir == str(VARIANT)


def test_the_plugins_folder_is_the_one_in_use(plugin_dir):
    """Runs from elsewhere name it with another place."""
    there = "common.user_dir=/not/here/transformer_plugin"
    config = read_configuration(ROOT / "configs/demo_en_de.yaml", [there])
    assert config.common.user_dir == str(plugin_dir)


def test_a_user_dir_that_is_missing_is_named(place):
    with pytest.raises(UserError, match="nowhere"):
        read_configuration(place / "relative.yaml", ["common.user_dir=nowhere"])


def test_fairseq_translates_its_export_as_it_translates(model, tmp_path):
    """fairseq-interactive, with the flags of the export's card."""
    out = tmp_path / "out"
    assert stock.vaswani("export", model, *TO_FAIRSEQ, "--user-dir", VARIANT, "--out", out) == 0
    rows = json.loads((out / "vaswani.json").read_text())["proof"]["rows"]
    assert rows and all(row["sentences"] == 10 for row in rows)
    block = (out / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    _, _, *flags = shlex.split(block.replace("\\\n", " "))
    lines = stock.interactive(out, out / "model.pt", "one two\n", *flags)
    ours = Translator.from_pretrained(model, user_dir=str(VARIANT)).translate(["one two"])
    assert in_nats(stock.results(lines, "D")[0]) == pytest.approx(ours[0].score, abs=1e-4)


@pytest.mark.parametrize("target", ["ctranslate2", "huggingface"])
def test_a_target_that_cannot_express_it_is_refused(target, model, capsys):
    assert stock.vaswani("export", model, "--to", target, "--user-dir", VARIANT) == 1
    assert "relative_transformer" in capsys.readouterr().err


def test_an_export_needs_its_user_dir(model, tmp_path, capsys):
    assert stock.vaswani("export", model, *TO_FAIRSEQ, "--out", tmp_path / "out") == 1
    assert "--user-dir" in capsys.readouterr().err and not (tmp_path / "out").exists()
