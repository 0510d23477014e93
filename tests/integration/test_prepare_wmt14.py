"""WMT14 from nothing to data-bin, from a server on this machine that offers it in small."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import archives
from tests.preloaded import python
from vaswani.commands import prepare
from vaswani.common.errors import UserError
from vaswani.data import stage
from vaswani.data.binarise import binary_lines
from vaswani.data.manifest import choose, read_manifest
from vaswani.data.recipe import find_recipe
from vaswani.data.steps import Job

ROOT = Path(__file__).resolve().parents[2]
#: pairs in each training archive
COUNT = 280


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    www = tmp_path_factory.mktemp("www")
    archives.offer(www, COUNT)
    with archives.Server(www) as server:
        yield server


@pytest.fixture(scope="module")
def manifest(server, tmp_path_factory) -> str:
    """The manifest with the server's addresses."""
    path = tmp_path_factory.mktemp("manifest") / "manifest.yaml"
    return str(archives.manifest(server.www, server.base, path))


@pytest.fixture(scope="module")
def english_german(server, manifest, tmp_path_factory) -> Path:
    """Where the script has prepared English-German from nothing."""
    folder = tmp_path_factory.mktemp("en-de")
    done = script(folder, "en-de", "--manifest", manifest, "--workers", "1")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def english_french(server, manifest, tmp_path_factory) -> Path:
    """The same of English-French."""
    folder = tmp_path_factory.mktemp("en-fr")
    done = script(folder, "en-fr", "--manifest", manifest, "--workers", "1")
    assert done.returncode == 0, done.stderr
    return folder


