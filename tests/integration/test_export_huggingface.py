"""``vaswani export --to huggingface``: transformers' Marian computes our model.

The default tests compare with Marian as ``tests/marian.py`` writes it; the slow ones with
transformers, in an environment that has neither fairseq nor this project.
"""

import ast
import json
import random
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from tests import exported, packed
from tests import pieces as small_pieces
from tests.marian import Marian
from tests.models import small_model, task
from tests.rounding import rounding_of_small_model
from tests.stock import fresh_process
from vaswani import Translator, cli
from vaswani.commands import export as command
from vaswani.data import pieces
from vaswani.decoding.marian_engine import MarianEngine, most_tokens
from vaswani.export import to_huggingface
from vaswani.export.proof import nearest_exponent
from vaswani.export.to_huggingface import (
    TOKENS,
    configuration,
    generation_configuration,
    write_model,
)
from vaswani.model_folder.folder import read_folder
from vaswani.model_folder.search_options import SearchOptions
from vaswani.model_folder.text_recipe import TextRecipe

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo_en_de"
SEARCH = {"beam": 3, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 10}


def run(*arguments: object) -> int:
    with fresh_process():
        return cli.main([str(argument) for argument in arguments])


def written(folder: Path, out: Path) -> Path:
    """What transformers reads, of a packed model."""
    out.mkdir()
    write_model(read_folder(folder), read_folder(folder).parameters(), out)
    return out


# ---- the model ----------------------------------------------------------------------------------

VARIANTS = {
    "the paper's": {},
    "three matrices": {"untie_embeddings": True},
    "two matrices": {"share_decoder_input_output_embed": True},
    "other depths and heads": {
        "encoder_layers": 1,
        "decoder_layers": 3,
        "encoder_attention_heads": 2,
    },
    "other widths": {"decoder_ffn_embed_dim": 24, "encoder_embed_dim": 12, "decoder_embed_dim": 12},
}


def with_all_parameters(model):
    """The model, with biases and norms that are not those of a new one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 1:
                value += torch.randn(value.shape, generator=generator) / 4
    return model


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_marian_computes_our_logits(options, tmp_path):
    """With Marian's ε, from every stored parameter, also of a sentence that is padded."""
    known = packed.dictionary()
    model = small_model(0, task(known, known), layer_norm_eps=1e-5, **options)
    packed.write(tmp_path / "model", with_all_parameters(model).eval(), exported.RECIPE, known)
    marian = Marian(written(tmp_path / "model", tmp_path / "out"))
    source = torch.tensor([[4, 9, 7, 5, 2], [6, 8, 2, 1, 1]])
    previous = torch.tensor([[2, 4, 5, 6], [2, 12, 11, 10]])
    found = marian.logits(source, previous)
    expected, _ = model(source, None, previous)
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding_of_small_model(torch.float32))
    assert marian.read == set(marian.state)


def test_two_dictionaries(tmp_path):
    """Their words are in fairseq's order, each side's in its own file, its matrices of its size."""
    source, target = packed.dictionary(), packed.dictionary(["das", "Haus"])
    model = small_model(0, task(source, target), untie_embeddings=True, layer_norm_eps=1e-5).eval()
    packed.write(tmp_path / "model", model, exported.RECIPE, source)
    target.save(str(tmp_path / "model" / "dict.de.txt"))
    exported.renew(tmp_path / "model", "dict.de.txt")
    out = written(tmp_path / "model", tmp_path / "out")
    ids = [json.loads((out / f"{name}.json").read_text()) for name in ("vocab", "target_vocab")]
    assert ids == [
        {word: words.index(word) for word in words.symbols} for words in (source, target)
    ]
    assert list(ids[1].items())[:5] == [
        ("<s>", 0),
        ("<pad>", 1),
        ("</s>", 2),
        ("<unk>", 3),
        ("das", 4),
    ]
    found = Marian(out).logits(torch.tensor([[17, 2]]), torch.tensor([[2, 5]]))
    expected, _ = model(torch.tensor([[17, 2]]), None, torch.tensor([[2, 5]]))
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding_of_small_model(torch.float32))


# ---- the search ---------------------------------------------------------------------------------

LIMITS = {"max_source_positions": 64, "max_target_positions": 40}
ALWAYS = {
    "bos_token_id": None,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": 2,
    "bad_words_ids": [[1]],
}


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            {"beam": 4, "lenpen": 0.6, "max_len_b": 50, "min_len": 0},
            {"num_beams": 4, "length_penalty": 0.6, "early_stopping": True, "max_new_tokens": 40},
        ),
        ({"beam": 1, "max_len_b": 20}, {"num_beams": 1, "min_new_tokens": 1, "max_new_tokens": 21}),
        (
            {"beam": 1, "max_len_a": 0.25, "max_len_b": 3, "min_len": 2},
            {"num_beams": 1, "min_new_tokens": 2, "max_new_tokens": 20},
        ),
        (
            {"beam": 1, "max_len_b": 20, "min_len": 0, "unkpen": 3.5},
            {"num_beams": 1, "max_new_tokens": 21, "sequence_bias": [[[3], -3.5]]},
        ),
    ],
)
def test_the_search_in_transformers_words(options, expected):
    assert generation_configuration(options, LIMITS) == {**ALWAYS, **expected}


