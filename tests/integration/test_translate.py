"""``vaswani translate`` and ``Translator``: text in, text out, as prepare and generate do it."""

import gzip
import io
import json
import math
import os
import shutil
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import vaswani
from tests import archives, packed, stock
from vaswani import Translator, cli
from vaswani.commands import translate
from vaswani.common.errors import UserError
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.recipe import TextRecipe
from vaswani.folders.run import Run
from vaswani.training.validation import Validation

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
    """Prepare sentences, train a little on them, decode the test set, and pack the model."""
    place = tmp_path_factory.mktemp("spoken")
    for name, count in {"train": 150, "valid": 10, "test": 15}.items():
        for lang in ("en", "de"):
            lines = archives.sentences(lang, count, count) + (ODD if name == "test" else [])
            (place / f"{name}.{lang}").write_text("\n".join(lines) + "\n", encoding="utf-8")

    data, run = place / "data" / "mine", place / "runs" / "mine"
    sets = [word for name in ("train", "valid", "test") for word in (f"--{name}", place / name)]
    arguments = ["--source-lang", "en", "--target-lang", "de", "--bpe", 60, "--workers", 1]
    assert stock.vaswani("prepare", *arguments, *sets, "--out", data) == 0
    few = ["--max-update", "60", "--no-epoch-checkpoints"]
    stock.train(data / "data-bin", run / "checkpoints", *few)
    (run / "checkpoints" / "checkpoint_best.pt").unlink()
    task = {"_name": "vaswani_translation", "data": str(data / "data-bin")}
    task.update(source_lang="en", target_lang="de", max_source_positions=300)
    (run / "config.yaml").write_text(yaml.safe_dump({"task": task, "generation": SEARCH}))
    change_model(run, max_source_positions=300)
    assert stock.vaswani("generate", run, "--workers", 1) == 0
    assert stock.vaswani("pack", run) == 0
    hypotheses = (run / "eval" / "test.hyp").read_text(encoding="utf-8").split("\n")[:-1]
    return SimpleNamespace(
        source=place / "test.en", data=data, run=run, expected=hypotheses, scores=scores_of(run)
    )


def change_model(run: Path, **options: Any) -> None:
    """Change options of the model in a run's last checkpoint."""
    checkpoint = run / "checkpoints" / "checkpoint_last.pt"
    saved = torch.load(checkpoint, weights_only=False)
    saved["cfg"]["model"].update(options)
    torch.save(saved, checkpoint)


def scores_of(run: Path) -> dict[int, float]:
    """Return sentence → its score in the log, as a log-probability in nats."""
    log = (run / "eval" / "test.log").read_text(encoding="utf-8").split("\n")
    return {n: float(row[0]) * math.log(2) for n, row in stock.results(log, "H").items()}


def assert_same(texts: list[str], scores: dict[int, float], spoken: SimpleNamespace) -> None:
    """Assert the scores of ``generate``; in other batches sums have other last digits."""
    for number, (text, expected) in enumerate(zip(texts, spoken.expected, strict=False)):
        if number in scores:
            assert scores[number] == pytest.approx(spoken.scores[number], abs=1e-4), number
        else:  # nothing to translate
            assert text == expected == "", number


def translated(capsys: Any, model: Path, *arguments: object) -> list[list[str]]:
    """Return the columns of every line that ``vaswani translate`` prints."""
    capsys.readouterr()
    assert stock.vaswani("translate", model, *arguments) == 0
    return [line.split("\t") for line in capsys.readouterr().out.split("\n")[:-1]]


def test_raw_text_is_translated_as_prepare_and_generate_do(spoken, capsys):
    rows = translated(capsys, spoken.run / "model", spoken.source, "--scores")
    assert len(rows) == len(spoken.expected) == 21
    found = {number: float(row[1]) for number, row in enumerate(rows) if row[1]}
    assert_same([row[0] for row in rows], found, spoken)
    assert len(set(spoken.expected)) > 2 and spoken.expected[16] == spoken.expected[19] == ""


