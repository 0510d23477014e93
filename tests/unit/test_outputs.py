"""No command writes onto a file that it reads, or that is not its own to replace."""

import errno
import gzip
import json
import os
import tempfile
from pathlib import Path

import pytest

from benchmarks import demo_report
from tests.files import write
from vaswani import cli
from vaswani.common.artifact import is_inside, same_file, writing
from vaswani.common.environment import environment
from vaswani.common.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
LINES = ["Das kostet 3,50 €, sagte er.", "Am 3. März 1987 war es kalt.", "Die E-Mail kam gestern."]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with h, r and another system's h2, and what ``vaswani score`` says there."""
    monkeypatch.chdir(tmp_path)
    for name in ("h", "h2", "r"):
        write(tmp_path / name, *LINES)
    return tmp_path


def score(*options, hypotheses="h"):
    return cli.main(["score", "--hypotheses", hypotheses, "--references", "r", *options])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("target", ["h", "r", "h2"])
@pytest.mark.parametrize("way", ["name", "dot", "absolute", "symlink", "hard link"])
def test_scores_do_not_replace_what_is_scored(place, capsys, target, way):
    """The hypotheses, the references, and those of the system that is compared."""
    output = Path({"dot": f"./sub/../{target}", "absolute": str(place / target)}.get(way, target))
    if way == "dot":
        (place / "sub").mkdir()
    elif way == "symlink":
        output = Path("link")
        output.symlink_to(target)
    elif way == "hard link":
        output = Path("link")
        output.hardlink_to(target)
    before = contents(place)
    assert score("--compare", "h2", "--json", str(output)) == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and "is an input of the same command" in err
    assert contents(place) == before


def test_scores_replace_scores_and_nothing_else(place, capsys):
    write(place / "mine.json", json.dumps({"lines": 3}))
    before = contents(place)
    assert score("--json", "mine.json") == 1
    assert "mine.json exists and is no report of scores" in capsys.readouterr().err
    write(place / "h.score.json", "mine")  # where they go of themselves
    assert score() == 1
    assert "h.score.json exists and is no report" in capsys.readouterr().err
    (place / "h.score.json").unlink()
    assert contents(place) == before
    (place / "empty").touch()  # as mktemp leaves it: there is nothing to lose
    for _ in range(2):
        assert score("--json", "empty") == 0
    assert json.loads((place / "empty").read_text())["lines"] == 3


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (".", ". exists and is no report"),
        ("fifo", "fifo exists and is no report"),
        ("h/scores.json", "h cannot be written to (it is not a folder)"),
    ],
)
def test_outputs_that_are_no_files(place, capsys, output, message):
    os.mkfifo("fifo")
    assert score("--json", output) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and contents(place).keys() == {"h", "h2", "r"}


def test_a_run_keeps_its_files(tmp_path, monkeypatch, capsys):
    from tests.integration.test_scoring import TEXT, make_run

    monkeypatch.chdir(tmp_path)
    make_run(tmp_path, "mine", TEXT)
    files = [path for path in Path("runs/mine").rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"config.yaml", "test.hyp", "test.hyp.tok", "test.json"}
    for path in files:
        before = path.read_bytes()
        assert cli.main(["score", "mine", "--json", str(path)]) == 1
        assert path.read_bytes() == before and capsys.readouterr().err.count("\n") == 1


def test_edited_translations_and_references_are_scored_with_a_warning(
    tmp_path, monkeypatch, capsys
):
    from tests.integration.test_scoring import TEXT, make_run
    from vaswani.common.files import sha256_of
    from vaswani.data.stage import write_record

    monkeypatch.chdir(tmp_path)
    make_run(tmp_path, "mine", TEXT)
    report = Path("runs/mine/eval/test.json")
    names = ("test.hyp", "test.hyp.tok")
    hashes = {name: sha256_of(report.with_name(name)) for name in names}
    write(report, json.dumps({**json.loads(report.read_text()), "files": hashes}))
    references = Path("data/mine/text/test.de")
    recorded = {"test.de": sha256_of(references)}
    Path("data/mine/.stages").mkdir()
    write_record(references.parent, {"sha256": recorded})
    assert cli.main(["score", "mine"]) == 0
    assert "has changed" not in capsys.readouterr().err
    write(report.with_name("test.hyp"), *TEXT[:-1], "x")
    assert cli.main(["score", "mine"]) == 0
    assert "test.hyp has changed since it was translated" in capsys.readouterr().err
    write(references, *TEXT[:-1], "x")
    assert cli.main(["score", "mine"]) == 0
    assert "text/test.de has changed since 'vaswani prepare'" in capsys.readouterr().err


def test_a_plan_does_not_replace_the_experiment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    yaml = (ROOT / "configs" / "wmt14_en_de_base.yaml").read_text(encoding="utf-8")
    config = write(tmp_path / "mine.yaml", yaml)
    command = ["plan", "mine.yaml", "--gpus", "8", "--json"]
    for name, message in (
        ("./mine.yaml", "is an input of the same"),
        ("notes", "exists and is no plan"),
    ):
        write(tmp_path / "notes", "mine")
        assert cli.main([*command, name]) == 1
        assert message in capsys.readouterr().err
    assert config.read_text(encoding="utf-8") == yaml + "\n"
    for _ in range(2):
        assert cli.main([*command, "plan.json"]) == 0


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A run of the demo, translated and scored, as far as its report looks at it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs" / "demo" / "config.yaml", "task: {}")
    write(tmp_path / "runs" / "demo" / "finished.json", json.dumps({"num_updates": 9}))
    recipe = ["test: examples/demo_text/test", "source_lang: en", "target_lang: de"]
    write(tmp_path / "data" / "demo" / "recipe.yaml", *recipe)
    text = tmp_path / "data" / "demo" / "text"
    for name in ("train.en", "train.de", "test.en", "test.de"):
        write(text / name, *LINES)
    monkeypatch.setattr(demo_report, "number_rows", lambda _: [(1, "1987")])
    out = write(tmp_path / "runs" / "demo" / "eval" / "test.hyp", *LINES).parent
    translation = {"data": "data/demo/data-bin", "checkpoint": "last.pt", "seconds": 1.0}
    scores = {"bleu": {"score": 100.0, "signature": "-"}, "translation": translation}
    write(out / "test.score.json", json.dumps(scores))
    monkeypatch.setattr(demo_report, "draw_attention", lambda path, *_: write(path, "a picture"))
    return out


