"""The verbs connected: train, stop, continue, average, generate and score, on digits reversed.

In this process; fairseq keeps state between trainings, which ``fresh_process`` clears.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests import stock
from vaswani.experiment.checkpoints import describe

ROOT = Path(__file__).resolve().parents[2]
OF_A_SIDE = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 16, "attention_heads": 2}
SIZES = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in OF_A_SIDE.items()}


@pytest.fixture(scope="module")
def workplace(tiny_data_bin, tiny_text, tmp_path_factory) -> Path:
    """A folder with an experiment ``small`` and its data as ``vaswani prepare`` leaves it."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(tiny_data_bin, folder / "data" / "digits" / "data-bin")
    for name in ("text", "tok"):
        shutil.copytree(tiny_text, folder / "data" / "digits" / name)
    recipe = {"source_lang": "en", "target_lang": "de", "tokenised": False, "bpe": 1}
    (folder / "data" / "digits" / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    table = yaml.safe_load((ROOT / "configs" / "demo_en_de.yaml").read_text(encoding="utf-8"))
    table["task"]["data"] = "data/digits/data-bin"
    # a few updates from here and it says words, not only the end of the sentence
    table["model"] = {"_name": "vaswani_transformer_tiny", "init": "t2t", **SIZES}
    table["dataset"]["max_tokens"] = 500
    table["optimization"]["max_update"] = 6
    table["checkpoint"] = {"save_interval_updates": 2, "no_epoch_checkpoints": True}
    (folder / "configs").mkdir()
    (folder / "configs" / "small.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    return folder


def run(workplace, monkeypatch, *argv) -> int:
    """One command line in the workplace, as in a process of its own."""
    monkeypatch.chdir(workplace)
    return stock.vaswani(*argv)


@pytest.fixture(scope="module")
def trained(workplace) -> Path:
    """The run after 4 updates, then continued to 6."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for updates in (4, 6):
            override = f"optimization.max_update={updates}"
            assert run(workplace, monkeypatch, "train", "small", override) == 0
    return workplace / "runs" / "small"


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_run_leaves_what_it_promises_and_continues(trained):
    config = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    assert config["model"]["encoder_embed_dim"] == 16
    assert config["model"]["decoder_ffn_embed_dim"] == 16
    environment = json.loads((trained / "env.json").read_text(encoding="utf-8"))
    assert {"versions", "commit", "cpu", "command", "data"} <= set(environment)
    assert (environment["device"], environment["precision"]) == ("cpu", "fp32")
    assert environment["tf32"] is False
    assert len(environment["earlier_starts"]) == 1
    lines = lines_of(trained / "train.jsonl")
    assert [line["num_updates"] for line in lines if line["tag"] == "resumed"] == [4]
    assert max(line.get("valid_num_updates", 0) for line in lines) == 6
    assert (trained / "train.log").read_text(encoding="utf-8").count("done training") == 2
    assert (trained / "curve.png").is_file()


def test_average_generate_score(trained, workplace, monkeypatch, capsys):
    assert run(workplace, monkeypatch, "average", "small", "--last", "2") == 0
    command = ["generate", "small", "--beam", "2", "--max-len-a", "0", "--max-len-b", "6"]
    assert run(workplace, monkeypatch, *command) == 0
    report = json.loads((trained / "eval" / "test.json").read_text(encoding="utf-8"))
    taken = describe(Path(report["checkpoint"]))
    average = describe(trained / "checkpoints" / "checkpoint_average_last2.pt")
    lowest = min(average.loss, *average.beside.values())
    assert (taken.loss or average.beside[taken.updates]) == lowest
    assert report["options"]["beam"] == 2 and report["options"]["lenpen"] == 0.6
    assert len((trained / "eval" / "test.hyp").read_text(encoding="utf-8").splitlines()) == 20
    capsys.readouterr()
    assert run(workplace, monkeypatch, *command) == 0
    assert "already translated" in capsys.readouterr().err
    assert run(workplace, monkeypatch, "score", "small") == 0
    scores = json.loads((trained / "eval" / "test.score.json").read_text(encoding="utf-8"))
    assert "tok:13a" in scores["bleu"]["signature"]


def test_blank_and_overlong_sentences_keep_their_lines(
    trained, workplace, tiny_text, monkeypatch, capsys, tmp_path
):
    """Line 2 is blank, line 3 has 40 tokens where the model takes 30."""
    from tests.conftest import preprocess

    for part in ("train", "valid", "test"):
        for lang in ("en", "de"):
            shutil.copy(tiny_text / f"{part}.{lang}", tmp_path)
    for lang in ("en", "de"):
        content = f"1 2 3\n\n{'4 ' * 40}\n5 6\n"
        (tmp_path / f"test.{lang}").write_text(content, encoding="utf-8")
    data = preprocess(tmp_path, tmp_path / "data-bin", "--joined-dictionary")
    config = trained / "config.yaml"
    original = config.read_text(encoding="utf-8")
    config.write_text(original.replace("_positions: 1024", "_positions: 30"), encoding="utf-8")
    try:
        command = ["generate", "small", "--data", str(data), "--out", str(tmp_path / "eval")]
        assert run(workplace, monkeypatch, *command, "--max-len-b", "3") == 0
    finally:
        config.write_text(original, encoding="utf-8")
    lines = (tmp_path / "eval" / "test.hyp.tok").read_text(encoding="utf-8").split("\n")[:-1]
    assert lines[1] == lines[2] == "" and lines[0] and lines[3]
    message = capsys.readouterr().err
    assert "1 sentence longer" in message and "test.hyp: 3\n" in message


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["generate", "nothing"], "nothing"),
        (["generate", "broken.pt", "--data", "data/digits/data-bin"], "broken.pt"),
        (["generate", "small", "--subset", "dev"], "'dev'"),
        (["score", "small", "--subset", "valid"], "'valid'"),
    ],
)
def test_a_refused_translation_names_its_mistake(
    trained, workplace, monkeypatch, capsys, command, named
):
    last = (trained / "checkpoints" / "checkpoint_last.pt").read_bytes()
    (workplace / "broken.pt").write_bytes(last[: len(last) // 2])
    assert run(workplace, monkeypatch, *command) == 1
    assert named in capsys.readouterr().err.splitlines()[-1]


def test_the_documented_calls_from_python(workplace, tmp_path, monkeypatch):
    """docs/python.md: train, average, generate and score as functions."""
    document = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    (example,) = [one for one in examples if "train.run(" in one]
    for name in ("configs", "data"):
        shutil.copytree(workplace / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    with stock.fresh_process():
        exec(example.replace('"mine"', '"small"'), {})
    made = tmp_path / "runs" / "small"
    assert (made / "checkpoints" / "checkpoint_average_last2.pt").is_file()
    assert json.loads((made / "eval/test.json").read_text())["options"]["beam"] == 5
    assert "bleu" in json.loads((made / "eval/test.score.json").read_text())
