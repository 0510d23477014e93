"""``vaswani translate`` and ``Translator``: text in, text out, as prepare and generate do it."""

import errno
import gzip
import importlib.metadata
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Dict, List

import pytest
import torch
import yaml

from tests import archives, packed, stock
from tests.conftest import preprocess
from vaswani import Translator
from vaswani.commands import translate
from vaswani.data import binarise
from vaswani.experiment.validation import Validation
from vaswani.model_folder.text_recipe import TextRecipe

ODD = [
    "The well-known king doesn’t see the “letter” (1,234.5 km) & more.",
    "",
    "\u00a0The\u2028house\tof  Mr. Smith\x07 \ufeff",
    "House 北京 🙂 <unk> @@ &amp; a@@b |",
    "   ",
    "the " * 400,
]
#: with a bound on the length that does not depend on the batch
SEARCH = {"beam": 4, "lenpen": 0.6, "max_len_a": 0, "max_len_b": 20}


# ---- against prepare and generate, and fairseq's own ways ---------------------------------------


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """Sentences prepared, a run that was trained on them a little, its test set decoded; packed."""
    place = tmp_path_factory.mktemp("spoken")
    for name, count in {"train": 150, "valid": 10, "test": 15}.items():
        for lang in ("en", "de"):
            lines = archives.sentences(lang, count, count) + (ODD if name == "test" else [])
            (place / f"{name}.{lang}").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def in_process(bpe, target, langs, splits, *_, **__):
        preprocess(bpe, target, "--joined-dictionary")

    data, folder = place / "data" / "mine", place / "runs" / "mine"
    sets = [word for name in ("train", "valid", "test") for word in (f"--{name}", place / name)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarise, "binarise", in_process)
        arguments = ["--source-lang", "en", "--target-lang", "de", "--bpe", 60, "--workers", 1]
        assert stock.vaswani("prepare", *arguments, *sets, "--out", data) == 0
    stock.train(
        data / "data-bin", folder / "checkpoints", "--max-update", "150", "--no-epoch-checkpoints"
    )
    (folder / "checkpoints" / "checkpoint_best.pt").unlink()
    task = {"_name": "vaswani_translation", "data": str(data / "data-bin")}
    task.update(source_lang="en", target_lang="de", max_source_positions=300)
    config = {"task": task, "generation": SEARCH}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert stock.vaswani("generate", folder, "--workers", 1) == 0
    state = folder / "checkpoints" / "checkpoint_last.pt"
    saved = torch.load(state, weights_only=False)
    saved["cfg"]["model"]["max_source_positions"] = 300
    torch.save(saved, state)
    assert stock.vaswani("pack", folder) == 0
    hypotheses = (folder / "eval" / "test.hyp").read_text(encoding="utf-8").split("\n")[:-1]
    log = (folder / "eval" / "test.log").read_text(encoding="utf-8").split("\n")
    scores = {number: float(row[0]) for number, row in stock.results(log, "H").items()}
    return SimpleNamespace(
        place=place, data=data, run=folder, expected=hypotheses, scores=natural(scores)
    )


def natural(scores: Dict[int, float]) -> Dict[int, float]:
    """fairseq prints log-probabilities to the base 2."""
    return {number: score * math.log(2) for number, score in scores.items()}


def assert_same(texts: List[str], scores: Dict[int, float], spoken: SimpleNamespace) -> None:
    """As ``generate`` found, or as good: in other batches sums have other last digits."""
    for number, (text, expected) in enumerate(zip(texts, spoken.expected, strict=False)):
        if number in scores:
            assert scores[number] == pytest.approx(spoken.scores[number], abs=1e-4), number
        else:  # nothing to translate
            assert text == expected == "", number


def test_raw_text_is_translated_as_prepare_and_generate_do(spoken, tmp_path, capsys):
    text = spoken.place / "test.en"
    assert stock.vaswani("translate", spoken.run / "model", text, "--scores") == 0
    out, error = capsys.readouterr()
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert len(rows) == len(spoken.expected)
    found = {number: float(row[1]) for number, row in enumerate(rows) if row[1]}
    assert_same([row[0] for row in rows], found, spoken)
    assert len(set(spoken.expected)) > 2 and spoken.expected[16] == spoken.expected[20 - 1] == ""
    assert "1 line longer than the model's limit" in error and "test.en" not in error
    assert "empty in the output: 21" in error
    assert "unknown to the model" in error and "北" in error