def test_the_longest_translation_of_a_batch():
    """fairseq's: A · source + B tokens and the end, within the decoder's positions."""
    options = SearchOptions(max_len_a=1.5, max_len_b=3)
    assert most_tokens(options, 5, 64) == 7 + 3 + 1
    assert most_tokens(options, 60, 64) == 64


# ---- the command, without transformers ----------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A packed model with random weights."""
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    exported.change(folder, "generation", **SEARCH)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("\n".join(exported.sentences()) + "\n")
    return path


@pytest.fixture
def alone(monkeypatch):
    """This Python has no transformers."""
    monkeypatch.setattr(command, "find_spec", lambda name: None)


def test_without_transformers_it_is_exported_and_says_that_it_was_not_compared(
    alone, model, text, tmp_path, capsys
):
    out = tmp_path / "out"
    assert run("export", model, "--to", "huggingface", "--text", text, "--out", out) == 0
    printed, error = capsys.readouterr()
    assert printed == ""
    assert "not compared with the packed model" in error and "--python PYTHON" in error
    names = ["config.json", "generation_config.json", "model.safetensors", "vocab.json"]
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [*names, "README.md", "SHA256SUMS", "vaswani.json"]
    )
    table = json.loads((out / "vaswani.json").read_text())
    assert table["target"] == "huggingface" and "proof" not in table
    assert "**Not compared**" in (out / "README.md").read_text()
    assert run("translate", out, text) == 1
    assert "was exported to huggingface, whose own commands" in capsys.readouterr().err


def test_the_papers_length_penalty_becomes_an_exponent(alone, model, text, tmp_path, capsys):
    folder = exported.packed_like(model, tmp_path / "model", length_penalty="gnmt")
    arguments = ["--to", "huggingface", "--text", text, "--out", tmp_path / "out"]
    assert run("export", folder, *arguments) == 0
    found = Translator.from_pretrained(folder).translate(exported.sentences())
    lengths = [len(one.hypotheses[0].tokens) + 1 for one in found]
    nearest = nearest_exponent(0.6, sum(lengths) / len(lengths))
    search = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert search["length_penalty"] == pytest.approx(nearest, abs=1e-3)
    assert f"gnmt 0.6: there {search['length_penalty']:g}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        ({"encoder_learned_pos": True}, "has learned positions in the encoder, but"),
        (
            {"encoder_learned_pos": True, "decoder_learned_pos": True},
            "has learned positions in the encoder and the decoder, but",
        ),
        ({"sinusoid_layout": "t2t"}, "tensor2tensor's wavelengths (--sinusoid-layout t2t)"),
        ({"sinusoid_layout": "fairseq"}, "positions that begin at 2 (--sinusoid-layout fairseq)"),
        ({"head_key_dim": 8, "head_value_dim": 8}, "in transformers' Marian both are d_model/h"),
        ({"head_value_dim": 8}, "d_k 4 and d_v 8, but in transformers' Marian both"),
    ],
)
def test_what_marian_lacks(options, message, tmp_path, capsys):
    packed.pack(tmp_path / "model", **options)
    before = sorted(tmp_path.rglob("*"))
    assert run("export", tmp_path / "model", "--to", "huggingface") == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "python, message",
    [
        ("/nowhere/python", "/nowhere/python: No such file or directory"),
        pytest.param(
            sys.executable,
            "(ModuleNotFoundError: No module named 'transformers'): name with --python one",
            marks=pytest.mark.skipif(
                find_spec("transformers") is not None, reason="transformers is installed here"
            ),
        ),
        ("true", "Marian cannot be run by true (it ended)"),
    ],
)
def test_a_python_without_transformers(python, message, model, text, tmp_path, capsys):
    arguments = ["--to", "huggingface", "--text", text, "--out", tmp_path / "out"]
    assert run("export", model, *arguments, "--python", python) == 1
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_cards_head(alone, model, text, tmp_path):
    """The licence is the packed model's, if its card names one."""
    folder = exported.packed_like(model, tmp_path / "model")
    arguments = ["--to", "huggingface", "--text", text, "--out", tmp_path / "out"]
    for head, licence, missing in (
        ("---\nlanguage: [en, de]\nlicense: cc-by-4.0\n---\n", "license: cc-by-4.0", False),
        ("# A model\n\nlicense: none of these\n", "", True),
        ("---\nlanguage: [en, de]\nlicense: mit\n", "", True),
    ):
        (folder / "README.md").write_text(head)
        assert run("export", folder, *arguments) == 0
        card = (tmp_path / "out" / "README.md").read_text()
        assert card.startswith(f"---\nlanguage: [en, de]\n{licence}{chr(10) if licence else ''}lib")
        assert ("its packed model names none" in card) is missing


