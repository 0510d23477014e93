"""``vaswani reproduce``: from archives that this machine offers to a BLEU table.

The model is a small one, by changes that anybody could give. The verbs run in this process; one
pair goes the whole way by default, and the rest is slow.
"""

import contextlib
import io
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests import archives, stock, wmt14_scripts
from vaswani.folders.search_options import CPU_BATCH
from vaswani.reproduction import runner

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
#: the same for fairseq-train
SMALL_FLAGS = ["--cpu", "--batch-tokens", "600", "--max-update", "45"]
SMALL_FLAGS += ["--save-interval-updates", "9", "--warmup-updates", "10", "--num-workers", "0"]
for _side in ("encoder", "decoder"):
    SMALL_FLAGS += [f"--{_side}-layers", "1", f"--{_side}-embed-dim", "16"]
    SMALL_FLAGS += [f"--{_side}-ffn-embed-dim", "16", f"--{_side}-attention-heads", "2"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    www = tmp_path_factory.mktemp("www")
    archives.offer(www, COUNT)
    with archives.Server(www) as server:
        archives.manifest(www, server.base, www / "manifest.yaml")
        yield server


class Place:
    """A folder to reproduce in."""

    def __init__(self, folder: Path, server: archives.Server) -> None:
        self.folder = folder
        self.manifest = server.www / "manifest.yaml"
        self.run = folder / "runs" / "wmt14_en_de_base"

    def prepare(self) -> None:
        """Prepare the data from the archives that this machine serves."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            archives = ["--manifest", str(self.manifest), "--workers", "1"]
            assert stock.vaswani("prepare", "wmt14_en_de", *archives) == 0

    def reproduce(self, *more: str, name: str = "wmt14-en-de-base") -> SimpleNamespace:
        """Run ``vaswani reproduce NAME`` at a small size; return its exit code and its output."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(runner, "run_command", lambda command: stock.vaswani(*command[3:]))
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = stock.vaswani("reproduce", name, *SMALL, *more)
        stages = [line.split()[1] for line in err.getvalue().splitlines() if line[:3] == "== "]
        return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue(), stages=stages)

    def in_a_fork(self, before: Callable[[], Any]) -> int:
        """Return the exit code of ``reproduce`` in another process; if negative, the signal."""

        def run():
            before()
            os._exit(self.reproduce().code)

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join()
        return process.exitcode

    def result(self, run: str = "wmt14_en_de_base", subset: str = "test") -> tuple[str, dict]:
        """Return the translations, and every score without the names of files."""
        folder = self.folder / "runs" / run / "eval"
        scores = json.loads((folder / f"{subset}.score.json").read_text(encoding="utf-8"))
        rows = {key: row for key, row in scores.items() if isinstance(row, dict) and "score" in row}
        return (folder / f"{subset}.hyp").read_text(encoding="utf-8"), rows

    def times(self) -> dict[str, int]:
        """Return when each file was written, except locks, and scores, which are written again."""
        files = [path for top in ("data", "runs") for path in (self.folder / top).rglob("*")]
        again = (".lock", "lock", "test.score.json")
        named = {str(path): path for path in files if path.is_file() and path.name not in again}
        return {name: path.stat().st_mtime_ns for name, path in named.items()}


@pytest.fixture(scope="module")
def english_german(tmp_path_factory, server) -> Place:
    """Reproduce the whole result, and return its place."""
    done = Place(tmp_path_factory.mktemp("en-de"), server)
    done.prepare()
    done.said = done.reproduce()
    assert done.said.code == 0, done.said.err
    return done


@pytest.fixture
def prepared(tmp_path, server, english_german) -> Place:
    """Make a folder with the data of English-German."""
    place = Place(tmp_path, server)
    shutil.copytree(english_german.folder / "data", place.folder / "data")
    return place


def test_english_german_to_bleu(english_german):
    """With five seeds BLEU was 42.9 to 46.2, on AMX and on AVX2."""
    place = english_german
    said = english_german.said
    order = ["prepare:", "train:", "average:", "generate:", "score:", "pack:"]
    assert said.stages == order
    text = place.folder / "data" / "wmt14_en_de" / "text" / "train.en"
    assert text.read_bytes().count(b"\n") == 3 * COUNT
    assert "the average of 5 checkpoints (updates 9, 18, 27, 36, 45)" in said.out
    trained = yaml.safe_load((place.run / "config.yaml").read_text(encoding="utf-8"))
    assert trained["dataset"]["max_tokens"] != 3584, "the batch was planned for this machine"
    hypotheses, rows = place.result()
    assert hypotheses.count("\n") == 20
    assert {"bleu_tokenised", "bleu", "chrf", "compound_split"} <= set(rows)
    assert rows["bleu_tokenised"]["score"] > 10, "it says more than nothing"


def test_run_twice_the_second_does_nothing(english_german, server):
    before, result = english_german.times(), english_german.result()
    server.requested.clear()
    assert english_german.reproduce().code == 0
    assert english_german.times() == before and english_german.result() == result
    assert not server.requested