def test_a_run_in_bf16_is_decoded_in_fp32_by_every_command(spoken, tmp_path, monkeypatch, capsys):
    """Unless another precision is asked for, of which there are other translations."""
    for module in ("precision", "fast.linear"):  # as on a processor that has them
        monkeypatch.setattr(f"vaswani_transformer.{module}.has_bf16_units", lambda device: True)
    run = shutil.copytree(spoken.run, tmp_path / "run", ignore=shutil.ignore_patterns("model"))
    shutil.rmtree(run / "eval")
    change_model(run, precision="bf16")
    assert stock.vaswani("generate", run, "--workers", 1) == 0
    assert scores_of(run) == pytest.approx(spoken.scores, abs=1e-4)
    assert stock.vaswani("pack", run) == 0
    rows = translated(capsys, run / "model", spoken.source, "--scores")
    found = {number: float(row[1]) for number, row in enumerate(rows) if row[1]}
    assert_same([row[0] for row in rows], found, spoken)
    checkpoint = run / "checkpoints" / "checkpoint_last.pt"
    assert (
        Validation(checkpoint, Run(run)).model.decoder.precision == "fp32"
    )  # of 'vaswani average'
    assert stock.vaswani("generate", run, "--workers", 1, "--precision", "bf16") == 0
    assert scores_of(run) != pytest.approx(spoken.scores, abs=1e-3)
    assert json.loads((run / "eval" / "test.json").read_text())["precision"] == "bf16"


def test_fairseqs_from_pretrained_gives_the_same(spoken):
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
    lines = spoken.source.read_text(encoding="utf-8").split("\n")[:16]
    best = [found[0] for found in hub.generate([hub.encode(line) for line in lines], **SEARCH)]
    scores = {number: float(one["score"]) for number, one in enumerate(best)}
    assert_same(hub.translate(lines, **SEARCH), scores, spoken)


# ---- of a small model ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "model"
    packed.pack(folder, TextRecipe("en", "de", subword=None))
    return folder


@pytest.fixture
def text(tmp_path) -> Path:
    """Write 23 lines: some blank, one too long, some with unknown words."""
    words = packed.WORDS
    lines = [" ".join(words[n % 5 : n % 11 + 3]) for n in range(23)]
    lines[4] = ""
    lines[9] = "the " * 70
    lines[17] = "the zebra sees a Zebra ."
    path = tmp_path / "text.en"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [[], ["--max-tokens", 1]])
def test_every_line_is_answered_in_its_place(more, model, text, capsys):
    lines = [line for (line,) in translated(capsys, model, text, *more)]
    assert [number for number, line in enumerate(lines) if not line] == [4, 9]
    assert len(lines) == 23 and len(set(lines)) > 5


def test_accents_apart_from_their_letters_are_the_same_words(tmp_path, capsys):
    """ "The café is closed." was another sentence as macOS writes it; older models keep that."""
    composed, apart = (unicodedata.normalize(form, "the café .") for form in ("NFC", "NFD"))
    lines = tmp_path / "text.en"
    lines.write_text(f"{composed}\n{apart}\n", encoding="utf-8")
    for form, same in (("NFC", True), ("none", False)):
        folder = tmp_path / form
        recipe = TextRecipe("en", "de", subword=None, unicode=form)
        packed.pack(folder, recipe, words=[*packed.WORDS, "café"])
        capsys.readouterr()
        first, second = translated(capsys, folder, lines, "--scores")
        assert (first == second) == same


def test_files_of_whole_windows_joined_are_the_whole(model, text, tmp_path, capsys):
    """Whatever the number of processes: what ``split -l`` makes can be translated apart."""
    flags = ["--buffer-size", 5, "--scores", "--workers"]
    whole = translated(capsys, model, text, *flags, 1)
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    parts = []
    for first in (0, 15):
        (tmp_path / "part").write_text("".join(lines[first : first + 15]), encoding="utf-8")
        parts += translated(capsys, model, tmp_path / "part", *flags, 2)
    assert parts == whole


def test_as_a_function_it_takes_the_folder_of_a_model(model, text, tmp_path):
    """And the options by their names."""
    assert stock.vaswani("translate", model, text, "--output", tmp_path / "command") == 0
    folder = ModelFolder.read(model)
    vaswani.translate(folder, files=[str(text)], output=str(tmp_path / "function"))
    command, function = (tmp_path / name for name in ("command", "function"))
    assert function.read_text(encoding="utf-8") == command.read_text(encoding="utf-8")
    with pytest.raises(UserError, match="--scores"):
        vaswani.translate(folder, files=[str(text)], json=True, scores=True)


