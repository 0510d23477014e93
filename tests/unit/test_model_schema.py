"""config.json, changed by somebody: one sentence, or a model that translates; never a traceback."""

import json
import math
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple, get_type_hints

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests import exported, packed
from transformer_plugin.config import VaswaniTransformerConfig
from vaswani import Translator
from vaswani.common.errors import UserError
from vaswani.common.files import write_json
from vaswani.experiment.run_record import HOW_IT_COMPUTES
from vaswani.model_folder.folder import EXPORTED, read_folder, write_folder
from vaswani.model_folder.packed_model import kept_options
from vaswani.model_folder.schema import Architecture
from vaswani.model_folder.search_options import SearchOptions
from vaswani.model_folder.text_recipe import TextRecipe

TEXT = ["the dog sees a cat .", "", "the elephant is big"]
SECTIONS = {"architecture": Architecture, "text": TextRecipe, "generation": SearchOptions}
STRANGE: Dict[type, Tuple[Any, ...]] = {
    bool: (True, False),
    int: (-5, 0, 3, 2**31, 10**9, 10**30),
    float: (-1e300, 1.5, 1e308, math.nan, math.inf),
    str: ("", "no", "bogus", "4", "../en", "\0", "\ud800"),
    type(None): (None,),
    list: ([], [1]),
    dict: ({}, {"a": {"b": []}}),
}
#: what a field of a type may hold in JSON
FITS: Dict[type, Tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("packed") / "model"
    packed.pack(folder)
    return folder


@pytest.fixture
def model(made: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(made, tmp_path / "model"))


def rewrite(model: Path, table: Any) -> None:
    """Write config.json, hash included, as somebody might."""
    (model / "config.json").write_text(json.dumps(table), encoding="utf-8")
    exported.renew(model, "config.json")


def refused(model: Path) -> str:
    """The sentence with which a model is refused; "" if it is not, and then it translates."""
    try:
        translator = Translator.from_pretrained(model)
        assert [one.source for one in translator.translate(TEXT)] == TEXT
    except ValueError as error:  # ours are ValueErrors; fairseq's and torch's are mostly not
        assert str(error).strip() and len(str(error)) < 1000
        return str(error)
    return ""


def declared() -> Iterator[Tuple[str, str, type, bool]]:
    """Section, key, type and whether it may be null, as the dataclasses say."""
    for section, kind in SECTIONS.items():
        hints = get_type_hints(kind)
        for item in fields(kind):
            words = str(hints[item.name])
            plain = next((t for t in (bool, int, float) if t.__name__ in words), str)
            yield section, item.name, plain, "Optional" in words or "None" in words


@pytest.mark.parametrize("section", SECTIONS)
def test_a_value_of_another_type_is_refused(section: str, model: Path) -> None:
    """Every key with every kind of value that it cannot hold: the sentence names both."""
    table = json.loads((model / "config.json").read_text(encoding="utf-8"))
    checked = 0
    for part, key, kind, optional in declared():
        if part != section:
            continue
        allowed = (*FITS[kind], *([type(None)] if optional else []))
        for value in (v for t, values in STRANGE.items() if t not in allowed for v in values):
            rewrite(model, {**table, section: {**table[section], key: value}})
            message = refused(model)
            assert f"{section}.{key} is " in message and str(model) in message, (key, value)
            checked += 1
    assert checked > 100


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of lenpen 1e308
@pytest.mark.parametrize("section", SECTIONS)
def test_a_strange_value_is_refused_or_works(section: str, model: Path) -> None:
    """Negative, huge, infinite, unknown words; but not the lengths, which may be that long."""
    table = json.loads((model / "config.json").read_text(encoding="utf-8"))
    for part, key, kind, _ in declared():
        if part != section or key in ("max_len_a", "max_len_b"):
            continue
        for value in (v for t in FITS[kind] for v in STRANGE[t]):
            rewrite(model, {**table, section: {**table[section], key: value}})
            refused(model)


#: section, key, value: what was believed, or ended in a traceback or in 4 GB of memory
BELIEVED = [
    ("text", "tokeniser", "bogus"),
    ("text", "lowercase", "no"),
    ("text", "normalise", "some"),
    ("architecture", "max_source_positions", -5),
    ("architecture", "encoder_attention_heads", "4"),
    ("architecture", "encoder_layers", 1_000_000_000),
    ("architecture", "decoder_ffn_embed_dim", 1_000_000),
    ("architecture", "head_key_dim", 10**12),
    ("architecture", "encoder_learned_pos", True),
    ("architecture", "untie_embeddings", True),
    ("generation", "beam", None),
    ("generation", "seed", 10**13),
    ("generation", "sampling_topk", 0),
    ("origin", "updates", "many"),
    (None, "format_version", True),
    (None, "notes", {}),
    (None, "text", [[]]),
]


@pytest.mark.parametrize(("section", "key", "value"), BELIEVED)
def test_what_was_believed(section: Any, key: str, value: Any, model: Path) -> None:
    table = json.loads((model / "config.json").read_text(encoding="utf-8"))
    (table[section] if section else table)[key] = value
    rewrite(model, table)
    assert refused(model)


def test_nested_without_end(model: Path) -> None:
    (model / "config.json").write_text('{"a":' * 100_000, encoding="utf-8")
    assert "not written by 'vaswani pack', or is damaged" in refused(model)


WEIGHTS = {
    "whole numbers": (lambda state: {n: v.to(torch.int64) for n, v in state.items()}, "type I64"),
    "one is missing": (
        lambda state: {
            n: v for n, v in state.items() if n != "decoder.layers.1.feed_forward.fc2.bias"
        },
        "decoder.layers.1.feed_forward.fc2.bias is missing",
    ),
    "one too many": (lambda state: {**state, "other": torch.zeros(1)}, "other has no place in it"),
    "another shape": (
        lambda state: {**state, "decoder.layers.1.feed_forward.fc2.bias": torch.zeros(3)},
        "decoder.layers.1.feed_forward.fc2.bias is 3, not 16",
    ),
    "another dictionary": (
        lambda state: {n: v[:5].clone() if "tokens" in n else v for n, v in state.items()},
        r"tokens.weight is 5 × 16, not \d+ × 16",
    ),
}


@pytest.mark.parametrize(("damage", "message"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_are_those_of_the_model(damage: Any, message: str, model: Path) -> None:
    save_file(damage(load_file(model / "model.safetensors")), model / "model.safetensors")
    exported.renew(model, "model.safetensors")
    with pytest.raises(UserError, match=message):
        Translator.from_pretrained(model)


def test_half_precision_weights_are_weights(model: Path) -> None:
    state = {n: v.half() for n, v in load_file(model / "model.safetensors").items()}
    save_file(state, model / "model.safetensors")
    exported.renew(model, "model.safetensors")
    assert not refused(model)


@pytest.mark.parametrize("codes", [b"", b"t h e\n", b"#version: x\nt h\n", b"\xff\xfe", b"\n\n"])
def test_damaged_codes_are_our_sentence(codes: bytes, model: Path, capsys: Any) -> None:
    (model / "bpecodes").write_bytes(codes)
    exported.renew(model, "bpecodes")
    exported.change(model, "text", bpe="subword_nmt")
    with pytest.raises(UserError, match="bpecodes is damaged: it is not a file of BPE codes"):
        Translator.from_pretrained(model)
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def exported_model(made: Path, tmp_path_factory: Any) -> Path:
    """The model as CTranslate2 has it, without a proof."""
    pytest.importorskip("ctranslate2")
    from vaswani.export.to_ctranslate2 import write_model

    folder, out = read_folder(made), tmp_path_factory.mktemp("export") / "model"
    table = {name: folder.config[name] for name in ("text", "generation", "origin")}
    table.update(format=EXPORTED.format, format_version=1, target="ctranslate2")
    table["limits"] = {"source": 64, "target": 64}

    def fill(part: Path) -> None:
        write_model(folder, folder.parameters(), part, None)
        write_json(part / "vaswani.json", table)

    write_folder(out, fill, EXPORTED)
    return out


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("limits", "source", -5, "limits.source is -5, but must be from 1 to"),
        ("limits", "target", "64", "limits.target is '64', but must be a whole number"),
        ("text", "tokeniser", "bogus", "text.tokeniser is 'bogus', but must be one of moses, none"),
        ("text", "lowercase", "no", "text.lowercase is 'no', but must be true or false"),
        ("generation", "beam", None, "generation.beam is empty, but must be a whole number"),
        (None, "limits", None, "it has no section 'limits'"),
        (None, "format_version", True, "not written by 'vaswani export', or is damaged"),
    ],
)
def test_an_export_is_read_in_the_same_way(
    section: Any, key: str, value: Any, message: str, exported_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(exported_model, tmp_path / "export"))
    assert not refused(folder)
    exported.change(folder, section, **{key: value})
    assert message in refused(folder)


@pytest.mark.parametrize("words", ["[1, 2]", "{", '["a"]', "[" * 100_000])
def test_an_exports_damaged_vocabulary(words: str, exported_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported_model, tmp_path / "export"))
    (name,) = (path.name for path in folder.glob("*_vocabulary.json"))
    (folder / name).write_text(words, encoding="utf-8")
    exported.renew(folder, name)
    assert f"{name} was altered or damaged: it is not a list of words" in refused(folder)


def test_the_schema_is_the_models_configuration() -> None:
    """Every option of the model that says what it is, with its type."""
    left_out = {*HOW_IT_COMPUTES, "share_all_embeddings", "_name"}
    options = {f.name for f in fields(VaswaniTransformerConfig)} - left_out
    assert set(kept_options()) == options
    ours, theirs = get_type_hints(Architecture), get_type_hints(VaswaniTransformerConfig)
    for name in options - {"sinusoid_layout"}:
        assert ours[name] == theirs[name], name
    layouts = {choice.value for choice in theirs["sinusoid_layout"]}
    assert set(ours["sinusoid_layout"].__args__) == layouts


def test_what_is_packed_is_read(made: Path) -> None:
    assert read_folder(made).recipe.langs == ("en", "de")
