"""``scripts/reproduce.sh``: from nothing to a BLEU table, from archives that this machine offers.

The model is a small one, by changes that anybody could give. Five commands that import torch take
most of the time, so one pair goes the whole way by default, and the rest is slow.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import pytest
import yaml

from tests import archives
from vaswani import cli

ROOT = Path(__file__).resolve().parents[2]
#: pairs in each training archive
COUNT = 280
SMALL = [
    *(
        f"model.{side}_{name}"
        for side in ("encoder", "decoder")
        for name in ("layers=1", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2")
    ),
    "common.cpu=true",
    "task.batch_tokens=600",
    # five checkpoints, none at the end of an epoch (20 updates)
    "optimization.max_update=45",
    "checkpoint.save_interval_updates=9",
    "lr_scheduler.warmup_updates=10",
    "dataset.num_workers=0",
]
#: kills the process, and the one that started it, where it moves its n-th file into place
KILLER = """
import os, signal, sys

stage, _, left = os.environ.get("KILL_IN", "").partition(":")

class Counted:  # no function, which a class that has it as an attribute would take for a method
    left = int(left or 0)

    def __init__(self, move):
        self.move = move

    def __call__(self, *arguments, **options):
        if sys.argv[1:2] == [stage]:
            Counted.left -= 1
            if Counted.left == 0:
                for process in (os.getppid(), os.getpid()):
                    os.kill(process, signal.SIGKILL)
        return self.move(*arguments, **options)