def test_a_run_in_bf16_is_decoded_in_fp32_by_every_command(spoken, tmp_path, monkeypatch, capsys):
    """Unless another precision is asked for, of which there are other translations."""
    for module in ("precision", "inference"):  # as on a processor that has them
        monkeypatch.setattr(f"transformer_plugin.{module}.has_bf16_units", lambda device: True)
    run = shutil.copytree(spoken.run, tmp_path / "run")
    for made in ("eval", "model"):
        shutil.rmtree(run / made)
    state = run / "checkpoints" / "checkpoint_last.pt"
    saved = torch.load(state, weights_only=False)
    saved["cfg"]["model"]["precision"] = "bf16"
    torch.save(saved, state)

    def decoded(*options) -> Dict[int, float]:
        assert stock.vaswani("generate", run, "--workers", 1, *options) == 0
        assert "already" not in capsys.readouterr().err
        log = (run / "eval" / "test.log").read_text(encoding="utf-8").split("\n")
        return natural({number: float(row[0]) for number, row in stock.results(log, "H").items()})

    assert decoded() == pytest.approx(spoken.scores, abs=1e-4)
    assert json.loads((run / "eval" / "test.json").read_text())["precision"] == "fp32"
    assert stock.vaswani("pack", run) == 0
    assert stock.vaswani("translate", run / "model", spoken.place / "test.en", "--scores") == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]
    found = {number: float(row[1]) for number, row in enumerate(rows) if row[1]}
    assert_same([row[0] for row in rows], found, spoken)
    assert Validation(state, run).model.decoder.precision == "fp32"  # of 'vaswani average'
    in_bf16 = decoded("--precision", "bf16")
    assert in_bf16 != pytest.approx(spoken.scores, abs=1e-3)
    assert json.loads((run / "eval" / "test.json").read_text())["precision"] == "bf16"


def test_fairseqs_own_from_pretrained(spoken):
    from transformer_plugin.model import VaswaniTransformerModel

    hub = VaswaniTransformerModel.from_pretrained(
        str(spoken.run / "checkpoints"),
        "checkpoint_last.pt",
        data_name_or_path=str(spoken.data / "data-bin"),
        tokenizer="moses",
        moses_no_dash_splits=True,
        bpe="subword_nmt",
        bpe_codes=str(spoken.data / "codes"),
    )
    lines = (spoken.place / "test.en").read_text(encoding="utf-8").split("\n")[:16]
    best = [found[0] for found in hub.generate([hub.encode(line) for line in lines], **SEARCH)]
    scores = {number: float(one["score"]) for number, one in enumerate(best)}
    assert_same(hub.translate(lines, **SEARCH), scores, spoken)


@pytest.mark.slow
def test_fairseq_interactive(spoken, monkeypatch):
    monkeypatch.setattr(stock, "_first", {})  # its copies know nothing of a tokeniser
    lines = (spoken.place / "test.en").read_text(encoding="utf-8").split("\n")[:16]
    flags = [*("--tokenizer", "moses", "--moses-no-dash-splits"), *("--bpe", "subword_nmt")]
    flags += ["--bpe-codes", str(spoken.data / "codes"), "--task", "vaswani_translation"]
    flags += [*("--source-lang", "en", "--target-lang", "de"), "--max-len-b", "20"]
    found = stock.interactive(
        *(spoken.data / "data-bin", str(spoken.run / "checkpoints" / "checkpoint_last.pt")),
        *("\n".join(lines) + "\n", "--lenpen", "0.6", *flags),
    )
    rows = stock.results(found, "D")
    scores = natural({number: float(rows[number][0]) for number in range(16)})
    assert_same([rows[number][1] for number in range(16)], scores, spoken)