# ---- SentencePiece ------------------------------------------------------------------------------

#: other scripts, symbols, spelt-out symbols, spaces, fullwidth and composed forms
ODD = [
    *("The  house ", "  is", "x", "🙂👍🏽 old", "Ελλάδα", "ﬁ Ａ１ é é ½", "a\tb", "\u3000家"),
    *("</s>", "the </s> house", "<s> <pad> <unk>", "<0x41>", "▁", "@@ a@@ b", "&amp; <br/>"),
    *(
        "'\"`´’“”„«»",
        "a\u00a0b\u200bc\u00add",
        "1.234,56 €",
        ">>",
        "<< >>de",
        "[MASK] [CLS] <mask>",
    ),
    *("\u202bعربي\u202c", "e\u0301\u0301\u0301", "\U0010ffff x", "a" * 300, "家" * 100),
]


def made_of_pieces(folder: Path, **recipe: bool) -> Path:
    """A packed model of SentencePiece's pieces, with random weights, beside what it needs."""
    learned = small_pieces.learn(folder.parent)
    pieces.write_dictionary(learned, folder.with_name("dict"))
    known = Dictionary.load(str(folder.with_name("dict")))
    model = small_model(0, task(known, known), max_source_positions=512, max_target_positions=512)
    of_text = TextRecipe("en", "zh", tokeniser="none", bpe="sentencepiece", **recipe)
    packed.write(folder, model, of_text, known)
    shutil.copyfile(learned, folder / learned.name)
    exported.renew(folder, learned.name)
    return folder


@pytest.fixture(scope="module")
def of_pieces(tmp_path_factory) -> Path:
    return made_of_pieces(tmp_path_factory.mktemp("pieces") / "model")


def test_the_tokenizers_files(alone, of_pieces, tmp_path):
    """The model twice; the ids are those of fairseq's dictionary, the symbols' too."""
    (tmp_path / "text").write_text("the house\n")
    arguments = ["--to", "huggingface", "--text", tmp_path / "text", "--out", tmp_path / "out"]
    assert run("export", of_pieces, *arguments) == 0
    learned = (of_pieces / "sentencepiece.bpe.model").read_bytes()
    for name in ("source.spm", "target.spm"):
        assert (tmp_path / "out" / name).read_bytes() == learned
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "tokenizer_config.json" in names and "sentencepiece.bpe.model" not in names
    ids = json.loads((tmp_path / "out" / "vocab.json").read_text(encoding="utf-8"))
    loaded = pieces.load(of_pieces / "sentencepiece.bpe.model")
    assert ids == {loaded.id_to_piece(number): number for number in range(loaded.get_piece_size())}
    table = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert table["split_special_tokens"] is True and table["model_max_length"] == 512
    card = (tmp_path / "out" / "README.md").read_text()
    assert "MarianTokenizer.from_pretrained(folder)" in card and "subword_nmt" not in card


@pytest.mark.slow
def test_marian_tokenizer_reads_and_writes_as_the_packed_model(
    of_pieces, transformers_python, tmp_path, capsys
):
    """Every line, odd ones too; and of random pieces, the text that they are."""
    translator = Translator.from_pretrained(of_pieces)
    rng = random.Random(1)
    plain = [line for pair in small_pieces.pairs(20, 1) for line in pair]
    mixed = [" ".join(rng.choices([*plain, *ODD], k=3)) for _ in range(300)]
    lines = [*plain, *ODD, *(line for line in mixed if not line.startswith(">>"))]
    (tmp_path / "text").write_text("the house\n")
    out = tmp_path / "out"
    arguments = ["--to", "huggingface", "--text", tmp_path / "text", "--out", out]
    assert run("export", of_pieces, *arguments, "--python", transformers_python) == 0
    assert "the tokenizer reads 1 and writes" in capsys.readouterr().out
    known = translator.engine.target
    first = known.index("<0xFF>") + 1  # random bytes are no text
    targets = [rng.choices(range(first, len(known)), k=rng.randint(0, 20)) for _ in range(300)]
    engine = MarianEngine(transformers_python, out, known, known, (512, 512))
    engine.ask([], [], [], lines)
    read = engine.read
    targets += [ids[:-1] for ids in read]
    engine.ask([], [[*target, known.eos()] for target in targets], [], [])
    written = engine.written
    expected = [translator.source_text.subwords(translator.source_text.tokens(x)) for x in lines]
    for line, found, meant in zip(lines, read, expected, strict=True):
        assert found == [*map(known.index, meant.split()), known.eos()], line
    for target, found in zip(targets, written, strict=True):
        assert found == translator.target_text.text(" ".join(known[n] for n in target))


