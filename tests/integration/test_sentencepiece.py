"""Raw text to pieces and back through every command, and the same text from fairseq's own."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from fairseq.data import Dictionary

from tests import exported, packed, stock
from tests.models import small_model, task
from tests.pieces import learn, pairs, write_text
from tests.preloaded import python
from vaswani import Translator
from vaswani.data import pieces
from vaswani.model_folder.text_recipe import TextRecipe

ROOT = Path(__file__).resolve().parents[2]
MODEL = "sentencepiece.bpe.model"
OWN = ["--source-lang", "en", "--target-lang", "zh", "--workers", "1", "--out", "data/own"]
OWN += [word for name in ("train", "valid", "test") for word in (f"--{name}", f"text/{name}")]
SIZES = ["layers=1", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2"]
#: odd lines of the test set: a letter that nobody has seen, a wide one, what symbols look like
ODD = ["one 鬱 two.", "ｏｎｅ ▁ two.", "</s> three <unk>", ""]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with text, data/own, and own.yaml of a very small model."""
    folder = tmp_path_factory.mktemp("unspaced")
    (folder / "text").mkdir()
    for seed, (name, count) in enumerate([("train", 100), ("valid", 10), ("test", 6)]):
        write_text(folder / "text", name, count, seed)
    for lang, odd in (("en", ODD), ("zh", ["一鬱二。", "一 二。", "三", ""])):
        with open(folder / "text" / f"test.{lang}", "a", encoding="utf-8") as stream:
            stream.writelines(line + "\n" for line in odd)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "executable", python())
        assert stock.vaswani("prepare", *OWN, "--subword", "sentencepiece", "--bpe", 320) == 0
        assert stock.vaswani("new", "own", "--data", "data/own") == 0
    return folder


