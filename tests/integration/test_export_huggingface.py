"""``vaswani export --to huggingface``: transformers' Marian computes our model.

The default tests compare with Marian as ``tests/marian.py`` writes it; the slow ones with
transformers, where it is installed.
"""

import ast
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary

from tests import exported, packed, stock
from tests import pieces as small_pieces
from tests.marian import Marian
from tests.models import small_model, task
from tests.rounding import rounding_of_small_model
from vaswani import Translator
from vaswani.data import pieces
from vaswani.decoding.engine import most_tokens
from vaswani.export import exporting
from vaswani.export.to_huggingface import PAD, MarianEngine, generation_configuration, write_model
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.recipe import TextRecipe
from vaswani.folders.search_options import TranslationOptions
from vaswani_transformer.config import TransformerConfig

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo_en_de"
SEARCH = {"beam": 3, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 10}


def export(model: Path, *arguments: object) -> int:
    return stock.vaswani("export", model, "--to", "huggingface", *arguments)


# ---- the model ----------------------------------------------------------------------------------

VARIANTS = {
    "the paper's": {},
    "three matrices": {"untie_embeddings": True},
    "two matrices": {"share_decoder_input_output_embed": True},
    "other depths": {"encoder_layers": 1, "decoder_layers": 3, "encoder_attention_heads": 2},
    "GELU": {"activation_fn": "gelu"},
    "swish": {"activation_fn": "swish"},
    "other widths": {"decoder_ffn_embed_dim": 24, "encoder_embed_dim": 12, "decoder_embed_dim": 12},
}


def assert_marian_computes(model, folder: Path) -> None:
    """Assert that Marian's logits, from every stored parameter, are the packed model's."""
    out = folder.with_name("out")
    out.mkdir()
    write_model(ModelFolder.read(folder), ModelFolder.read(folder).parameters(), out)
    marian = Marian(out)
    source = torch.tensor([[4, 9, 7, 5, 2], [6, 8, 2, 1, 1]])  # the second is padded
    previous = torch.tensor([[2, 4, 5, 4], [2, 5, 4, 5]])
    expected, _ = model(source, None, previous)
    atol = rounding_of_small_model(torch.float32)
    torch.testing.assert_close(marian.logits(source, previous), expected, rtol=0, atol=atol)
    assert marian.read == set(marian.state)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_marian_computes_our_logits(options, tmp_path):
    known = packed.dictionary()
    model = small_model(0, task(known, known), layer_norm_eps=1e-5, **options).eval()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 1:  # biases and norms are not those of a new model
                value += torch.randn(value.shape) / 4
    packed.write(tmp_path / "model", model, exported.RECIPE, known)
    assert_marian_computes(model, tmp_path / "model")


def test_two_dictionaries_have_their_own_words_and_matrices(tmp_path):
    source, target = packed.dictionary(), packed.dictionary(["das", "Haus"])
    model = small_model(0, task(source, target), untie_embeddings=True, layer_norm_eps=1e-5).eval()
    packed.write(tmp_path / "model", model, exported.RECIPE, source)
    target.save(str(tmp_path / "model" / "dict.de.txt"))
    exported.renew(tmp_path / "model", "dict.de.txt")
    assert_marian_computes(model, tmp_path / "model")
    for name, words in (("vocab", source), ("target_vocab", target)):
        ids = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert ids == {word: number for number, word in enumerate(words.symbols)}


# ---- the search ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, expected",
    [
        (
            {"beam": 4, "lenpen": 0.6, "max_len_b": 50, "min_len": 0},
            {"num_beams": 4, "length_penalty": 0.6, "early_stopping": True, "max_new_tokens": 40},
        ),
        (
            {"beam": 1, "max_len_a": 0.25, "max_len_b": 3, "min_len": 2, "unkpen": 3.5},
            {"min_new_tokens": 2, "max_new_tokens": 20, "sequence_bias": [[[3], -3.5]]},
        ),
    ],
)
def test_the_search_has_transformers_names(options, expected):
    limits = TransformerConfig(max_source_positions=64, max_target_positions=40)
    found = generation_configuration(TranslationOptions(**options), limits)
    assert expected.items() <= found.items()
    assert (found["pad_token_id"], found["decoder_start_token_id"], found["eos_token_id"]) == (
        *(1, 2, 2),
    )


