"""A packed model is read from its folder, or refused if it is not as it was packed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.plain.small import DEMO, sign
from vaswani_transformer import Transformer, Vocabulary, beam_search
from vaswani_transformer.initialisation import WithoutDraws
from vaswani_transformer.io.packed import read_packed, write_weights

pytest.importorskip("safetensors")


def test_the_demo_translates() -> None:
    """A sentence of tests/recorded, whose words are types of the model's."""
    model = Transformer.from_pretrained(DEMO)
    source, target = (Vocabulary.load(DEMO / f"dict.{lang}.txt") for lang in ("en", "de"))
    assert not model.training
    words = "Please open the book at page 2@@ 3@@ 8 .".split()  # noqa: SIM905
    ids = torch.tensor([source.encode(words)])
    (found,) = beam_search(model, ids)
    text = " ".join(target.decode(found)).replace("@@ ", "")
    assert text == "Bitte öffnen Sie das Buch auf Seite 238 ."


def test_a_shared_matrix_is_one_parameter() -> None:
    model = Transformer.from_pretrained(DEMO)
    tied = model.decoder.output_projection.weight
    assert tied is model.encoder.embedding.tokens.weight is model.decoder.embedding.tokens.weight
    assert next(iter(model.parameters())).dtype == torch.float32


def change(folder: Path, **architecture: Any) -> None:
    table = json.loads((folder / "config.json").read_text())
    table["architecture"].update(architecture)
    (folder / "config.json").write_text(json.dumps(table))
    sign(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "dict.de.txt"])
def test_a_damaged_file_is_named(name: str, copied: Path) -> None:
    content = bytearray((copied / name).read_bytes())
    content[-2] ^= 1
    (copied / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        Transformer.from_pretrained(copied)


def test_a_missing_file_is_named(copied: Path) -> None:
    (copied / "dict.en.txt").unlink()
    with pytest.raises(OSError, match="dict.en.txt"):
        Transformer.from_pretrained(copied)


@pytest.mark.parametrize(
    "architecture, named",
    [
        ({"gating": True}, "gating"),
        ({"encoder_layers": 40}, "encoder.layers.39"),
        ({"decoder_ffn_embed_dim": 10**6}, "decoder.layers"),
    ],
)
def test_other_sizes_than_the_files_are_refused(
    architecture: Any, named: str, copied: Path
) -> None:
    """Before a model of those sizes, which may not fit into memory, is built."""
    change(copied, **architecture)
    with pytest.raises(ValueError, match=named):
        Transformer.from_pretrained(copied)


def test_a_file_without_a_parameter_is_refused(copied: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = copied / "model.safetensors"
    state = load_file(str(path))
    missing = "encoder.layers.0.self_attention.out_proj.bias"
    del state[missing]
    save_file(state, str(path))
    sign(copied)
    with pytest.raises(ValueError, match=missing):
        Transformer.from_pretrained(copied)


class Variant(Transformer):
    """With a size of its own."""

    config: Any

    def build_final_norm(self) -> torch.nn.Module:
        assert self.config.grown == 3
        return torch.nn.Identity()


def test_a_variant_is_loaded_by_its_class_alone(copied: Path) -> None:
    """Its parts may have the paper's parameters, and compute something else with them."""
    table = json.loads((copied / "config.json").read_text())
    table["variant"] = {"arch": "my_variant", "options": {"grown": 3}}
    (copied / "config.json").write_text(json.dumps(table))
    sign(copied)
    with pytest.raises(ValueError, match="'my_variant', a variant"):
        Transformer.from_pretrained(copied)
    assert type(Variant.from_pretrained(copied)) is Variant


class Widened(torch.nn.Module):
    """A feed-forward network whose parameters have names of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.widen(x)


class OtherParts(Transformer):
    """A variant whose layers lack the paper's feed-forward network."""

    def build_feed_forward(self, d_ff: int) -> Any:
        return Widened(self.d_model)


def test_a_variants_layers_may_have_other_parts(copied: Path) -> None:
    """They were refused: the paper's last layer was looked for in their file."""
    table = json.loads((copied / "config.json").read_text())
    table["variant"] = {"arch": "other_parts", "options": {}}
    (copied / "config.json").write_text(json.dumps(table))
    packed = read_packed(DEMO)
    model = OtherParts(packed.config, len(packed.source), len(packed.target))
    write_weights(copied / "model.safetensors", model.state_dict(), packed.config)
    sign(copied)
    loaded = OtherParts.from_pretrained(copied)
    torch.testing.assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_compiling"),
    reason="torch 2.2 imports SymPy itself",
)
def test_a_model_is_loaded_without_torchs_compiler() -> None:
    """In a process of its own: importing the compiler takes as long as importing torch."""
    program = (
        "import sys; from vaswani_transformer import Transformer;"
        f"Transformer.from_pretrained({str(DEMO)!r});"
        "print(*{'torch._dynamo', 'sympy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_values_are_not_drawn_where_there_are_none() -> None:
    """Under ``WithoutDraws`` a tensor keeps its values; outside it is drawn as before."""
    with WithoutDraws():
        linear = nn.Linear(3, 3)
        before = linear.weight.clone()
        nn.init.normal_(linear.weight)
        linear.weight.data.uniform_(1, 2)
        assert nn.init.xavier_uniform_(linear.weight) is linear.weight
    assert torch.equal(linear.weight, before)
    nn.init.uniform_(linear.weight, 1, 2)
    assert linear.weight.min() >= 1