@pytest.fixture(scope="module")
def run(place) -> Path:
    """The run after a few updates, with translations of the test set."""
    sizes = [f"model.{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        small = ["optimization.max_update=6", "model.precision=fp32", *sizes, "model.init=t2t"]
        assert stock.vaswani("train", "own", *small) == 0
        assert stock.vaswani("generate", "own", "--max-len-b", 8, "--workers", 1) == 0
    return place / "runs" / "own"


def lines(path: Path) -> list:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_data_are_the_models_pieces(place):
    """Every one of them is in the dictionary, in its order; nothing is unknown."""
    data, learned = place / "data/own", pieces.load(place / "data/own" / MODEL)
    known = Dictionary.load(str(data / "data-bin" / "dict.zh.txt"))
    assert (data / "data-bin/dict.en.txt").read_bytes() == (
        data / "data-bin/dict.zh.txt"
    ).read_bytes()
    assert [known[n] for n in range(len(known))] == [
        learned.id_to_piece(n) for n in range(learned.get_piece_size())
    ]
    recipe = yaml.safe_load((data / "recipe.yaml").read_text())
    assert (recipe["subword"], recipe["bpe"]) == ("sentencepiece", 320)
    for lang in ("en", "zh"):
        assert lines(data / "tok" / f"test.{lang}") == lines(place / "text" / f"test.{lang}")
        split = lines(data / "bpe" / f"test.{lang}")
        text = lines(place / "text" / f"test.{lang}")[:6]
        assert [learned.decode(line.split()) for line in split[:6]] == text
        ids = [known.encode_line(line, add_if_not_exist=False) for line in split]
        assert not any(known.unk() in line.tolist() for line in ids)
    report = json.loads((data / ".stages/bpe.json").read_text())["report"]["test"]
    assert (report["spelt_out"], report["made_spaces"]) == (2, 1)


def test_every_command_follows_the_recipe(run, place, monkeypatch, capsys):
    """generate, score, pack, translate; each translation is the text of its pieces."""
    monkeypatch.chdir(place)
    join = pieces.joiner(place / "data/own" / MODEL)
    made, text = (lines(run / "eval" / name) for name in ("test.hyp.tok", "test.hyp"))
    assert len(text) == 10 and text == [join(line) for line in made] and text[-1] == ""
    assert any(text) and not any("▁" in line for line in text)
    assert stock.vaswani("score", "own") == 0
    scores = json.loads((run / "eval/test.score.json").read_text())
    assert "tok:zh" in scores["bleu"]["signature"] and "bleu_tokenised" not in scores
    assert stock.vaswani("pack", "own") == 0
    assert (run / "model" / MODEL).read_bytes() == (place / "data/own" / MODEL).read_bytes()
    assert not (run / "model/bpecodes").exists()
    config = json.loads((run / "model/config.json").read_text())["text"]
    assert (config["tokeniser"], config["bpe"], config["lowercase"]) == (
        "none",
        "sentencepiece",
        False,
    )
    translator = Translator.from_pretrained(run / "model")
    capsys.readouterr()
    found = translator.translate([pairs(1, 5)[0][0], "鬱\n▁"], max_len_b=8)
    assert found[0].text == join(" ".join(found[0].hypotheses[0].tokens))
    assert found[1].source_tokens[-3:] == ["<0xE9>", "<0xAC>", "<0xB1>"] and not found[1].unknown


@pytest.fixture(scope="module")
def model(place, tmp_path_factory) -> Path:
    """A packed model that copies English sentences, each with a probability near 1."""
    folder = tmp_path_factory.mktemp("packed")
    learned = learn(folder)
    pieces.write_dictionary(learned, folder / "dict.txt")
    known = Dictionary.load(str(folder / "dict.txt"))
    sizes = {"encoder_embed_dim": 32, "decoder_embed_dim": 32}
    made = small_model(0, task(known, known), **sizes, encoder_layers=1, decoder_layers=1)
    split = pieces.splitter(learned)
    exported.train(made, known, 250, [split(line) for line in COPIED])
    recipe = TextRecipe("en", "zh", tokeniser="none", bpe="sentencepiece")
    packed.write(folder / "model", made, recipe, known, learned)
    exported.change(folder / "model", "generation", beam=4, max_len_a=0, max_len_b=40)
    return folder / "model"


#: the last one has letters that are bytes
COPIED = [side for pair in pairs(6, 3) for side in pair] + ["one two  three", "</s> one"]


def test_fairseqs_commands_give_the_same_text(model, tmp_path):
    """``--bpe sentencepiece --sentencepiece-model``, as the export's card says; and its hub.

    But for bytes: fairseq does not put them together.
    """
    from fairseq.models.transformer import TransformerModel

    out, text = tmp_path / "out", tmp_path / "text"
    text.write_text("\n".join(COPIED) + "\n", encoding="utf-8")
    ours = [one.text for one in Translator.from_pretrained(model).translate(COPIED)]
    assert ours == [*COPIED[:-2], "one two three", "</s> one"]
    theirs = [*ours[:-1], "<0x3C><0x2F>s<0x3E> one"]
    assert stock.vaswani("export", model, "--to", "fairseq", "--text", text, "--out", out) == 0
    card = (out / "README.md").read_text(encoding="utf-8")
    assert f"--bpe sentencepiece --sentencepiece-model {out}/{MODEL}" in card
    assert "--tokenizer" not in card
    flags = ["--source-lang", "en", "--target-lang", "zh", "--bpe", "sentencepiece"]
    flags += ["--sentencepiece-model", str(out / MODEL), "--max-len-a", "0", "--max-len-b", "40"]
    printed = stock.interactive(out, str(out / "model.pt"), text.read_text("utf-8"), *flags)
    assert [row[1] for _, row in sorted(stock.results(printed, "D").items())] == theirs
    hub = TransformerModel.from_pretrained(str(out), "model.pt", data_name_or_path=str(out))
    assert hub.translate(COPIED, beam=4, max_len_a=0, max_len_b=40) == theirs


def test_ctranslate2_gives_the_same_text(model, tmp_path):
    pytest.importorskip("ctranslate2")
    (tmp_path / "text").write_text("\n".join(COPIED) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    arguments = ["--to", "ctranslate2", "--text", tmp_path / "text", "--out", out]
    assert stock.vaswani("export", model, *arguments) == 0
    found = Translator.from_pretrained(out).translate(COPIED)
    assert [one.text for one in found] == [
        one.text for one in Translator.from_pretrained(model).translate(COPIED)
    ]


def test_a_sentence_without_spaces_is_aligned_by_pieces(model):
    found = Translator.from_pretrained(model).translate([COPIED[1]], print_alignment=True)[0]
    best = found.hypotheses[0]
    assert len(found.source_tokens) > 2 and "".join(best.tokens).replace("▁", "") == best.text
    assert {place for place, _ in best.alignment} <= set(range(len(found.source_tokens)))
    assert [number for _, number in best.alignment] == list(range(len(best.tokens)))


# ---- bad input ----------------------------------------------------------------------------------

SPM = ["--subword", "sentencepiece"]
PREPARE = ["prepare", "--source-lang", "en", "--target-lang", "de", "--workers", "1"]


def prepare(*arguments: str) -> int:
    return stock.vaswani(*PREPARE, "--train", "train", "--valid", "valid", *arguments)


def failed(capsys) -> str:
    """The only sentence that a command said."""
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and "Traceback" not in error
    return error


@pytest.mark.parametrize(
    "recipe, key",
    [
        ({"tokenised": True}, "tokenised"),
        ({"split_hyphens": True}, "split_hyphens"),
        ({"straight_test_apostrophes": True}, "straight_test_apostrophes"),
        ({"normalise": "train"}, "normalise"),
        ({"dictionary": 50}, "dictionary"),
        ({"trees": True}, "trees"),
    ],
)
def test_moses_and_pieces_exclude_each_other(recipe, key, own, capsys):
    sets = {"source_lang": "en", "target_lang": "de", "train": "train", "valid": "valid"}
    Path("mine.yaml").write_text(yaml.safe_dump({**sets, **recipe}))
    assert stock.vaswani("prepare", "mine.yaml", "--text", ".", *SPM, "--out", "data/own") == 1
    assert f"{key} and subword: sentencepiece exclude each other" in failed(capsys)
    assert not Path("data").exists()


def test_another_subword_than_that_of_like(own, light, capsys, monkeypatch):
    """Either way round; nothing is begun."""
    assert prepare("--bpe", "30", "--out", "data/codes") == 0
    assert prepare("--bpe", "330", *SPM, "--out", "data/pieces") == 0
    assert "Moses" not in capsys.readouterr().err.partition("data/pieces/text")[2]
    for name, own_kind, other in (
        ("codes", "subword_nmt", "sentencepiece"),
        ("pieces", "sentencepiece", "subword_nmt"),
    ):
        words = ["dict.en.txt", "dict.de.txt"]
        for word in words:
            (own / "data" / name / "data-bin" / word).write_text("e 1\n")
        like = ["--like", f"data/{name}", "--test", "valid", "--out", "data/more"]
        assert stock.vaswani("prepare", *like, "--subword", other) == 1
        assert f"exclude --like data/{name}: its text was split by {own_kind}" in failed(capsys)
        assert stock.vaswani("prepare", *like, "--bpe", "40") == 1
        assert "--bpe and --subword exclude --like" in failed(capsys)
    for lang in ("en", "de"):
        (own / "data/pieces/data-bin" / f"dict.{lang}.txt").write_text("qxq 1\n")
    assert stock.vaswani("prepare", *like) == 1
    assert "is another model than that of" in failed(capsys)
    (own / "data/pieces" / MODEL).write_text("codes")
    assert stock.vaswani("prepare", *like) == 1
    assert f"{MODEL} is damaged" in failed(capsys)
    assert not Path("data/more").exists()


def test_without_the_library_nothing_is_begun(own, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    assert prepare(*SPM, "--out", "data/own") == 1
    assert "the package 'sentencepiece' is missing: pip install" in failed(capsys)
    assert not Path("data").exists()


def test_moses_on_text_without_spaces_warns_once(own, light, capsys):
    """By its own letters and by Chinese ones; not where there are spaces, or none are needed."""

    def said(*more: str) -> int:
        assert prepare("--bpe", "300", "--out", "data/own", *more) == 0
        return capsys.readouterr().err.count("hardly any spaces")

    assert said() == 0
    spaced = Path("train.de").read_text(encoding="utf-8")
    Path("train.de").write_text(spaced.replace(" ", ""), encoding="utf-8")
    assert prepare("--bpe", "300", "--out", "data/own") == 0
    error = capsys.readouterr().err
    assert "train.de has hardly any spaces" in error and "--subword sentencepiece" in error
    assert said() == 0  # the stage is done
    chinese = "".join(target + "\n" for _, target in pairs(40, 1))
    Path("train.de").write_text(chinese, encoding="utf-8")
    assert said() == 1
    assert said(*SPM) == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--sentencepiece-model", "gone"], "gone"),
        (["--sentencepiece-model", "own.yaml"], "own.yaml is damaged: it is not a model"),
        (["--sentencepiece-model", "other/" + MODEL], "is another model than that of"),
        (["--bpe-codes", "own.yaml"], "--bpe-codes contradicts data/own/recipe.yaml"),
    ],
)
def test_what_cannot_be_packed(arguments, message, run, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    if not Path("other").exists():
        Path("other").mkdir()
        learn(place / "other", 300)
    capsys.readouterr()
    assert stock.vaswani("pack", run / "checkpoints/checkpoint_last.pt", "--out", "m", *arguments)
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error and not Path("m").exists()


def test_data_of_fairseqs_own_commands(run, place, monkeypatch, capsys):
    """Without a recipe, the dictionary says that its words are pieces; the model is beside it."""
    monkeypatch.chdir(place)
    shutil.copytree("data/own/data-bin", "theirs", dirs_exist_ok=True)
    pack = ["pack", run / "checkpoints/checkpoint_last.pt", "--data", "theirs", "--out", "packed"]
    assert stock.vaswani(*pack) == 1
    assert f"theirs has no SentencePiece model ({MODEL}, " in capsys.readouterr().err
    shutil.copy(f"data/own/{MODEL}", "theirs/spm.model")
    assert stock.vaswani(*pack) == 0
    assert "assuming the text is raw, split by SentencePiece" in capsys.readouterr().err
    assert (place / "packed" / MODEL).is_file()


def test_a_data_set_without_its_model_is_not_decoded(run, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(place)
    shutil.copytree("data/own", tmp_path / "data")
    (tmp_path / "data" / MODEL).unlink()
    more = ["--data", tmp_path / "data/data-bin", "--out", tmp_path / "out"]
    assert stock.vaswani("generate", "own", *more) == 1
    assert f"{MODEL} is missing: run 'vaswani prepare' again" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("test*"))
