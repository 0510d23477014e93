"""Logits, loss and gradients equal fairseq's own ``transformer`` with the same weights."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerModelBase,
)
from torch import Tensor, nn

from tests.models import batch, dictionary, dictionary_from_padding, small_model, task
from tests.rounding import rounding_of_small_model
from transformer_plugin.model import VaswaniTransformerModel
from vaswani.packing.convert import from_fairseq, to_fairseq
from vaswani_transformer.embedding import sinusoids, token_positions


class PositionTable(nn.Module):
    """Our positions in the place of fairseq's."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", sinusoids(64, 16))

    def forward(self, tokens: Tensor, **unused: Any) -> Tensor:
        return self.table[token_positions(tokens, padding_idx=1)]


def reference(
    ours: VaswaniTransformerModel, keep_positions: bool, words: Dictionary | None = None
) -> TransformerModelBase:
    """Build fairseq's model with our ε and our weights."""
    cfg = TransformerConfig()
    cfg.dropout = 0.0
    cfg.share_decoder_input_output_embed = ours.cfg.share_decoder_input_output_embed
    cfg.share_all_embeddings = not cfg.share_decoder_input_output_embed
    cfg.max_source_positions = cfg.max_target_positions = 64
    for side in (cfg.encoder, cfg.decoder):
        side.layers = 2
        side.embed_dim = 16
        side.ffn_embed_dim = 32
        side.attention_heads = 4
    cfg.encoder.normalize_before = ours.cfg.encoder_normalize_before
    cfg.decoder.normalize_before = ours.cfg.decoder_normalize_before
    cfg.activation_fn = str(ours.cfg.activation_fn)
    cfg.decoder.input_dim = cfg.decoder.output_dim = 16
    words = words or dictionary()
    theirs = TransformerModelBase.build_model(cfg, task(words, words))
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    if not keep_positions:
        theirs.encoder.embed_positions = PositionTable()
        theirs.decoder.embed_positions = PositionTable()
    state = to_fairseq(ours.state_dict())
    for side_name in ("encoder", "decoder"):  # without it fairseq leaves the last norm out
        state[f"{side_name}.version"] = torch.tensor([3.0])
    theirs.load_state_dict(state, strict=False)  # it has constants, too
    return theirs


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Return the gradient of each parameter by name, also of names that share a matrix."""
    found = model.named_parameters(remove_duplicate=False)
    return {name: parameter.grad for name, parameter in found}


@pytest.mark.paper("3.1", "3.2.2", "3.3")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_to_fairseq(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our positions as a table in fairseq's model, and its softmax in the model's precision.

    fairseq's cross-attention takes its softmax in fp32 whatever the model's precision is.
    """
    monkeypatch.setattr(
        "fairseq.modules.multihead_attention.utils.softmax",
        lambda x, dim, onnx_trace=False: torch.softmax(x, dim),
    )
    compare(small_model().to(dtype), keep_positions=False, dtype=dtype)


def test_fairseq_layout_equals_fairseqs_own_positions() -> None:
    """``--sinusoid-layout fairseq`` needs no table: fairseq's checkpoints can be read."""
    ours = small_model(sinusoid_layout="fairseq")
    compare(ours, keep_positions=True, dtype=torch.float32)


def test_the_decoders_matrix_is_fairseqs() -> None:
    """Check ``--share-decoder-input-output-embed`` against fairseq's."""
    ours = small_model(sinusoid_layout="fairseq", share_decoder_input_output_embed=True)
    compare(ours, keep_positions=True, dtype=torch.float32)