def test_several_files_or_a_pipe_are_one_text(model, text, tmp_path, capsys, monkeypatch):
    expected = translated(capsys, model, text)
    lines = text.read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(lines[:10]))
    with gzip.open(tmp_path / "b.gz", "wb") as stream:
        stream.write(b"".join(lines[10:])[:-1])  # the last line is not ended
    assert translated(capsys, model, tmp_path / "a", tmp_path / "b.gz") == expected
    for data, result in {text.read_bytes(): expected, b"": []}.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert translated(capsys, model) == result


def test_a_line_that_is_typed_is_answered_before_the_next(model, capsys, monkeypatch):
    answered: list[str] = []

    def typed():
        for line in (b"the house\n", b"\n", b"is big .\n"):
            yield line
            answered.append(capsys.readouterr().out)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=typed(), isatty=lambda: True))
    assert stock.vaswani("translate", model) == 0
    assert [text.count("\n") for text in answered] == [1, 1, 1]
    assert answered[1] == "\n", "nothing to translate"


def test_columns_are_those_of_the_translator(model, text, capsys):
    flags = ["--nbest", 2, "--scores", "--print-alignment", "--replace-unk"]
    rows = translated(capsys, model, text, *flags)
    assert len(rows) == 2 * 23 and rows[2 * 4] == rows[2 * 9 + 1] == [""] * 5
    sentences = text.read_text(encoding="utf-8").split("\n")[:-1]
    options = {"nbest": 2, "print_alignment": True, "replace_unk": True}
    for number, one in enumerate(Translator.from_pretrained(model).translate(sentences, **options)):
        for row, found in zip(rows[2 * number :], one.hypotheses, strict=False):
            pairs = " ".join(f"{s}-{t}" for s, t in found.alignment)
            words = [" ".join(one.source_tokens), " ".join(found.tokens)]
            assert [row[0], *row[2:]] == [found.text, *words, pairs]
            assert float(row[1]) == pytest.approx(found.score, abs=1e-3)
            assert {t for _, t in found.alignment} == set(range(len(found.tokens)))


# ---- --output -----------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch):
    """Record the windows that are translated, by the number of their first line."""
    seen = []
    original = translate.LineTranslator.rows

    def rows(self, lines, first, *rest):
        seen.append(first)
        if first in fail:
            raise fail.pop(first)
        return original(self, lines, first, *rest)

    fail: dict = {}
    monkeypatch.setattr(translate.LineTranslator, "rows", rows)
    return SimpleNamespace(seen=seen, fail=fail)


@pytest.fixture
def command(model, text, tmp_path) -> list:
    """Return a command that translates in windows of 5 lines into a folder of its own."""
    (tmp_path / "out").mkdir()
    output = tmp_path / "out" / "text.de"
    return ["translate", model, text, "--buffer-size", 5, "--output", output]


def left(folder: Path) -> list:
    return sorted(path.name for path in folder.iterdir())


def test_the_same_command_continues_after_the_last_whole_window(command, counted, capsys):
    output = command[-1]
    expected = translated(capsys, *command[1:-2])
    counted.fail.update({1: KeyboardInterrupt(), 11: KeyboardInterrupt()})
    for continues in (False, True):
        assert stock.vaswani(*command) == 130
        assert ("the same command continues" in capsys.readouterr().err) == continues
    assert left(output.parent) == [".text.de.part", ".text.de.part.json"]
    with open(output.with_name(".text.de.part"), "ab") as stream:
        stream.write(b"half a l")  # what a kill leaves
    counted.seen.clear()
    assert stock.vaswani(*command) == 0
    assert counted.seen == [11, 16, 21]
    assert output.read_text() == "".join("\t".join(row) + "\n" for row in expected)
    assert left(output.parent) == ["text.de", "text.de.json"]
    report = json.loads(output.with_name("text.de.json").read_text())
    assert report["lines"] == 23 and report["not_translated"] == [10]
    assert (report["unknown_words"], report["unknown_examples"]) == (2, ["zebra", "Zebra"])