os.replace, os.rename = Counted(os.replace), Counted(os.rename)
"""
FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from vaswani import cli
sys.exit(cli.main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    www = tmp_path_factory.mktemp("www")
    archives.offer(www, COUNT)
    with archives.Server(www) as server:
        archives.manifest(www, server.base, www / "manifest.yaml")
        yield server


class Place:
    """A folder to reproduce in, with the commands that somebody would type there."""

    def __init__(self, folder: Path, server: archives.Server) -> None:
        self.folder = folder
        # the prepared data's own place names the archives, wherever the rest happens
        self.options = ["--manifest", str(server.www / "manifest.yaml"), "--workers", "1", *SMALL]
        (folder / "bin").mkdir()
        command = f'#!/bin/sh\nexec "{sys.executable}" -m vaswani "$@"\n'
        (folder / "bin" / "vaswani").write_text(command, encoding="utf-8")
        (folder / "bin" / "vaswani").chmod(0o755)
        (folder / "bin" / "sitecustomize.py").write_text(KILLER, encoding="utf-8")

    def run(self, command: List[str], **environ: str) -> "subprocess.CompletedProcess[str]":
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        modules = f"{self.folder / 'bin'}:{ROOT}"
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": modules, **environ},
            capture_output=True,
            text=True,
            timeout=300,
        )

    def reproduce(self, name: str, *more: str, **environ: str):
        """``scripts/reproduce.sh NAME``, in small."""
        script = str(ROOT / "scripts" / "reproduce.sh")
        return self.run(["bash", script, name, *self.options, *more], **environ)

    def result(self, run: str = "wmt14_en_de_base", subset: str = "test"):
        """The translations, and every score without the names of files."""
        folder = self.folder / "runs" / run / "eval"
        scores = json.loads((folder / f"{subset}.score.json").read_text(encoding="utf-8"))
        rows = {key: row for key, row in scores.items() if isinstance(row, dict) and "score" in row}
        return (folder / f"{subset}.hyp").read_text(encoding="utf-8"), rows

    def times(self) -> Dict[str, int]:
        """When each file was written, but for the scores, which are shown again, and locks."""
        files = [path for top in ("data", "runs") for path in (self.folder / top).rglob("*")]
        again = (".lock", "lock", "test.score.json")
        named = {str(path): path for path in files if path.is_file() and path.name not in again}
        return {name: path.stat().st_mtime_ns for name, path in named.items()}


@pytest.fixture
def place(tmp_path, server) -> Place:
    return Place(tmp_path, server)


@pytest.fixture(scope="module")
def english_german(tmp_path_factory, server) -> Place:
    """Where the whole of it has been done."""
    done = Place(tmp_path_factory.mktemp("en-de"), server)
    finished = done.reproduce("wmt14-en-de-base")
    assert finished.returncode == 0, finished.stderr
    done.message = finished
    return done


@pytest.fixture
def prepared(place, english_german) -> Place:
    """A folder with the data of English-German."""
    shutil.copytree(english_german.folder / "data", place.folder / "data")
    return place


def check_the_whole(
    place: Place, message: "subprocess.CompletedProcess[str]", run: str, parts: int
):
    """Every stage left what it promises, and what it learned shows in the scores."""
    folder = place.folder / "runs" / run
    order = [line.split()[1] for line in message.stderr.splitlines() if line.startswith("== ")]
    assert order == ["prepare:", "train:", "average:", "generate:", "score:", "pack:"]
    pair = run[len("wmt14_") : run.rindex("_")]
    data = place.folder / "data" / f"wmt14_{pair}"
    assert (data / "text" / "train.en").read_bytes().count(b"\n") == parts * COUNT
    assert "estimated from WMT14's mean lengths" in message.stderr
    assert f"measured on data/wmt14_{pair}/data-bin" in message.stderr, "once it is there"
    updates = json.loads((folder / "finished.json").read_text(encoding="utf-8"))["num_updates"]
    assert updates == 45
    hypotheses, rows = place.result(run)
    assert hypotheses.count("\n") == 20
    expected = {"bleu_tokenised", "bleu", "chrf", *(["compound_split"] if pair == "en_de" else [])}
    assert expected <= set(rows)
    assert rows["bleu_tokenised"]["score"] > 10, "it says more than nothing"
    assert "tokenised BLEU" in message.stdout and "sacreBLEU" in message.stdout


def test_english_german_from_nothing_to_bleu(english_german):
    message = english_german.message
    check_the_whole(english_german, message, "wmt14_en_de_base", 3)
    assert "the average of 5 checkpoints (updates 9, 18, 27, 36, 45)" in message.stdout
    config = english_german.folder / "runs" / "wmt14_en_de_base" / "config.yaml"
    trained = yaml.safe_load(config.read_text(encoding="utf-8"))
    assert trained["dataset"]["max_tokens"] % 8 == 0
    assert trained["dataset"]["max_tokens"] != 3584, "the batch was planned for this machine"


@pytest.mark.slow
def test_english_french_from_nothing_to_bleu(place):
    """The big experiment averages 20 checkpoints."""
    more = ["checkpoint.save_interval_updates=2", "--from", "plan"]
    message = place.reproduce("wmt14_en_fr_big", *more)
    assert message.returncode == 0, message.stderr
    check_the_whole(place, message, "wmt14_en_fr_big", 5)
    assert "the average of 20 checkpoints" in message.stdout


@pytest.mark.slow
def test_run_twice_the_second_does_nothing(english_german, server):
    before, result = english_german.times(), english_german.result()
    server.requested.clear()
    again = english_german.reproduce("wmt14-en-de-base")
    assert again.returncode == 0 and not server.requested
    for word in ("already prepared", "already trained", "already averaged", "already translated"):
        assert word in again.stderr
    assert english_german.times() == before and english_german.result() == result


@pytest.mark.slow
def test_a_run_from_a_stage_on(prepared, english_german):
    """The stages before are left alone; a training that is there is kept under another name."""
    run = prepared.folder / "runs" / "wmt14_en_de_base"
    shutil.copytree(english_german.folder / "runs" / "wmt14_en_de_base", run)
    translated = (run / "eval" / "test.log").stat().st_mtime_ns
    message = prepared.reproduce("wmt14-en-de-base", "--from", "generate")
    assert message.returncode == 0 and "== train" not in message.stderr
    assert (run / "eval" / "test.log").stat().st_mtime_ns > translated
    assert prepared.result() == english_german.result()
    message = prepared.reproduce("wmt14-en-de-base", "--from", "train")
    assert message.returncode == 0 and "== prepare" not in message.stderr
    assert "kept as runs/wmt14_en_de_base.kept-1" in message.stderr
    assert (
        run.with_name("wmt14_en_de_base.kept-1") / "checkpoints" / "checkpoint_last.pt"
    ).is_file()
    assert prepared.result() == english_german.result(), "the same seed, the same batches"


@pytest.mark.slow
def test_killed_in_every_stage_it_goes_on_to_the_same_result(place, english_german):
    """SIGKILL between a file that is written and its name; training twice."""
    for kill in ("prepare:4", "train:5", "train:4", "average:1", "generate:2"):
        message = place.reproduce("wmt14-en-de-base", KILL_IN=kill)
        assert message.returncode == -signal.SIGKILL, (kill, message.stderr)
        begun = [line for line in message.stderr.splitlines() if line.startswith("== ")]
        assert begun[-1].startswith(f"== {kill.split(':')[0]}:"), message.stderr
    message = place.reproduce("wmt14-en-de-base")
    assert message.returncode == 0, message.stderr
    assert place.result() == english_german.result()


@pytest.mark.slow
def test_a_full_disk_in_training_is_one_sentence_and_with_room_it_goes_on(prepared, english_german):
    """A limit on the size of files stands for the disk: the error comes from the same place."""
    line = ["reproduce", "wmt14-en-de-base", *prepared.options]
    message = prepared.run([sys.executable, "-c", FULL, "30000", *line])
    assert message.returncode == 1 and "Traceback" not in message.stderr, message.stderr
    assert "File too large" in message.stderr
    assert "the stage 'train' ended with exit code 1" in message.stderr.splitlines()[-1]
    message = prepared.reproduce("wmt14-en-de-base")
    assert message.returncode == 0, message.stderr
    assert prepared.result() == english_german.result()


@pytest.mark.slow
def test_a_row_of_table_3_on_the_development_set_without_averaging(prepared):
    message = prepared.reproduce("wmt14-en-de-base", "--row", "b-dk16")
    assert message.returncode == 0, message.stderr
    run = prepared.folder / "runs" / "table3_B_dk16"
    trained = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert trained["model"]["head_key_dim"] == 16
    translated = json.loads((run / "eval" / "valid.json").read_text(encoding="utf-8"))
    assert translated["checkpoint"].endswith("checkpoint_last.pt")
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    last = [line for line in lines if line.get("valid_num_updates") == 45][-1]
    report = json.loads((run / "eval" / "table3.json").read_text(encoding="utf-8"))
    assert report["paper"]["ppl"] == 5.16 and report["paper"]["bleu"] == 25.1
    assert report["here"]["ppl"] == last["valid_ppl"]
    bleu = prepared.result("table3_B_dk16", "valid")[1]["compound_split"]["score"]
    assert report["here"]["bleu"] == bleu
    assert message.stdout.splitlines()[-2].split() == [
        "compound-split",
        "BLEU",
        "25.1",
        f"{bleu:.2f}",
    ]
    assert "20 sentences: newstest2013 has 3,000" in message.stdout


def test_what_stops_a_stage_stops_all(place, monkeypatch, capfd):
    """No archive can be had: its sentence, its exit code, and no training."""
    table = yaml.safe_load(Path(place.options[1]).read_text(encoding="utf-8"))
    for part in table["parts"].values():
        for source in part["sources"]:
            source["url"] = source["url"].replace("/wmt", "/gone")
    (place.folder / "gone.yaml").write_text(yaml.safe_dump(table), encoding="utf-8")
    monkeypatch.chdir(place.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    line = ["reproduce", "wmt14-en-de-base", *place.options, "--manifest", "gone.yaml"]
    assert cli.main(line) == 1
    message = capfd.readouterr().err
    assert "Traceback" not in message and "== train" not in message
    assert message.splitlines()[-2].startswith("vaswani prepare: ") and "404" in message
    assert message.splitlines()[-1].endswith("the stage 'prepare' ended with exit code 1")
    assert not (place.folder / "runs").exists()
