"""docs/extend.md in fairseq: its user-dir trains, packs and translates as plain torch does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import MODEL_REGISTRY

from tests import extend
from tests.models import batch, config, task
from vaswani.configuration.plugin import load_user_dir
from vaswani_transformer import SearchOptions, Vocabulary
from vaswani_transformer.search.incremental import search

SEARCH = SearchOptions(beam=4, lenpen=0.6, length_penalty="gnmt", max_len_a=1, max_len_b=5)
FLAGS = "--beam 4 --lenpen 0.6 --length-penalty gnmt --max-len-a 1 --max-len-b 5 --min-len 1"


def registration(name: str) -> str:
    """Return the page's ``variants/__init__.py``, which registers pre-norm, for another variant."""
    text = extend.FILES["variants/__init__.py"].replace("PreNormTransformer", extend.VARIANTS[name])
    return text.replace("pre_norm", name).replace("PreNormModel", f"{name.title()}Model")


@pytest.fixture(scope="module")
def variants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page's user-dir, with all its variants, and load it."""
    folder = tmp_path_factory.mktemp("extend") / "variants"
    folder.mkdir()
    for name in extend.VARIANTS:
        (folder / f"{name}.py").write_text(extend.FILES[f"{name}.py"])
    together = "\n".join(registration(name) for name in extend.VARIANTS)
    (folder / "__init__.py").write_text(together)
    load_user_dir(str(folder))
    return folder


@pytest.mark.parametrize("name", extend.VARIANTS)
def test_fairseqs_model_is_the_plain_one(name: str, variants: Path) -> None:
    """The same weights from the same seed, and the same logits."""
    kind = MODEL_REGISTRY[f"{name}_variant"]
    torch.manual_seed(1)
    fairseqs = kind.build_model(config(attention_impl="readable"), task()).eval()
    torch.manual_seed(1)
    plain = kind.transformer_class(config(), 24, 24).eval()
    assert fairseqs.state_dict().keys() == plain.state_dict().keys()
    for parameter, own in zip(fairseqs.parameters(), plain.parameters(), strict=True):
        assert torch.equal(parameter, own)
    source, previous, _ = batch()
    assert torch.equal(fairseqs(source, None, previous)[0], plain(source, previous))


TRAINED = [
    pytest.param(name, marks=[] if name in ("pre_norm", "rotary") else pytest.mark.slow)
    for name in extend.VARIANTS
]
"""By default one variant of the sub-layers and one of attention; the test above has them all."""


@pytest.mark.parametrize("name", TRAINED)
def test_a_variant_is_trained_packed_and_translates(
    name: str, variants: Path, workplace: Path, cli: Any
) -> None:
    """With the commands of the page; in Python, by its class, the scores are the same."""
    arch = f"{name}_variant"
    user_dir = ["--user-dir", variants]
    train = ["train", "small", f"common.user_dir={variants}", f"model._name={arch}", "run=own"]
    assert cli(*train).code == 0
    assert cli("pack", "own").code == 0
    folder = Path("runs/own/model")
    assert json.loads((folder / "config.json").read_text())["variant"]["arch"] == arch
    text = Path("data/digits/text/test.en")
    assert "--user-dir" in cli("translate", folder, text).err
    translated = cli("translate", folder, text, *user_dir, *FLAGS.split(), "--scores")
    model = extend.variant(name).from_pretrained(folder)
    vocabulary = Vocabulary.load(folder / "dict.en.txt")
    expected = []
    for line in text.read_text(encoding="utf-8").splitlines():
        source = torch.tensor([vocabulary.encode(line.split())])
        hypotheses = search(model.decoder, model.encoder(source), source, SEARCH)
        expected.append(float(hypotheses.scores[0]))
    scores = [float(line.split("\t")[1]) for line in translated.out.splitlines()]
    assert scores == pytest.approx(expected, abs=1e-4)  # printed to 4 places