def script(tmp_path: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run scripts/prepare_wmt14.sh, with a ``vaswani`` of this Python on PATH."""
    commands = tmp_path / "bin"
    commands.mkdir(exist_ok=True)
    (commands / "vaswani").write_text(
        f'#!/bin/sh\nexec "{python()}" -m vaswani "$@"\n', encoding="utf-8"
    )
    (commands / "vaswani").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "prepare_wmt14.sh"), *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )


def lines(path: Path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def all_but_binary(name: str, manifest: str, out: Path) -> Path:
    """Run every stage of a recipe but the last, which takes seconds, in this process."""
    recipe, _ = find_recipe(name)
    named = {split: recipe.parts(split) for split in ("train", "valid", "test")}
    known = read_manifest(manifest)
    parts = {split: choose(known, names, name) for split, names in named.items() if names}
    job = Job(recipe, out, 1, parts, out.parent / "archives")
    key, stages, _ = prepare.plan_stages(job, None)
    for step in stages[:-1]:
        key = step.key(key)
        assert stage.run_stage(out / step.name, key, step.make)
    return out


@pytest.mark.parametrize(("pair", "parts"), [("en-de", 3), ("en-fr", 5)])
def test_a_pair_from_nothing_to_data_bin(request, server, manifest, pair, parts):
    """Every archive fetched, every pair in its place; a second run does nothing."""
    root = request.getfixturevalue("english_german" if pair == "en-de" else "english_french")
    source, target = pair.split("-")
    folder = root / "data" / f"wmt14_en_{target}"
    for split, part in (("test", "newstest2014"), ("valid", "newstest2013")):
        for lang in (source, target):
            expected = archives.sentences(lang, 20, sum(map(ord, part)))
            assert lines(folder / "text" / f"{split}.{lang}") == expected, "raw, as written"
    for lang in (source, target):
        found = lines(folder / "text" / f"train.{lang}")
        assert len(found) == parts * COUNT
        assert found[:COUNT] == archives.sentences(lang, COUNT, sum(map(ord, "europarl-v7")))
        for split, count in (("train", parts * COUNT), ("valid", 20), ("test", 20)):
            assert binary_lines(folder / "data-bin" / f"{split}.{pair}.{lang}.idx") == count
    assert ", isn ’ t it ?" in lines(folder / "tok" / "train.en")[0], "Moses' tokens"
    dictionaries = [(folder / "data-bin" / f"dict.{x}.txt").read_bytes() for x in (source, target)]
    assert dictionaries[0] == dictionaries[1], "joint (3.4)"
    assert len(list((root / "data" / "archives").glob("*.t*"))) == parts + 2
    server.requested.clear()
    again = script(root, pair, "--manifest", manifest, "--workers", "1")
    assert again.returncode == 0 and "already prepared" in again.stderr
    assert "made" not in again.stderr and not server.requested


@pytest.mark.parametrize(("lang", "train"), [("de", 3 * COUNT), ("fr", 5 * COUNT)])
def test_the_recipe_of_fairseqs_script(tmp_path, manifest, lang, train):
    """Dev out of train, hyphens split, train normalised and test not, cleaned after the BPE."""
    out = all_but_binary(f"wmt14_en_{lang}_fairseq", manifest, tmp_path / "out")
    every = 100 if lang == "de" else 1333
    held = train // every
    source = [
        line
        for part in find_recipe(f"wmt14_en_{lang}_fairseq")[0].parts("train")
        for line in archives.sentences("en", COUNT, sum(map(ord, part)))
    ]
    dev = [line.replace("’", "'") for line in source[every - 1 :: every]]
    assert held and lines(out / "text" / "valid.en") == dev
    assert len(lines(out / "text" / "train.en")) == train - held
    assert "’" not in (out / "text" / "train.en").read_text(encoding="utf-8"), "normalised"
    assert "’" in (out / "text" / "test.en").read_text(encoding="utf-8"), "as written"
    assert "isn &apos;t" in lines(out / "tok" / "test.en")[0], "its apostrophes are straight"
    assert "well @-@ known" in lines(out / "tok" / "test.en")[0]
    cleaned = stage.record_of(out / "bpe")["report"]["train"]
    assert len(lines(out / "tok" / "train.en")) == cleaned["seen"] == train - held
    for left in zip(*(lines(out / "bpe" / f"train.{x}") for x in ("en", lang)), strict=True):
        short, long = sorted(len(side.split()) for side in left)
        assert short >= 1 and long <= 1.5 * short
    assert len(lines(out / "bpe" / "test.en")) == 20, "of a test set nothing is left out"


def test_the_recipe_of_the_authors_code(tmp_path, manifest, server):
    """News commentary v11, and hyphens left alone."""
    server.requested.clear()
    out = all_but_binary("wmt14_en_de_t2t", manifest, tmp_path / "out")
    assert "training-parallel-nc-v11.tgz" in [name for name, _ in server.requested]
    assert len(lines(out / "bpe" / "train.en")) == 3 * COUNT
    assert "well-known" in lines(out / "tok" / "train.en")[0]


KILLED = """
import os, signal, sys
from vaswani import cli
from vaswani.data import binarise, stage, steps

name, where, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
functions = {"raw": "raw", "text": "text", "tok": "tokens", "codes": "codes", "bpe": "bpe"}

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def half_written(make):
    def run(*arguments):
        make(*arguments)
        out = arguments[-1]
        for path in [out] if out.is_file() else out.iterdir():
            os.truncate(path, path.stat().st_size // 2)
        die()
    return run

def without_marker(path, *rest):
    return die() if path.name == name + ".json" else atomic_write(path, *rest)

if name == "data-bin":
    binarise.LOOK_EVERY = 0.01
    binarise.written_bytes = die
elif where == "half written":
    function = "make_" + functions[name]
    setattr(steps, function, half_written(getattr(steps, function)))
else:
    atomic_write = stage.atomic_write
    stage.atomic_write = without_marker
sys.exit(cli.main(arguments))
"""


def files_of(folder: Path):
    """Every file below a folder but markers, with its bytes."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    named = {str(path.relative_to(folder)): path.read_bytes() for path in found}
    return {name: data for name, data in named.items() if not name.startswith(".stages")}


def test_killed_in_every_stage_it_goes_on_to_the_same_bytes(tmp_path, manifest, english_german):
    """SIGKILL half-way, or between a result and its marker; then the same command to the end."""
    command = ["prepare", "wmt14_en_de", "--manifest", manifest, "--workers", "1"]
    arguments = [*command, "--archives", str(tmp_path / "archives")]

    def run(*more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [python(), *more, *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )

    for name in ("raw", "text", "tok", "codes", "bpe", "data-bin"):
        for where in ("half written", "without a marker") if name == "tok" else ("half written",):
            done = run("-c", KILLED, name, where)
            assert done.returncode == -signal.SIGKILL, (name, where, done.stderr)
    done = run("-m", "vaswani")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("made") == 1, "only what was not done"
    folder = Path("data") / "wmt14_en_de"
    assert files_of(tmp_path / folder) == files_of(english_german / folder)


def test_odd_text_in_an_archive_is_counted_and_left_out(tmp_path):
    """Broken UTF-8, CRLF, NUL, U+2028, empty lines and tabs: one line each, one pair each."""
    www = tmp_path / "www"
    archives.offer(www, 6)
    english = [b"one\r", b"caf\xe9", b"a\x00b", "a\u2028b".encode(), b"", b"tab\there"]
    files = {
        "training/europarl-v7.de-en.en": b"".join(line + b"\n" for line in english),
        "training/europarl-v7.de-en.de": b"".join(b"%d\n" % n for n in range(6)),
    }
    archives.pack(www / "wmt13" / "training-parallel-europarl-v7.tgz", files)
    with archives.Server(www) as other:
        manifest = archives.manifest(www, other.base, tmp_path / "manifest.yaml")
        out = all_but_binary("wmt14_en_de", str(manifest), tmp_path / "out")
    assert lines(out / "text" / "train.en")[:4] == ["one", "a b", "a b", "tab here"]
    assert lines(out / "text" / "train.de")[:4] == ["0", "2", "3", "5"]
    found = stage.record_of(out / "text")["report"]["train"]
    assert found["dropped"] == {"not UTF-8": 1, "with an empty side": 1}
    assert found["seen"] == found["kept"] + 2 == 18


def test_sides_of_different_lengths_in_an_archive_are_refused(tmp_path):
    www = tmp_path / "www"
    archives.offer(www, 6)
    files = {"commoncrawl.de-en.en": b"a\nb\n", "commoncrawl.de-en.de": b"c\n"}
    archives.pack(www / "wmt13" / "training-parallel-commoncrawl.tgz", files)
    with archives.Server(www) as other:
        manifest = archives.manifest(www, other.base, tmp_path / "manifest.yaml")
        with pytest.raises(UserError, match="commoncrawl has 2 and 1 lines in its two languages"):
            all_but_binary("wmt14_en_de", str(manifest), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*raw*")), "nothing half-written"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "choose en-de or en-fr"),
        (["en-es"], "no pair 'en-es'"),
        (["en-de", "--recipe", "google"], "no recipe 'google'; choose paper, t2t or fairseq"),
        (["en-de", "--recipe"], "--recipe needs a value"),
    ],
)
def test_what_the_script_does_not_know_is_said(tmp_path, arguments, message):
    done = script(tmp_path, *arguments)
    assert done.returncode == 1 and message in done.stderr and done.stderr.count("\n") == 1