def test_alignments_are_fairseqs(spoken):
    """Of the subwords; ``aligned_words`` makes pairs of words of them."""
    checkpoint = str(spoken.run / "checkpoints" / "checkpoint_last.pt")
    flags = ["--print-alignment", "--lenpen", "0.6", "--max-len-b", "20"]
    lines = stock.generate(
        spoken.data / "data-bin", checkpoint, *flags, "--skip-invalid-size-inputs-valid-test"
    )
    rows, said = (stock.results(lines, kind) for kind in "AH")
    translator = Translator.from_pretrained(spoken.run / "model")
    text = (spoken.place / "test.en").read_text(encoding="utf-8").split("\n")[:15]
    sources = [translator.read(line) for line in text]
    search = translator.engine.searcher(translator.options.changed(print_alignment=True))
    found = translator.search(sources, search)
    for number, (best, *_) in enumerate(found):
        tokens, attended = best.tokens, best.attended
        score = natural({number: float(said[number][0])})[number]
        if translator.engine.target.string(torch.tensor(tokens)) != said[number][1]:
            assert best.score == pytest.approx(score, abs=1e-4), number
            continue
        pairs = [
            f"{at}-{n}"
            for n, (token, at) in enumerate(zip(tokens, attended, strict=True))
            if token != 2
        ]
        assert " ".join(pairs) == rows[number][0], number


def test_other_text_is_prepared_like_a_model(spoken, light, tmp_path, capsys):
    arguments = ["--test", spoken.place / "test", "--workers", 1, "--out", tmp_path / "more"]
    model = spoken.run / "model"
    assert stock.vaswani("prepare", "--like", model, *arguments) == 0, capsys.readouterr().err
    for name in ("bpe/test.en", "bpe/test.de", "codes"):
        assert (tmp_path / "more" / name).read_bytes() == (spoken.data / name).read_bytes()


# ---- of a small model ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "model"
    packed.pack(folder, TextRecipe("en", "de", bpe=None))
    return folder


@pytest.fixture
def text(tmp_path) -> Path:
    """23 lines: some blank, one too long, words that are not known."""
    words = packed.WORDS
    lines = [" ".join(words[n % 5 : n % 11 + 3]) for n in range(23)]
    lines[4], lines[9], lines[17] = "", "the " * 70, "the zebra sees a Zebra ."
    path = tmp_path / "text.en"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def output(capsys, *arguments: object) -> str:
    assert stock.vaswani("translate", *arguments) == 0
    return capsys.readouterr().out


def test_every_line_is_answered_in_its_place(model, text, capsys):
    lines = output(capsys, model, text).split("\n")[:-1]
    assert [number for number, line in enumerate(lines) if not line] == [4, 9]
    assert len(lines) == 23 and len(set(lines)) > 5
    one_by_one = output(capsys, model, text, "--max-tokens", 1).split("\n")[:-1]
    assert len(one_by_one) == 23


def test_files_of_whole_windows_joined_are_the_whole(model, text, tmp_path, capsys):
    """Whatever the number of processes: what ``split -l`` makes can be translated apart."""
    whole = output(capsys, model, text, "--buffer-size", 5, "--scores", "--workers", 1)
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = []
    for first in (0, 15):
        (tmp_path / "part").write_text("".join(lines[first : first + 15]), encoding="utf-8")
        flags = ["--buffer-size", 5, "--scores", "--workers", 2]
        parts.append(output(capsys, model, tmp_path / "part", *flags))
    assert "".join(parts) == whole


def test_several_files_are_one_text_and_may_be_packed(model, text, tmp_path, capsys):
    lines = text.read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(lines[:10]))
    with gzip.open(tmp_path / "b.gz", "wb") as stream:
        stream.write(b"".join(lines[10:])[:-1])  # the last line is not ended
    both = output(capsys, model, tmp_path / "a", tmp_path / "b.gz")
    assert both == output(capsys, model, text)


def test_a_pipe_and_nothing(model, text, capsys, monkeypatch):
    expected = output(capsys, model, text)
    for data, result in {text.read_bytes(): expected, b"": ""}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert output(capsys, model) == result