@pytest.mark.parametrize(
    "options",
    [
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"encoder_normalize_before": True},
        {"decoder_normalize_before": True, "activation_fn": "gelu"},
        {"activation_fn": "gelu"},
        {"activation_fn": "swish"},
    ],
    ids=str,
)
def test_fairseqs_norms_and_activations(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check ``--encoder-normalize-before``, ``--decoder-normalize-before``, ``--activation-fn``.

    fairseq's own swish fails in both versions: it calls the class SiLU with a tensor.
    """
    if options.get("activation_fn") == "swish":
        monkeypatch.setattr("fairseq.utils.get_activation_fn", lambda activation: F.silu)
    ours = small_model(sinusoid_layout="fairseq", **options)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if ".norm." in name or "final_norm" in name:
                parameter += torch.randn_like(parameter) / 4  # else a norm that is missing hides
    compare(ours, keep_positions=True, dtype=torch.float32)


def test_ids_are_those_of_the_dictionary() -> None:
    """Where padding is type 0: hidden on both sides, and fairseq's positions begin at 1."""
    words = dictionary_from_padding()
    ours = small_model(for_task=task(words), sinusoid_layout="fairseq")
    theirs = reference(ours, keep_positions=True, words=words)
    source, previous, target = (ids - 1 for ids in batch())  # pad, eos and words from 3 on
    lengths = source.ne(0).sum(1)
    logits, expected = (model(source, lengths, previous)[0] for model in (ours, theirs))
    real = target.ne(0)
    atol = rounding_of_small_model(torch.float32)
    torch.testing.assert_close(logits[real], expected[real], rtol=0, atol=atol)


OPTIONS = [
    {},
    {"alignment_layer": 0},
    {"alignment_layer": 1, "alignment_heads": 1},
    {"alignment_heads": 3},
    {"full_context_alignment": True},
    {"full_context_alignment": True, "alignment_layer": 0, "alignment_heads": 2},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("training", [False, True])
def test_alignments_are_fairseqs(options: dict[str, Any], training: bool) -> None:
    """The layer, its heads and the later positions; in training where the options ask for it."""
    ours = small_model().train(training)
    theirs = reference(ours, keep_positions=False).float().train(training)
    source, previous, target = batch()
    real = target.ne(1)
    atol = rounding_of_small_model(torch.float32)
    outputs = []
    for model in (ours, theirs):
        encoder_out = model.encoder(source, source.ne(1).sum(1))
        logits, extra = model.decoder(previous, encoder_out, **options)
        features, other = model.decoder.extract_features(previous, encoder_out, **options)
        outputs.append((logits[real], features[real], extra["attn"][0], other["attn"][0]))
    torch.testing.assert_close(outputs[0][:2], outputs[1][:2], rtol=0, atol=atol)
    wanted = not training or {"alignment_layer", "alignment_heads"} & set(options)
    for attention, expected in zip(outputs[0][2:], outputs[1][2:], strict=True):
        if wanted:
            torch.testing.assert_close(attention[real], expected[real], rtol=0, atol=atol)
        else:
            assert attention is None


def test_code_for_fairseqs_encoders_does_not_read_ours() -> None:
    """Its ``encoder_out`` is [S, B, D], our ``memory`` [B, S, D]: one name would mix them up."""
    ours = small_model()
    theirs = reference(ours, keep_positions=False).float()
    source, previous, _ = batch()
    with pytest.raises(KeyError, match="encoder_out"):
        theirs.decoder(previous, ours.encoder(source))
    with pytest.raises(KeyError, match="memory"):
        ours.decoder(previous, theirs.encoder(source, source.ne(1).sum(1)))


def compare(ours: VaswaniTransformerModel, keep_positions: bool, dtype: torch.dtype) -> None:
    """Compare logits, loss, and the gradient of every parameter."""
    close = {"rtol": 0, "atol": rounding_of_small_model(dtype)}
    theirs = reference(ours, keep_positions).to(dtype)
    source, previous, target = batch()
    outcomes = []
    for model in (ours, theirs):
        logits, _ = model(source, source.ne(1).sum(1), previous)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=1)
        loss.backward()
        outcomes.append((logits[target.ne(1)], loss))
    torch.testing.assert_close(*outcomes, **close)
    found = gradients(ours)
    expected = from_fairseq(gradients(theirs))
    assert all(gradient.any() for gradient in expected.values())
    torch.testing.assert_close(found, expected, **close)


def test_weights_are_the_same_after_fairseqs_names_and_back():
    """Every parameter; that these are fairseq's is tested by the logits."""
    ours = small_model().state_dict()
    torch.testing.assert_close(from_fairseq(to_fairseq(ours)), dict(ours), rtol=0, atol=0)


def test_widths_that_fairseq_lacks():
    """Row B of Table 3 cannot be had there."""
    with pytest.raises(ValueError, match="one width"):
        to_fairseq(small_model(head_key_dim=2).state_dict())