def kill_in(stage: str, left: int) -> Callable[[], None]:
    """Return a function after which this process is killed as a stage moves its n-th file."""

    def before():
        run = stock.vaswani
        replace = os.replace
        moves = []

        def vaswani(verb, *words):
            moves.extend([0] if verb == stage else [])
            return run(verb, *words)

        def move(*arguments, **options):
            if moves:
                moves.append(0)
            if len(moves) > left:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(*arguments, **options)

        stock.vaswani = vaswani
        os.replace = move

    return before


@pytest.mark.slow
def test_killed_in_every_stage_it_goes_on_to_the_same_result(prepared, english_german):
    """SIGKILL between a file that is written and its name; training twice."""
    for stage, left in (("train", 5), ("train", 4), ("average", 1), ("generate", 2)):
        assert prepared.in_a_fork(kill_in(stage, left)) == -signal.SIGKILL, stage
    assert prepared.reproduce().code == 0
    assert prepared.result() == english_german.result()


@pytest.mark.slow
def test_a_row_of_table_3_is_scored_on_the_development_set_without_averaging(prepared):
    said = prepared.reproduce("--row", "b-dk16")
    assert said.code == 0, said.err
    run = prepared.folder / "runs" / "table3_B_dk16"
    trained = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert trained["model"]["head_key_dim"] == 16
    translated = json.loads((run / "eval" / "valid.json").read_text(encoding="utf-8"))
    assert translated["checkpoint"].endswith("checkpoint_last.pt")
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    last = [line for line in lines if line.get("valid_num_updates") == 45][-1]
    bleu = prepared.result("table3_B_dk16", "valid")[1]["compound_split"]["score"]
    perplexity, score = (line.split()[-2:] for line in said.out.splitlines()[-2:])
    assert perplexity == ["5.16", f"{last['valid_ppl']:.2f}"]
    assert score == ["25.1", f"{bleu:.2f}"]


def test_a_command_that_fails_stops_all(capfd):
    """Each is a process of its own; its exit code is that of the whole."""
    assert runner.run_commands([["plugin-dir"], ["prepare", "nothing"], ["plugin-dir"]]) == 1
    out, err = capfd.readouterr()
    assert out.count("transformer_plugin") == 1 and "'prepare'" in err.splitlines()[-1]


def test_the_scripts_of_fairseqs_commands_end_with_the_same_bits(tmp_path, server, english_german):
    """scripts/wmt14 as a user starts them, beside ``vaswani reproduce``."""
    forked = ["fairseq-preprocess", "fairseq-train", "fairseq-generate", "sacremoses", "vaswani"]
    commands = tmp_path / "commands"
    wmt14_scripts.serve_with_curl(commands, server.www)
    planned = yaml.safe_load((english_german.run / "config.yaml").read_text(encoding="utf-8"))
    batch = ["--max-tokens", str(planned["dataset"]["max_tokens"])]
    batch += ["--update-freq", str(planned["optimization"]["update_freq"][0])]
    arguments = {
        "prepare": [],
        "train": [*SMALL_FLAGS, *batch],
        "average": [],
        "generate": ["--cpu", "--max-tokens", str(CPU_BATCH)],
        "score": [],
    }
    for name, words in arguments.items():
        variables = {"PAIR": "en-de", "SIZE": "base", "GPUS": "1"}
        done = wmt14_scripts.run(
            name,
            *words,
            folder=tmp_path,
            commands=commands,
            variables=variables,
            forked=forked,
        )
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"

    theirs = tmp_path / "data" / "wmt14_en_de"
    ours = english_german.folder / "data" / "wmt14_en_de"
    subwords = [theirs / "codes", *(theirs / "bpe").iterdir()]
    tokens = [
        theirs / folder / f"test.{lang}" for folder in ("text", "tok") for lang in ("en", "de")
    ]
    binary = [path for path in (theirs / "data-bin").iterdir() if path.suffix != ".log"]
    assert len(subwords) == 7 and len(binary) == 14
    for path in (*subwords, *tokens, *binary):
        assert path.read_bytes() == (ours / path.relative_to(theirs)).read_bytes(), path.name
    run = tmp_path / "runs" / "wmt14_en_de_base"
    for name in ("checkpoint_last.pt", "checkpoint_average_last5.pt"):
        paths = (place / "checkpoints" / name for place in (run, english_german.run))
        difference, parameter = stock.largest_difference(*paths)
        assert difference == 0, f"{name}: {parameter}"
    translations = [place / "eval" / "test.hyp.tok" for place in (run, english_german.run)]
    assert translations[0].read_bytes() == translations[1].read_bytes()
    tokenised = english_german.result()[1]["bleu_tokenised"]["score"]
    scores = (run / "eval" / "scores").read_text(encoding="utf-8").splitlines()
    assert f" = {tokenised:.2f} " in scores[scores.index("tokens:") + 1]