def test_a_prompt_answers_each_line(model, capsys, monkeypatch):
    class Terminal(io.BytesIO):
        requested = 0

        def readline(self, *_):
            Terminal.requested += 1
            return super().readline()

    class Output(io.StringIO):
        def write(self, part):
            answers.append((Terminal.requested, part))
            return len(part)

    answers: list = []
    data = Terminal(b"the house\n\xff\n\nis big .\n")
    stdin = SimpleNamespace(buffer=data, isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    monkeypatch.setattr(sys, "stdout", Output())
    assert stock.vaswani("translate", model) == 0
    assert [requested for requested, _ in answers] == [1, 3, 4] and answers[1][1] == "\n"
    assert "line 2: byte 1 is not UTF-8" in capsys.readouterr().err


def test_the_prompt_appears_when_the_model_is_ready(model, capsys, monkeypatch):
    """The first answer is not kept waiting by loading."""
    load, said = translate.Translating.load, []

    def loading(self):
        said.append(capsys.readouterr().err)
        load(self)

    monkeypatch.setattr(translate.Translating, "load", loading)
    stdin = SimpleNamespace(buffer=io.BytesIO(b"the house\n"), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert stock.vaswani("translate", model) == 0
    assert said == [""] and capsys.readouterr().err.startswith("one sentence per line")


@pytest.mark.parametrize(
    ("number", "code", "end"),
    [(signal.SIGINT, 130, "> \n"), (signal.SIGTERM, 143, "> \nvaswani translate: terminated.\n")],
)
def test_ctrl_c_just_ends_the_prompt(model, capsys, monkeypatch, number, code, end):
    class Terminal(io.BytesIO):
        def readline(self, *_):
            os.kill(os.getpid(), number)
            time.sleep(5)

    stdin = SimpleNamespace(buffer=Terminal(), isatty=lambda: True)
    monkeypatch.setattr(sys, "stdin", stdin)
    assert stock.vaswani("translate", model) == code
    assert capsys.readouterr().err.endswith(end)


def test_columns(model, text, capsys):
    flags = ["--nbest", 2, "--scores", "--print-alignment", "--replace-unk"]
    rows = [line.split("\t") for line in output(capsys, model, text, *flags).split("\n")[:-1]]
    assert len(rows) == 2 * 23 and {len(row) for row in rows} == {5}
    assert rows[2 * 4] == rows[2 * 9 + 1] == [""] * 5
    translator = Translator.from_pretrained(model)
    sentences = text.read_text(encoding="utf-8").split("\n")[:-1]
    options = {"nbest": 2, "print_alignment": True, "replace_unk": True}
    for number, one in enumerate(translator.translate(sentences, **options)):
        for place, found in enumerate(one.hypotheses):
            row = rows[2 * number + place]
            assert row[0] == found.text and row[2].split() == one.source_tokens
            assert float(row[1]) == pytest.approx(found.score, abs=1e-3)
            assert row[3].split() == found.tokens
            assert row[4].split() == [f"{s}-{t}" for s, t in found.alignment]
            assert {t for _, t in found.alignment} == set(range(len(found.tokens)))
            assert all(s < len(one.source_tokens) for s, _ in found.alignment)


def test_unknown_words_are_copied(model, tmp_path):
    """A model that says of everything that it is unknown copies what it looks at."""
    translator = Translator.from_pretrained(model)
    with torch.no_grad():
        weight = translator.engine.model.decoder.output_projection.weight
        weight[3] = weight.abs().max() * 20 * torch.sign(weight[4:].sum(0))
    translator.engine.model.decoder.output_projection.packed = None
    sentence = "Zebras & the dog"
    (one,) = translator.translate([sentence], unkpen=-100)
    assert "<unk>" in one.text and one.unknown == ["Zebras", "&amp;"]
    (other,) = translator.translate([sentence], unkpen=-100, replace_unk=True)
    assert "<unk>" not in other.text and set(other.text.split()) <= set(sentence.split())


def test_sampling_depends_on_the_seed_alone(model, text, capsys):
    flags = ["--sampling", "--beam", 1, "--buffer-size", 5]
    first = output(capsys, model, text, *flags, "--seed", 1)
    assert first == output(capsys, model, text, *flags, "--seed", 1, "--workers", 2)
    assert first != output(capsys, model, text, *flags, "--seed", 2)


# ---- --output -----------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """The windows that were translated, by the number of their first line."""
    seen = []
    original = translate.Translating.rows

    def rows(self, lines, first, *rest):
        seen.append(first)
        if first in fail:
            raise fail.pop(first)
        return original(self, lines, first, *rest)

    fail: dict = {}
    monkeypatch.setattr(translate.Translating, "rows", rows)
    return SimpleNamespace(seen=seen, fail=fail)


def left(folder: Path) -> list:
    return sorted(path.name for path in folder.iterdir())


def test_the_same_command_continues(model, text, tmp_path, counted, capsys):
    expected = output(capsys, model, text, "--buffer-size", 5).encode()
    folder = tmp_path / "out"
    folder.mkdir()
    command = ["translate", model, text, "--buffer-size", 5, "--output", folder / "text.de"]
    counted.fail.update({1: KeyboardInterrupt(), 11: KeyboardInterrupt()})
    for said in ("interrupted.", "interrupted; the same command continues."):
        assert stock.vaswani(*command) == 130
        assert capsys.readouterr().err.endswith(f"vaswani translate: {said}\n")
    assert left(folder) == [".text.de.part", ".text.de.part.json"]
    with open(folder / ".text.de.part", "ab") as stream:
        stream.write(b"half a l")  # what a kill leaves
    counted.seen.clear()
    assert stock.vaswani(*command) == 0
    assert counted.seen == [11, 16, 21]
    assert "continuing after line 10" in capsys.readouterr().err
    assert (folder / "text.de").read_bytes() == expected
    report = json.loads((folder / "text.de.json").read_text())
    assert report["lines"] == 23 and report["not_translated"] == [10]
    assert (report["unknown_words"], report["unknown_examples"]) == (2, ["zebra", "Zebra"])
    assert left(folder) == ["text.de", "text.de.json"]
    counted.seen.clear()
    assert stock.vaswani(*command) == 0 and not counted.seen
    assert "already translated" in capsys.readouterr().err
    assert stock.vaswani(*command, "--beam", 1) == 0 and len(counted.seen) == 5  # ours is replaced


def test_a_full_disk_costs_one_window(model, text, tmp_path, counted, capsys, monkeypatch):
    folder = tmp_path / "out"
    command = ["translate", model, text, "--buffer-size", 5, "--output", folder / "text.de"]
    sync, calls = os.fsync, []

    def fsync(number):
        calls.append(number)
        if len(calls) == 4:  # of a window and its state: the second window's
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(number)

    folder.mkdir()
    monkeypatch.setattr(os, "fsync", fsync)
    assert stock.vaswani(*command) == 1
    assert "there is no space left for" in capsys.readouterr().err
    assert not (folder / "text.de").exists()
    counted.seen.clear()
    assert stock.vaswani(*command) == 0 and counted.seen == [6, 11, 16, 21]
    whole = output(capsys, model, text, "--buffer-size", 5)
    assert (folder / "text.de").read_text() == whole


def test_another_text_or_search_is_not_continued(model, text, tmp_path, counted, capsys):
    command = ["translate", model, text, "--buffer-size", 5, "--output", tmp_path / "text.de"]
    counted.fail[11] = KeyboardInterrupt()
    assert stock.vaswani(*command) == 130
    part = (tmp_path / ".text.de.part").read_bytes()
    assert stock.vaswani(*command, "--max-tokens", 99) == 1
    assert "10 lines translated by another model or with other options" in capsys.readouterr().err
    assert (tmp_path / ".text.de.part").read_bytes() == part
    text.write_text(text.read_text().replace("house", "dog"))
    assert stock.vaswani(*command) == 1
    assert "10 lines of a translation of another text: remove it" in capsys.readouterr().err


def test_files_of_others_are_left_alone(model, text, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "new.json").write_text('{"mine": 1}')
    os.link(text, tmp_path / "linked")
    for name, message in {
        "mine": "exists and is no translation of 'vaswani translate'",
        "new": "new.json exists and is no report",
        "linked": "would be replaced, but is an input of the same command",
        ".": "is a folder",
    }.items():
        assert stock.vaswani("translate", model, text, "--output", tmp_path / name) == 1
        assert message in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "new").exists()
    monkeypatch.chdir(tmp_path)
    assert stock.vaswani("translate", model, text, "--output", ".") == 1
    assert ". is a folder" in capsys.readouterr().err


# ---- what cannot be -----------------------------------------------------------------------------

BAD_TEXT = {
    "encoding": ("Köln\n".encode("latin-1"), "bad, line 1: byte 2 is not UTF-8"),
    "UTF-16": ("the house\n".encode("utf-16"), "bad, line 1: byte 1 is not UTF-8"),
    "1 MB": (b"the house\n" + b"x" * (1 << 20) + b"y\n", "bad, line 2, is longer than 1,048,576"),
    "gzip": (gzip.compress(b"the house\n"), "if it is compressed, name it .gz or .xz"),
}


@pytest.mark.parametrize("data, message", BAD_TEXT.values(), ids=BAD_TEXT)
def test_what_is_no_text(data, message, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("bad").write_bytes(data)
    assert stock.vaswani("translate", model, "bad", "--output", "out") == 1
    out, error = capsys.readouterr()
    assert message in error and "Traceback" not in error and not out
    assert left(tmp_path) == ["bad"]


def test_a_line_of_nearly_a_megabyte_is_too_long(model, tmp_path, capsys):
    (tmp_path / "long").write_text("the " * 4000 + "x" * 900_000 + "\nthe house\n")
    lines = output(capsys, model, tmp_path / "long").split("\n")
    assert lines[0] == "" and lines[1]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["gone"], "there is no file gone"),
        (["."], "there is no file ."),
        (["text.en", "-"], "cannot be combined"),
        (["text.en", "--nbest", "9"], "--nbest 9 asks for more translations than --beam 2"),
        (["text.en", "--beam", "0"], "--beam must be above 0"),
        (["text.en", "--lenpen", "nan"], "--lenpen must be a finite number"),
        (["text.en", "--lenpen", "-1", "--length-penalty", "gnmt"], "--lenpen -1.0 is negative"),
        (["text.en", "--sampling-topk", "3"], "--sampling-topk has no effect without --sampling"),
    ],
)
def test_options_that_cannot_be(arguments, message, model, text, monkeypatch, capsys):
    monkeypatch.chdir(text.parent)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the house\n")))
    assert stock.vaswani("translate", model, *arguments) == 1
    out, error = capsys.readouterr()
    assert message in error and "Traceback" not in error and not out