@pytest.mark.parametrize("name", demo_report.FILES)
def test_the_demos_report_replaces_its_own_alone(demo, capsys, name):
    path = write(demo / name, "mine")
    with pytest.raises(SystemExit, match=f"{name} exists and is no"):
        demo_report.main(["demo"])
    assert path.read_text() == "mine\n"
    path.unlink()
    for _ in range(2):
        demo_report.main(["demo"])
    assert json.loads((demo / "report.json").read_text())["exact_match"] == 100.0
    assert (demo / "attention.png").read_text() == "a picture\n"


def test_the_demos_report_is_a_whole_record(demo, capsys):
    """What a figure needs in order to be quoted; of the machine, what a training records."""
    write(demo.parent / "config.yaml", "common: {seed: 7}")
    ran_on = {"commit": "c0ffee", "command": "vaswani train demo", "cpu": "a processor"}
    known = {**ran_on, "data": {"train": 1}, "earlier_starts": [ran_on]}
    write(demo.parent / "env.json", json.dumps(known))
    write(demo.parent / "finished.json", json.dumps({"num_updates": 9, "seconds": 31.5}))
    demo_report.main(["demo", "prepare=12", "train=40"])
    assert "stages: prepare 12 s, train 40 s; in all 52 s" in capsys.readouterr().out
    found = json.loads((demo / "report.json").read_text())
    training = {"updates": 9, "seconds": 31.5, "seed": 7, "starts": 2, "environment": ran_on}
    assert found["training"] == training
    assert found["stage_seconds"] == {"prepare": 12, "train": 40}
    now = environment()
    assert {"commit", "versions", "cpu", "cores", "gpus", "command"} <= set(now)
    here = {name: found["environment"][name] for name in ("time", "command")}
    assert found["environment"] == {**now, **here}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("eval/test.hyp", LINES[0], "test.hyp has 1 lines, but the test has 3"),
        ("eval/test.score.json", '{"bleu"', "has no scores yet"),
        ("finished.json", "", "has not finished training"),
    ],
)
def test_a_demo_with_something_missing_is_one_sentence(demo, capsys, name, content, message):
    write(demo.parent / name, content)
    with pytest.raises(SystemExit, match=message):
        demo_report.main(["demo"])


def test_where_a_path_leads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data")
    assert is_inside(Path("link/new"), Path("data")) and is_inside(Path("link"), Path("./data"))
    assert not is_inside(Path("data2"), Path("data")) and not is_inside(Path("."), Path("data"))
    assert same_file(Path("link/gone"), Path("data/gone"))


# ---- what cannot be written or read ------------------------------------------------------------


def test_a_read_only_folder_is_named(place, monkeypatch, capsys):
    """Found before anything is computed; or, where the system says so later, then."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert score("--json", "new/scores.json") == 1
    err = capsys.readouterr().err
    assert f"{place} cannot be written to" in err and ".part" not in err
    assert not Path("new").exists()
    monkeypatch.undo()
    monkeypatch.chdir(place)

    def refused(*_, **__):
        raise PermissionError(errno.EROFS, "Read-only file system", ".scores.json.x.part")

    monkeypatch.setattr(tempfile, "mkstemp", refused)
    assert score("--json", "scores.json") == 1
    err = capsys.readouterr().err
    assert "Read-only file system" in err and ".part" not in err and err.count("\n") == 1


def test_an_interrupt_leaves_the_earlier_scores(place, monkeypatch, capsys):
    assert score() == 0
    before = contents(place)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dump", interrupted)
    assert score() == 130
    assert contents(place) == before and "Traceback" not in capsys.readouterr().err


def test_a_full_disk_is_said_of_the_file(tmp_path):
    with (
        pytest.raises(UserError, match="no space left for .*scores.json: free some"),
        writing(tmp_path / "scores.json"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def false_gz(path):
    path.write_text("no gzip at all\n")


def cut_gz(path):
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in LINES).encode())[:-12])


def false_xz(path):
    path.write_text("no xz at all\n")


def latin_1(path):
    path.write_bytes("für\n".encode("latin-1") * 3)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.gz", false_gz, "a.gz is damaged or cut short"),
        ("a.gz", cut_gz, "a.gz is damaged or cut short"),
        ("a.xz", false_xz, "a.xz is damaged or cut short"),
        ("a", latin_1, "a, line 1: byte 2 is not UTF-8"),
        ("a", os.mkfifo, "there is no file a"),
        ("a", os.mkdir, "there is no file a"),
    ],
)
def test_hypotheses_that_cannot_be_read(place, capsys, name, make, message):
    make(place / name)
    assert score(hypotheses=name) == 1
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and not out
