"""Raw text to pieces and back through every command, and the same text from fairseq's own."""

import json
import shutil
from pathlib import Path

import pytest
from fairseq.data import Dictionary

from tests import exported, packed, stock
from tests.models import small_model, task
from tests.pieces import learn, pairs, write_text
from vaswani import Translator
from vaswani.data import pieces
from vaswani.folders.recipe import TextRecipe

MODEL = "sentencepiece.bpe.model"
OWN = ["--source-lang", "en", "--target-lang", "zh", "--workers", "1", "--out", "data/own"]
OWN += [word for name in ("train", "valid", "test") for word in (f"--{name}", f"text/{name}")]
SIZES = ["layers=1", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2"]
#: odd lines of the test set: a letter that nobody has seen, a wide one, what symbols look like
ODD = ["one 鬱 two.", "ｏｎｅ ▁ two.", "</s> three <unk>", ""]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Make a folder with text, data/own, and own.yaml of a very small model."""
    folder = tmp_path_factory.mktemp("unspaced")
    (folder / "text").mkdir()
    for seed, (name, count) in enumerate([("train", 100), ("valid", 10), ("test", 6)]):
        write_text(folder / "text", name, count, seed)
    for lang, odd in (("en", ODD), ("zh", ["一鬱二。", "一 二。", "三", ""])):
        with open(folder / "text" / f"test.{lang}", "a", encoding="utf-8") as stream:
            stream.writelines(line + "\n" for line in odd)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        assert stock.vaswani("prepare", *OWN, "--subword", "sentencepiece", "--bpe", 320) == 0
        assert stock.vaswani("new", "own", "--data", "data/own") == 0
    return folder


@pytest.fixture(scope="module")
def run(place) -> Path:
    """Train for a few updates, and translate the test set."""
    sizes = [f"model.{side}_{size}" for side in ("encoder", "decoder") for size in SIZES]
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(place)
        small = ["optimization.max_update=6", "model.precision=fp32", *sizes, "model.init=t2t"]
        assert stock.vaswani("train", "own", *small) == 0
        assert stock.vaswani("generate", "own", "--max-len-b", 8, "--workers", 1) == 0
    return place / "runs" / "own"


def lines(path: Path) -> list:
    return path.read_text(encoding="utf-8").splitlines()


def test_the_data_are_the_models_pieces_and_nothing_is_unknown(place):
    data = place / "data/own"
    learned = pieces.load(place / "data/own" / MODEL)
    known = Dictionary.load(str(data / "data-bin" / "dict.zh.txt"))
    assert [known[n] for n in range(len(known))] == [
        learned.id_to_piece(n) for n in range(learned.get_piece_size())
    ]
    for lang in ("en", "zh"):
        split = lines(data / "bpe" / f"test.{lang}")
        text = lines(place / "text" / f"test.{lang}")
        assert [learned.decode(line.split()) for line in split[:6]] == text[:6]
        ids = [known.encode_line(line, add_if_not_exist=False) for line in split]
        assert not any(known.unk() in line.tolist() for line in ids)


def test_generate_and_score_join_pieces_to_text(run, place, monkeypatch):
    monkeypatch.chdir(place)
    join = pieces.joiner(place / "data/own" / MODEL)
    made, text = (lines(run / "eval" / name) for name in ("test.hyp.tok", "test.hyp"))
    assert len(text) == 10 and text == [join(line) for line in made] and text[-1] == ""
    assert any(text) and not any("▁" in line for line in text)
    assert stock.vaswani("score", "own") == 0
    scores = json.loads((run / "eval/test.score.json").read_text())
    assert "tok:zh" in scores["bleu"]["signature"] and "bleu_tokenised" not in scores


def test_a_packed_model_splits_and_joins_as_the_data(run, place, monkeypatch):
    monkeypatch.chdir(place)
    assert stock.vaswani("pack", "own") == 0
    assert (run / "model" / MODEL).read_bytes() == (place / "data/own" / MODEL).read_bytes()
    translator = Translator.from_pretrained(run / "model")
    found = translator.translate([pairs(1, 5)[0][0], "鬱\n▁"], max_len_b=8)
    join = pieces.joiner(run / "model" / MODEL)
    assert found[0].text == join(" ".join(found[0].hypotheses[0].tokens))
    assert found[1].source_tokens[-3:] == ["<0xE9>", "<0xAC>", "<0xB1>"] and not found[1].unknown


@pytest.fixture(scope="module")
def model(place, tmp_path_factory) -> Path:
    """Pack a model that copies English sentences, each with a probability near 1."""
    folder = tmp_path_factory.mktemp("packed")
    learned = learn(folder)
    pieces.write_dictionary(learned, folder / "dict.txt")
    known = Dictionary.load(str(folder / "dict.txt"))
    sizes = {"encoder_embed_dim": 32, "decoder_embed_dim": 32}
    made = small_model(0, task(known, known), **sizes, encoder_layers=1, decoder_layers=1)
    split = pieces.splitter(learned)
    exported.train(made, known, 250, [split(line) for line in COPIED])
    recipe = TextRecipe("en", "zh", tokeniser="none", subword="sentencepiece")
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
    flags = ["--source-lang", "en", "--target-lang", "zh", "--bpe", "sentencepiece"]
    flags += ["--sentencepiece-model", str(out / MODEL), "--max-len-a", "0", "--max-len-b", "40"]
    printed = stock.interactive(out, str(out / "model.pt"), text.read_text("utf-8"), *flags)
    assert [row[1] for _, row in sorted(stock.results(printed, "D").items())] == theirs
    hub = TransformerModel.from_pretrained(str(out), "model.pt", data_name_or_path=str(out))
    assert hub.translate(COPIED, beam=4, max_len_a=0, max_len_b=40) == theirs


# ---- bad input ----------------------------------------------------------------------------------


def test_data_of_fairseqs_own_commands_are_recognised_as_pieces(run, place, monkeypatch, capsys):
    """Without a recipe, the dictionary says that its words are pieces; the model is beside it."""
    monkeypatch.chdir(place)
    shutil.copytree("data/own/data-bin", "theirs", dirs_exist_ok=True)
    pack = ["pack", run / "checkpoints/checkpoint_last.pt", "--data", "theirs", "--out", "packed"]
    assert stock.vaswani(*pack) == 1
    assert MODEL in capsys.readouterr().err
    shutil.copy(f"data/own/{MODEL}", "theirs/spm.model")
    assert stock.vaswani(*pack) == 0
    assert (place / "packed" / MODEL).is_file()