# ---- Python -------------------------------------------------------------------------------------


def test_a_beam_above_the_vocabulary_is_reduced(model, caplog):
    translator = Translator.from_pretrained(model)
    (wide,) = translator.translate(["the house"], beam=100)
    assert "--beam 100 is reduced to 17" in caplog.text
    assert wide == translator.translate(["the house"], beam=17)[0]


def test_threads_get_what_one_gets(model):
    translator = Translator.from_pretrained(model)
    words = packed.WORDS
    sentences = [[" ".join(words[n % 7 : n % 5 + 8])] for n in range(12)]
    options = [{"beam": 1 + n % 3, "lenpen": n % 4 / 2} for n in range(12)]
    expected = [translator.translate(s, **o) for s, o in zip(sentences, options, strict=True)]
    found: dict = {}

    def work(first):
        for number in range(first, 12, 4):
            found[number] = translator.translate(sentences[number], **options[number])

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] for number in range(12)] == expected


def test_a_sentence_is_a_list_of_one(model):
    translator = Translator.from_pretrained(str(model), device="cpu")
    with pytest.raises(TypeError, match=re.escape("translate([text])")):
        translator.translate("the house")
    with pytest.raises(TypeError, match="bream"):
        translator.translate(["the house"], bream=4)
    assert translator.translate([]) == []
    one, two = translator.translate(["the\nhouse", "the house"])
    assert one.text == two.text and one.score == two.score
    assert translator.translate([" "])[0].score is None


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        (b"the house", {}, "a list of sentences, not bytes"),
        (None, {}, "a list of sentences, not NoneType"),
        (["the house"], {"beem": 4}, "unexpected keyword argument 'beem'"),
        (["the house"], {"beam": "5"}, "the option beam is '5', but must be a whole number"),
        (["the house"], {"beam": 2.5}, "the option beam is 2.5, but must be a whole number"),
        (["the house"], {"beam": True}, "the option beam is True, but must be a whole number"),
        (["the house"], {"lenpen": None}, "the option lenpen is empty, but must be a number"),
        (["the house"], {"sampling": "no"}, "but must be true or false"),
        (["the house"], {"length_penalty": "gnmtt"}, "but must be one of fairseq, gnmt"),
    ],
)
def test_what_translate_takes(sentences, options, message, model):
    translator = Translator.from_pretrained(str(model), device="cpu")
    with pytest.raises(TypeError, match=re.escape(message)):
        translator.translate(sentences, **options)


def test_the_package_names_what_it_has():
    import vaswani

    assert {"Translator", "Translation", "__version__"} <= set(dir(vaswani))
    assert vaswani.__version__ == importlib.metadata.version("vaswani-transformer")


def test_translator_is_imported_only_where_it_is_asked_for():
    code = "import sys, vaswani; assert 'torch' not in sys.modules; vaswani.Translator; vaswani.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "has no attribute 'cli'" in done.stderr, done.stderr


def test_bf16_is_taken(model, text, capsys):
    assert len(output(capsys, model, text, "--precision", "bf16").split("\n")) == 24