def test_the_longest_translation_is_fairseqs():
    """A · source + B tokens and the end, within the decoder's positions."""
    options = TranslationOptions(max_len_a=1.5, max_len_b=3)
    assert most_tokens(options, 5, 64) == 7 + 3 + 1
    assert most_tokens(options, 60, 64) == 64


# ---- the command, without transformers ----------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """Pack a model with random weights."""
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    exported.change(folder, "generation", **SEARCH)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_text("\n".join(exported.sentences()) + "\n")
    return path


@pytest.fixture(scope="module")
def transformers():
    pytest.importorskip("transformers", reason="it is missing: exports to it are NOT tested")


@pytest.fixture
def alone(monkeypatch):
    """Hide transformers from the exporter."""
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)


def test_without_transformers_the_export_says_that_it_was_not_compared(
    alone, model, text, tmp_path, capsys
):
    out = tmp_path / "out"
    assert export(model, "--text", text, "--out", out) == 0
    assert "pip install transformers" in capsys.readouterr().err
    assert "proof" not in json.loads((out / "vaswani.json").read_text())
    assert "**Not compared**" in (out / "README.md").read_text()
    names = ["config.json", "generation_config.json", "model.safetensors", "vocab.json"]
    assert {path.name for path in out.iterdir()} == {
        *(*names, "README.md", "SHA256SUMS", "vaswani.json")
    }


@pytest.mark.parametrize(
    "options, named",
    [
        ({"encoder_learned_pos": True}, "learned positions"),
        ({"sinusoid_layout": "t2t"}, "t2t"),
        ({"sinusoid_layout": "fairseq"}, "--sinusoid-layout fairseq"),
        ({"head_key_dim": 8, "head_value_dim": 8}, "d_model/h"),
        ({"decoder_normalize_before": True}, "norms before"),
    ],
)
def test_a_model_that_marian_cannot_express_is_refused(options, named, tmp_path, capsys):
    packed.pack(tmp_path / "model", **options)
    assert export(tmp_path / "model") == 1
    assert named in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- SentencePiece ------------------------------------------------------------------------------

#: other scripts, symbols, spelt-out symbols, spaces, fullwidth and composed forms
ODD = [
    *("The  house ", "  is", "🙂👍🏽 old", "ﬁ Ａ１ é é ½", "a\tb", "\u3000家", "▁", "@@ a@@ b"),
    *("</s>", "the </s> house", "<s> <pad> <unk>", "<0x41>", "&amp; <br/>", ">>", "[MASK]"),
    *("'\"`´’“”„«»", "a\u00a0b\u200bc\u00add", "\u202bعربي\u202c", "e\u0301\u0301", "家" * 100),
]


@pytest.fixture(scope="module")
def of_pieces(tmp_path_factory) -> Path:
    """Pack a model of SentencePiece's pieces, with random weights."""
    folder = tmp_path_factory.mktemp("pieces") / "model"
    learned = small_pieces.learn(folder.parent)
    pieces.write_dictionary(learned, folder.with_name("dict"))
    known = Dictionary.load(str(folder.with_name("dict")))
    model = small_model(0, task(known, known), max_source_positions=512, max_target_positions=512)
    recipe = TextRecipe("en", "zh", tokeniser="none", subword="sentencepiece")
    packed.write(folder, model, recipe, known)
    shutil.copyfile(learned, folder / learned.name)
    exported.renew(folder, learned.name)
    return folder


