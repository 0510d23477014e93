"""The verbs connected: average, generate and score, on digits reversed, in this process."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from tests import stock
from tests.conftest import preprocess
from vaswani import PreparedText, Run, generate, train
from vaswani.decoding.generation import Request
from vaswani.training.checkpoints import describe

ROOT = Path(__file__).resolve().parents[2]


def test_average_generate_score(own_run, cli):
    assert cli("average", "small", "--last", "2").code == 0
    command = ["generate", "small", "--beam", "2", "--max-len-a", "0", "--max-len-b", "6"]
    assert cli(*command).code == 0
    report = json.loads((own_run / "eval" / "test.json").read_text(encoding="utf-8"))
    taken = describe(Path(report["checkpoint"]))
    average = describe(own_run / "checkpoints" / "checkpoint_average_last2.pt")
    lowest = min(average.loss, *average.beside.values())
    assert (taken.loss or average.beside[taken.updates]) == lowest
    assert report["options"]["beam"] == 2 and report["options"]["lenpen"] == 0.6
    assert len((own_run / "eval" / "test.hyp").read_text(encoding="utf-8").splitlines()) == 20
    assert "already translated" in cli(*command).err
    assert cli("score", "small").code == 0
    scores = json.loads((own_run / "eval" / "test.score.json").read_text(encoding="utf-8"))
    assert "tok:13a" in scores["bleu"]["signature"]


def test_functions_return_the_run_and_its_translations(workplace):
    """Of text that is prepared elsewhere than the configuration says."""
    text = PreparedText(Path("data/moved"))
    shutil.copytree("data/digits", text.folder)
    run = train("small", text, ["run=by_function", "optimization.max_update=2"])
    assert run == Run(Path("runs/by_function")) and run.ending().num_updates == 2
    assert run.data_bin == text.data_bin
    request = Request(search={"max_len_a": 0.0, "max_len_b": 3})
    translations = generate(run, request, workers=1)
    assert translations == run.translations("test")
    assert len(translations.text.read_text(encoding="utf-8").splitlines()) == 20
    assert translations.record().options["max_len_b"] == 3


def test_blank_and_overlong_sentences_keep_their_lines(own_run, cli, tiny_text, tmp_path):
    """Line 2 is blank, line 3 has 40 tokens where the model takes 30."""
    text = Path(shutil.copytree(tiny_text, tmp_path / "text"))
    for lang in ("en", "de"):
        content = f"1 2 3\n\n{'4 ' * 40}\n5 6\n"
        (text / f"test.{lang}").write_text(content, encoding="utf-8")
    data = preprocess(text, tmp_path / "data-bin", "--joined-dictionary")
    config = own_run / "config.yaml"
    config.write_text(config.read_text().replace("_positions: 1024", "_positions: 30"))
    ended = cli("generate", "small", "--data", data, "--out", "eval", "--max-len-b", "3")
    lines = Path("eval/test.hyp.tok").read_text(encoding="utf-8").split("\n")[:-1]
    assert lines[1] == lines[2] == "" and lines[0] and lines[3]
    assert "1 sentence longer" in ended.err and "test.hyp: 3\n" in ended.err


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["generate", "nothing"], "nothing"),
        (["generate", "small", "--subset", "dev"], "'dev'"),
        (["score", "small", "--subset", "valid"], "'valid'"),
    ],
)
def test_a_refused_translation_names_its_mistake(own_run, cli, command, named):
    ended = cli(*command)
    assert ended.code == 1 and named in ended.err.splitlines()[-1]


@pytest.mark.parametrize("command", ["generate", "average", "pack", "attention"])
def test_a_run_used_elsewhere_says_where_its_data_is_looked_for(
    run, cli, tmp_path, monkeypatch, command
):
    """Data of the recipe's name, made there, would be other data."""
    monkeypatch.chdir(tmp_path)
    ended = cli(command, run, *(["1 2 3"] if command == "attention" else []))
    last = ended.err.splitlines()[-1]
    assert ended.code == 1 and "data/digits/data-bin" in last
    assert "where 'vaswani train' was run" in last and "vaswani prepare" not in last
    assert command == "average" or "--data DIR" in last


def test_the_documented_calls_from_python(workplace):
    """docs/python.md: train, average, generate and score as functions."""
    document = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", document, re.DOTALL)
    (example,) = [one for one in examples if "train.run(" in one]
    with stock.fresh_process():
        exec(example.replace('"mine"', '"small"'), {})
    made = Path("runs/small")
    assert (made / "checkpoints" / "checkpoint_average_last2.pt").is_file()
    assert json.loads((made / "eval/test.json").read_text())["options"]["beam"] == 5
    assert "bleu" in json.loads((made / "eval/test.score.json").read_text())


def losses(run: str) -> list:
    lines = [json.loads(line) for line in Path("runs", run, "train.jsonl").read_text().splitlines()]
    return [line["valid_nll_loss"] for line in lines if "valid_nll_loss" in line]


def test_training_with_two_threads_learns_the_same(cli, workplace):
    """Sums differ in their last digits, so weights do more, but the losses hardly."""
    for threads in (1, 2):
        torch.set_num_threads(threads)
        changes = ["optimization.max_update=2", f"run=runs/threads{threads}"]
        assert cli("train", "small", *changes).code == 0
    assert losses("threads2") == pytest.approx(losses("threads1"), rel=1e-4)