def test_a_translation_is_made_once_and_with_other_options_anew(command, counted):
    assert stock.vaswani(*command) == 0
    counted.seen.clear()
    assert stock.vaswani(*command) == 0 and not counted.seen
    assert stock.vaswani(*command, "--beam", 1) == 0 and len(counted.seen) == 5


@pytest.mark.parametrize("change", ["options", "text"])
def test_another_text_or_search_is_not_continued(change, command, text, counted):
    counted.fail[11] = KeyboardInterrupt()
    assert stock.vaswani(*command) == 130
    part = command[-1].with_name(".text.de.part")
    before = part.read_bytes()
    if change == "text":
        text.write_text(text.read_text().replace("house", "dog"))
    more = ["--max-tokens", 99] if change == "options" else []
    assert stock.vaswani(*command, *more) == 1
    assert part.read_bytes() == before


@pytest.mark.parametrize("name", ["mine", "new", "linked", "."])
def test_files_of_others_are_left_alone(name, model, text, tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "new.json").write_text('{"mine": 1}')
    os.link(text, tmp_path / "linked")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert stock.vaswani("translate", model, text, "--output", tmp_path / name) == 1
    assert str(tmp_path / name) in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_text_in_a_file_of_any_name_is_translated(model, text, tmp_path, capsys):
    """Its name is not UTF-8, which only an output, or a model, has to be."""
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.link(text, odd)
    command = ["translate", model, os.fsdecode(odd)]
    assert stock.vaswani(*command, "--output", tmp_path / "out") == 0
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert report["lines"] == len(text.read_text(encoding="utf-8").splitlines())
    assert stock.vaswani(*command, "--output", os.fsdecode(odd + b".out")) == 1
    assert r"caf\xe9.out' is not UTF-8" in capsys.readouterr().err


# ---- Python -------------------------------------------------------------------------------------


def test_threads_get_what_one_gets(model):
    translator = Translator.from_pretrained(model)
    words = packed.WORDS
    sentences = [[" ".join(words[n % 7 : n % 5 + 8])] for n in range(12)]
    options = [{"beam": 1 + n % 3, "lenpen": n % 4 / 2} for n in range(12)]
    expected = [translator.translate(s, **o) for s, o in zip(sentences, options, strict=True)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda s, o: translator.translate(s, **o), sentences, options)
        assert list(found) == expected


@pytest.mark.parametrize(
    ("sentences", "options", "named"),
    [
        ("the house", {}, "list"),
        ([None], {}, "sentences[0] is None"),
        (["the house", b"a dog"], {}, "sentences[1] is b'a dog'"),
        (["the house"], {"beem": 4}, "beem"),
        (["the house"], {"beam": "4"}, "beam should be of type int, but is '4'"),
        (["the house"], {"print_alignment": "no"}, "print_alignment should be of type bool"),
        (["the house"], {"max_tokens": 1.5}, "max_tokens should be of type int | None"),
    ],
)
def test_an_argument_of_the_wrong_type_is_a_type_error(sentences, options, named, model):
    translator = Translator.from_pretrained(str(model), device="cpu")
    with pytest.raises(TypeError) as refused:
        translator.translate(sentences, **options)
    assert named in str(refused.value)
    translator.translate([], beam=np.int64(2), lenpen=1, max_tokens=None)


@pytest.mark.parametrize(
    "device",
    ["gpu", "cpu:x", "meta", "cuda:99"] + ["cuda"] * (not torch.cuda.is_available()),
)
def test_a_device_that_is_not_here_is_named(device, model):
    """cuda was an AssertionError, gpu a RuntimeError."""
    with pytest.raises(UserError, match=f"no device '{device}' here") as refused:
        Translator.from_pretrained(str(model), device=device)
    assert "\n" not in str(refused.value)


def test_as_many_lines_as_no_list_has_are_refused(model, text, capsys):
    line = ["translate", str(model), str(text), "--buffer-size", "99999999999999999999"]
    assert cli.main(line) == 1
    assert "--buffer-size must be at most" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lenpen", "unkpen", "temperature", "max_len_a"])
def test_a_number_that_is_none_is_a_value_error(name, model):
    """With a penalty of NaN the model seemed to have diverged."""
    translator = Translator.from_pretrained(str(model), device="cpu")
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} must be a finite number"):
        translator.translate(["the house"], **{name: float("nan")})
