"""The wheel: all of it is in it, and each verb works from it, in a folder with nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests import archives

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
OFFLINE = ["--no-index", "--no-deps"]
LANGS = ["--source-lang", "en", "--target-lang", "de"]

VERBS = """
import sys
from fairseq import checkpoint_utils
from fairseq.logging import metrics
from fairseq_cli import train
import vaswani
from vaswani import cli

assert vaswani.__file__.startswith(sys.argv[1]), vaswani.__file__
for line in sys.stdin.read().splitlines():
    metrics.reset()
    train.should_stop_early.__dict__.clear()
    checkpoint_utils.save_checkpoint.__dict__.clear()
    print("##", line, cli.main(line.split()), flush=True)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: building leaves folders beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("transformer_plugin", "vaswani", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=leave)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [*PIP, "wheel", *OFFLINE, "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel) -> Path:
    """The folder that the wheel was installed into."""
    target = wheel.parent / "site"
    subprocess.run([*PIP, "install", *OFFLINE, "--target", str(target), str(wheel)], check=True)
    return target


def test_everything_is_in_it_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for package in ("transformer_plugin", "vaswani"):
        expected |= {str(path.relative_to(ROOT)) for path in (ROOT / package).rglob("*.py")}
    configs = (path.relative_to(ROOT) for path in (ROOT / "configs").rglob("*") if path.is_file())
    page = (ROOT / "vaswani" / "attention_page").glob("page.*")
    expected |= {str(path.relative_to(ROOT)) for path in page}
    assert names == expected | {f"vaswani/{path}" for path in configs}


def test_what_an_index_shows_of_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = message_from_string(archive.read(name).decode("utf-8"))
    assert about["Name"] == "vaswani-transformer" and about["License"] == "MIT"
    assert set(about["Requires-Python"].split(",")) == {">=3.10", "<3.13"}
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload().lstrip().startswith("# vaswani-transformer")
    extras = set(about.get_all("Provides-Extra"))
    assert extras == {"modern", "official", "text", "export", "plots", "dev"}
    assert not [one for one in about.get_all("Requires-Dist") if "extra ==" not in one]


@pytest.mark.slow
def test_each_verb_works_from_it(installed, tmp_path):
    """From text to a score in an empty folder; results of the paper as far as no data are asked."""
    for name, count in (("train", 60), ("valid", 8), ("test", 8)):
        for lang in ("en", "de"):
            lines = archives.sentences(lang, count, count)
            (tmp_path / f"{name}.{lang}").write_text("".join(line + "\n" for line in lines))
    commands = [
        "plugin-dir",
        f"prepare {' '.join(LANGS)} --train train --valid valid --test test --bpe 30 --workers 1 "
        "--out data/mine",
        "prepare --like data/mine --test valid --workers 1 --out data/more",
        "new mine --data data/mine",
        "plan mine --gpus 1",
        "plan wmt14_en_de_base --gpus 2",
        "train mine optimization.max_update=2 checkpoint.save_interval_updates=1",
        "average mine --last 2",
        "generate mine --beam 2 --max-len-b 5",
        "score mine",
        "pack mine",
        "translate runs/mine/model test.en --beam 1 --max-len-a 0 --max-len-b 3 --output test.out",
        "new tuned --data data/mine --from mine",
        "reproduce wmt14-en-de-base --row A-h1 --dry-run",
        "prepare demo_en_de --workers 1",
        "train demo_en_de optimization.max_update=1",
        "generate demo_en_de --beam 1 --max-len-a 0 --max-len-b 3",
        "score demo_en_de",
        "demo-report demo_en_de",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", VERBS, str(installed)],
        input="\n".join(commands),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    ended = [line[3:] for line in done.stdout.splitlines() if line.startswith("## ")]
    assert ended == [f"{command} 0" for command in commands], done.stderr[-3000:]
