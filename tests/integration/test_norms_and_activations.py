"""fairseq's --encoder-normalize-before, --decoder-normalize-before and --activation-fn: a training
with them is resumed, decoded, packed and exported, and each step computes the same model."""

import torch

from vaswani import Translator
from vaswani.common.files import read_json

CHANGES = [
    "model.encoder_normalize_before=true",
    "model.decoder_normalize_before=true",
    "model.activation_fn=gelu",
]
LAST = "runs/{}/checkpoints/checkpoint_last.pt"


def parameters(run: str) -> dict[str, torch.Tensor]:
    """Return the parameters of a run's last checkpoint."""
    state = torch.load(LAST.format(run), map_location="cpu", weights_only=False)
    return state["model"]


def test_a_pre_norm_training_is_resumed_decoded_packed_and_exported(workplace, cli):
    assert cli("train", "small", *CHANGES, "run=whole").code == 0
    assert cli("train", "small", *CHANGES, "run=halved", "optimization.max_update=4").code == 0
    assert cli("train", "small", *CHANGES, "run=halved", "optimization.max_update=6").code == 0
    whole = parameters("whole")
    torch.testing.assert_close(parameters("halved"), whole, rtol=0, atol=0)
    assert "encoder.final_norm.weight" in whole and "decoder.final_norm.weight" in whole
    assert cli("generate", "whole").code == 0
    assert cli("pack", "whole").code == 0
    model = "runs/whole/model"
    architecture = read_json(workplace / model / "config.json")["architecture"]
    assert architecture["activation_fn"] == "gelu" and architecture["encoder_normalize_before"]
    source = (workplace / "data/digits/text/test.en").read_text(encoding="utf-8").splitlines()
    hypotheses = (workplace / "runs/whole/eval/test.hyp").read_text(encoding="utf-8").splitlines()
    assert [one.text for one in Translator.from_pretrained(model).translate(source)] == hypotheses
    assert cli("export", model, "--to", "fairseq", "--text", "data/digits/text/test.en").code == 0
    refused = cli("export", model, "--to", "huggingface", "--text", "data/digits/text/test.en")
    assert refused.code == 1 and "norms before" in refused.err


def test_the_preset_has_norms_before_both_sides(workplace, cli):
    changes = ["model._name=vaswani_transformer_prenorm", "run=preset"]
    assert cli("train", "small", *changes).code == 0
    assert "decoder.final_norm.bias" in parameters("preset")
