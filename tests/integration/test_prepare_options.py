"""``vaswani prepare`` on one's own text: options, what each redoes, and trouble on the way.

fairseq's own part, the last stage, takes seconds and is tried elsewhere; here a folder stands for
it (``light``), except where it is what is tested.
"""

import lzma
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests import archives
from tests.files import write
from vaswani import cli

ROOT = Path(__file__).resolve().parents[2]
LANGS = ["--source-lang", "en", "--target-lang", "de"]
OWN = [*LANGS, "--train", "train", "--valid", "valid", "--bpe", "30", "--workers", "1"]


def prepare(capsys, *more):
    """The stages that ran, and what was said."""
    assert cli.main(["prepare", *OWN, "--out", "data/own", *more]) == 0
    message = capsys.readouterr()
    made = [line.split(": made")[0] for line in message.err.splitlines() if ": made" in line]
    return [name.rpartition("/")[2] for name in made], message


def count(path) -> int:
    return path.read_bytes().count(b"\n")


ALL = ["text", "tok", "codes", "bpe", "data-bin"]


@pytest.mark.parametrize(
    ("option", "redone"),
    [
        (["--limit", "20"], ALL),
        (["--max-words", "14"], ALL[1:]),
        (["--ratio", "1.2"], ALL[1:]),
        (["--tokenised"], ALL[1:]),
        (["--bpe", "20"], ALL[2:]),
        (["--workers", "2"], []),
        (["--show-dropped", "3"], []),
        (["--from", "bpe"], ALL[3:]),
        (["--from", "tokenise"], ALL[1:]),
        (["--from", "clean"], ALL),
    ],
)
def test_a_changed_option_redoes_exactly_what_depends_on_it(own, light, capsys, option, redone):
    assert prepare(capsys)[0] == ALL
    assert prepare(capsys)[0] == []
    assert prepare(capsys, *option)[0] == redone
    assert prepare(capsys, *(option if option[0] != "--from" else []))[0] == []


def test_fewer_merges_than_asked_for_are_explained(own, light, capsys):
    """The text decides how many there can be."""
    assert "  merges: 30\n" in prepare(capsys)[1].err
    said = prepare(capsys, "--bpe", "9000")[1].err
    made = count(Path("data/own/codes")) - 1
    assert 30 < made < 9000
    assert f"merges (9,000 asked for; no other two symbols meet twice): {made:,}\n" in said


def test_changed_text_is_noticed(own, light, capsys):
    prepare(capsys)
    write(own / "valid.de", *archives.sentences("de", 10, 3))
    assert prepare(capsys)[0] == ALL


def test_complete_data_need_no_text_any_more(own, light, capsys):
    """With ``--if-missing``, as on a machine to which only the data were copied."""
    assert prepare(capsys, "--if-missing")[0] == ALL
    for path in own.glob("train.*"):
        path.unlink()
    assert prepare(capsys, "--if-missing")[0] == []
    Path("data/own/data-bin/made").unlink()
    assert cli.main(["prepare", *OWN, "--out", "data/own", "--if-missing"]) == 1


def test_a_trial_takes_the_first_pairs(own, light, capsys):
    prepare(capsys, "--limit", "7")
    expected = archives.sentences("en", 40, 40)[:7]
    assert (own / "data/own/text/train.en").read_text(encoding="utf-8").splitlines() == expected
    assert count(own / "data/own/text/valid.en") == 10


def test_every_pair_left_out_is_counted_and_shown_on_request(own, light, capsys):
    english, german = (archives.sentences(lang, 40, 40) for lang in ("en", "de"))
    english[3], german[8], english[20] = "", " \u200b ", "a " * 50
    german[30] = "x" * 1001
    write(own / "train.en", *english)
    write(own / "train.de", *german)
    _, message = prepare(capsys, "--max-words", "30", "--show-dropped", "1")
    assert "train: 38 pairs of 40; left out: 2 with an empty side" in message.err
    assert "1 of more than 30 words" in message.err
    assert "1 with a word of more than 1,000 letters" in message.err
    assert "text/train, with an empty side: train.en, line 4" in message.out
    assert "train.en, line 9" not in message.out, "one example of each reason"
    assert count(own / "data/own/tok/train.de") == count(own / "data/own/bpe/train.en") == 36
    _, again = prepare(capsys, "--max-words", "30", "--show-dropped", "2")
    assert "train.en, line 9" in again.out, "also when there is nothing left to do"


def test_xz_is_read_as_gz_is(own, light, capsys):
    plain = prepare(capsys)
    text = (own / "data/own/text/train.en").read_bytes()
    (own / "train.en.xz").write_bytes(lzma.compress((own / "train.en").read_bytes()))
    (own / "train.en").unlink()
    prepare(capsys)
    assert (own / "data/own/text/train.en").read_bytes() == text and plain[0] == ALL


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--from", "tokens"], "no stage 'tokens' (did you mean 'tok"),
        (["--from", "raw"], "no stage 'raw'"),
        (["--workers", "0"], "--workers is 0"),
        (["--max-words", "1"], "no pair of sentences within the limits"),
    ],
)
def test_bad_options_are_one_sentence(own, capsys, change, message):
    assert cli.main(["prepare", *OWN, "--out", "data/own", *change]) == 1
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from vaswani import cli
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.mark.parametrize(("size", "stopped"), [(1000, "text"), (2600, "tok")])
def test_a_full_disk_is_one_sentence_and_nothing_half_written(own, light, capsys, size, stopped):
    """A limit on the size of files stands for the disk: the error comes from the same place."""
    command = ["prepare", *OWN, "--out", "data/own"]
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(size), *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert (
        f"there is no space left for data/own/{stopped}" in last and "Traceback" not in done.stderr
    )
    left = {path.name for path in (own / "data/own").iterdir()}
    assert left <= {".stages", *ALL[: ALL.index(stopped)]}
    assert prepare(capsys)[0] == ALL[ALL.index(stopped) :], "with room it goes on"


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes(own):
    """Two processes, all stages, SIGKILL after times nobody chose; then to the end."""
    for lang in ("en", "de"):
        write(own / f"train.{lang}", *archives.sentences(lang, 40_000, 7))
    command = [sys.executable, "-m", "vaswani", "prepare", *OWN, "--workers", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--out", "whole"], env=environment, check=True)
    dice = random.Random(11)
    for _ in range(12):
        process = subprocess.Popen([*command, "--out", "killed"], env=environment)
        try:
            process.wait(dice.uniform(0.5, 8.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    subprocess.run([*command, "--out", "killed"], env=environment, check=True)
    whole, killed = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            # its log names the folder
            if path.is_file() and ".stages" not in path.parts and path.name != "preprocess.log"
        }
        for folder in (own / "whole", own / "killed")
    )
    assert killed == whole