def test_the_tokenizer_is_the_models_and_its_ids_are_fairseqs(alone, of_pieces, text, tmp_path):
    out = tmp_path / "out"
    assert export(of_pieces, "--text", text, "--out", out) == 0
    learned = (of_pieces / "sentencepiece.bpe.model").read_bytes()
    assert [(out / f"{side}.spm").read_bytes() for side in ("source", "target")] == [learned] * 2
    ids = json.loads((out / "vocab.json").read_text(encoding="utf-8"))
    loaded = pieces.load(of_pieces / "sentencepiece.bpe.model")
    assert ids == {loaded.id_to_piece(number): number for number in range(loaded.get_piece_size())}
    table = json.loads((out / "tokenizer_config.json").read_text())
    assert table["split_special_tokens"] is True and table["model_max_length"] == 512


@pytest.mark.slow
def test_marian_tokenizer_reads_and_writes_as_the_packed_model(
    transformers, alone, of_pieces, text, tmp_path
):
    """Every line, odd ones too; and of random pieces, the text that they are."""
    translator = Translator.from_pretrained(of_pieces)
    rng = random.Random(1)
    plain = [line for pair in small_pieces.pairs(20, 1) for line in pair]
    mixed = [" ".join(rng.choices([*plain, *ODD], k=3)) for _ in range(300)]
    lines = [*plain, *ODD, *(line for line in mixed if not line.startswith(">>"))]
    out = tmp_path / "out"
    assert export(of_pieces, "--text", text, "--out", out) == 0
    known = translator.engine.target
    first = known.index("<0xFF>") + 1  # random bytes are no text
    targets = [rng.choices(range(first, len(known)), k=rng.randint(0, 20)) for _ in range(300)]
    tokenizer = MarianEngine(ModelFolder.read(of_pieces), out).tokenizer
    for line in lines:
        meant = translator.source_text.subwords(translator.source_text.tokens(line)).split()
        assert tokenizer(line)["input_ids"] == [*map(known.index, meant), known.eos()], line
    written = tokenizer.batch_decode(
        [[*target, known.eos()] for target in targets], skip_special_tokens=True
    )
    for target, found in zip(targets, written, strict=True):
        assert found == translator.target_text.text(" ".join(known[n] for n in target))


# ---- with transformers --------------------------------------------------------------------------

FOUND = {
    "the paper's length penalty": ({}, {"length_penalty": "gnmt"}),
    "three matrices, greedily": ({"untie_embeddings": True}, {"beam": 1, "min_len": 3}),
    "more options": ({}, {"unkpen": 9.0, "lenpen": 2.0}),
    "cut at four words": ({"decoder_layers": 2}, {"beam": 1, "max_len_a": 0.0, "max_len_b": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("options, search", FOUND.values(), ids=FOUND)
def test_transformers_finds_the_same(transformers, options, search, text, tmp_path):
    model = exported.pack(tmp_path / "model", {**SEARCH, **search}, **options)
    assert export(model, "--text", text, "--reference", text) == 0
    table = json.loads((tmp_path / "model-huggingface" / "vaswani.json").read_text())
    rows = [row for row in table["proof"]["rows"] if row["least_identical"] is not None]
    assert rows and all(row["identical"] == 24 for row in rows)


#: prints the numbers that the model is given
SHOW = """
generate = model.generate
model.generate = lambda **given: print(given["input_ids"].tolist()) or generate(**given)
print(repr(translate({lines})))
"""


@pytest.mark.slow
def test_the_cards_code_translates_as_the_packed_model(transformers, alone, text, tmp_path):
    assert export(DEMO, "--text", text, "--out", tmp_path / "out") == 0
    card = (tmp_path / "out" / "README.md").read_text()
    code, call = card.split("```python\n")[1].split("```")[0].rsplit("print(", 1)
    assert call == 'translate(["…"]))\n'
    lines = ["The house – is well-known?", "the dog’s “cat” \u200b 1", "A <unk>, &amp; 31%"]
    done = subprocess.run(
        [sys.executable, "-I", "-c", code + SHOW.format(lines=lines)],
        capture_output=True,
        text=True,
        check=True,
    )
    ids, translations = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    translator = Translator.from_pretrained(DEMO)
    rows = [translator.read(line).ids for line in lines]
    longest = max(map(len, rows))
    assert ids == [[*row, *[PAD] * (longest - len(row))] for row in rows]
    assert translations == [one.text for one in translator.translate(lines)]