# ---- with transformers --------------------------------------------------------------------------

FOUND = {
    "the paper's": ({}, {}),
    "three matrices, greedily": ({"untie_embeddings": True}, {"beam": 1, "min_len": 3}),
    "the paper's length penalty": ({}, {"length_penalty": "gnmt"}),
    "more options": ({}, {"unkpen": 9.0, "lenpen": 2.0}),
    "cut at four words": ({"decoder_layers": 2}, {"beam": 1, "max_len_a": 0.0, "max_len_b": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("options, search", FOUND.values(), ids=FOUND)
def test_transformers_finds_the_same(options, search, text, transformers_python, tmp_path, capsys):
    model = exported.pack(tmp_path / "model", {**SEARCH, **search}, **options)
    arguments = ["--to", "huggingface", "--text", text, "--reference", text]
    assert run("export", model, *arguments, "--python", transformers_python) == 0
    table = json.loads((tmp_path / "model-huggingface" / "vaswani.json").read_text())
    assert all(row["identical"] == 24 for row in table["proof"]["rows"])
    assert [row["search"].split(",")[0] for row in table["proof"]["rows"]][0] == "greedy"
    assert table["versions"]["transformers"][0] >= "5"
    card = (tmp_path / "model-huggingface" / "README.md").read_text()
    assert (
        "24 of 24  100.00%" in card and f"transformers {table['versions']['transformers']}" in card
    )


def with_too_few_positions(*given):
    return {**configuration(*given), "max_position_embeddings": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, value, message",
    [
        ("marians_order", lambda width: list(range(width)), "the model: log-probabilities"),
        ("TOKENS", {**TOKENS, "decoder_start_token_id": 0}, "the model: log-probabilities"),
        ("SHARED", "model.embeddings.weight", "Marian cannot be run by"),
        ("configuration", with_too_few_positions, "(IndexError: index out of range in self)"),
    ],
    ids=["our order of dimensions", "another start", "another name", "too few positions"],
)
def test_a_broken_export_is_refused(
    name, value, message, text, transformers_python, tmp_path, capsys, monkeypatch
):
    model = exported.pack(tmp_path / "model", SEARCH)
    monkeypatch.setattr(to_huggingface, name, value)
    arguments = ["--to", "huggingface", "--text", text, "--python", transformers_python]
    assert run("export", model, *arguments) == 1
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


#: of text that is split by Moses, or that needs all that a recipe can ask for
SAID = ["The house – is well-known?", "the dog’s “cat” \u200b 1", "A <unk>, &amp; 31%"]
ALL = TextRecipe("en", "de", "all", True, "moses", split_hyphens=True, lowercase=True, bpe=None)


def cards_model(name, folder) -> Path:
    """A packed model of the demo's BPE; of text that needs every step; of pieces, lower-cased."""
    if name == "BPE":
        return DEMO
    if name == "every step":
        words = [*packed.WORDS, "-", "@-@", "well", "known", "&apos;s", "&quot;", "?"]
        packed.pack(folder, ALL, words)
        exported.change(folder, "generation", max_len_b=9)
        return folder
    return made_of_pieces(folder, lowercase=True)


#: prints the numbers that the model is given
SHOW = """
generate = model.generate
model.generate = lambda **given: print(given["input_ids"].tolist()) or generate(**given)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BPE", "every step", "pieces"])
def test_the_cards_code_translates(name, alone, transformers_python, tmp_path):
    """It gives the model our numbers; and of weights that are not random, it makes our text."""
    model = cards_model(name, tmp_path / "model")
    (tmp_path / "text").write_text("the house\n")
    arguments = ["--to", "huggingface", "--text", tmp_path / "text", "--out", tmp_path / "out"]
    assert run("export", model, *arguments) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    code, call = card.split("```python\n")[1].split("```")[0].rsplit("print(", 1)
    assert call == ('translate(["…"]))\n' if name == "pieces" else 'translate("…"))\n')
    each = "translate([line])[0]" if name == "pieces" else "translate(line)"
    code += SHOW + f"for line in {SAID}: print(repr({each}))"
    done = subprocess.run(
        [transformers_python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    given, said = ([*map(ast.literal_eval, done.stdout.splitlines()[n::2])] for n in (0, 1))
    translator = Translator.from_pretrained(model)
    assert given == [[translator.read(line).ids] for line in SAID]
    if name == "BPE":
        assert said == [translator.translate([line])[0].text for line in SAID]
