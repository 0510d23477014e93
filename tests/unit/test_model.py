"""The model as fairseq knows it: its sizes, its adapters, and the parameters it takes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from tests.models import batch, dictionary, sample, small_model, task
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.config import (
    ConfigError,
    VaswaniTransformerBigConfig,
    VaswaniTransformerBigEnFrConfig,
    VaswaniTransformerConfig,
)
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from transformer_plugin.encoder import VaswaniEncoder
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer import Transformer
from vaswani_transformer.attention import MultiHeadAttention
from vaswani_transformer.decoder import Decoder
from vaswani_transformer.encoder import Encoder
from vaswani_transformer.fast import FAST

TABLE_3 = OmegaConf.load("configs/table3.yaml")


def table_3_config(row: str) -> VaswaniTransformerConfig:
    changes = OmegaConf.from_dotlist(list(TABLE_3.rows[row].change)).get("model", {})
    cfg = VaswaniTransformerBigConfig() if row == "big" else VaswaniTransformerConfig()
    cfg.max_source_positions = cfg.max_target_positions = 1024
    for name, value in changes.items():
        if name != "_name":
            assert hasattr(cfg, name), name
            setattr(cfg, name, value)
    return cfg


def test_the_authors_big_english_french_model() -> None:
    """``transformer_big_enfr`` of their code: 377.7 million parameters at 32,768 types."""
    changes = OmegaConf.load("configs/wmt14_en_fr_big_t2t.yaml").model
    cfg = VaswaniTransformerBigEnFrConfig()
    for name in ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim", "untie_embeddings"):
        setattr(cfg, name, changes[name])
    with torch.device("meta"):
        model = VaswaniTransformerModel.build_model(cfg, task(dictionary(32768)))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(377.7e6, abs=0.05e6)


@pytest.fixture(scope="module")
def paper_task() -> Any:
    return task(dictionary(TABLE_3.vocabulary))


@pytest.mark.paper("6.2")
@pytest.mark.parametrize("row", TABLE_3.rows)
def test_table_3_parameter_counts(row: str, paper_task: Any) -> None:
    """In millions; plain/test_check.py counts them one by one."""
    cfg = table_3_config(row)
    with torch.device("meta"):
        model = VaswaniTransformerModel.build_model(cfg, paper_task)
    count = sum(p.numel() for p in model.parameters())
    in_paper = TABLE_3.rows[row].params
    if row == "big":  # 213 fits no vocabulary that the other rows fit
        assert (in_paper, round(count / 1e6)) == (213, 218)
    elif in_paper is not None:
        assert round(count / 1e6) == in_paper


@pytest.mark.paper("6.2")
def test_table_3_is_complete() -> None:
    """The paper's variations: 1 base, 4 of A, 2 of B, 7 of C, 4 of D, 1 of E, 1 big."""
    groups = [row.split("-")[0] for row in TABLE_3.rows]
    counts = {group: groups.count(group) for group in groups}
    assert counts == {"base": 1, "A": 4, "B": 2, "C": 7, "D": 4, "E": 1, "big": 1}


def test_the_papers_experiments_say_where_they_start() -> None:
    """Whatever the default is; the authors' code's own model starts as theirs."""
    for path in Path("configs").glob("wmt14_*.yaml"):
        expected = "t2t" if path.stem.endswith("_t2t") else "fairseq"
        assert OmegaConf.load(path).model.init == expected, path


def test_incremental_decoding_equals_decoding_of_the_whole() -> None:
    """Through fairseq's state, row by row in another order from the third token on."""
    model = small_model().double().eval()
    source, previous, target = batch()
    whole, extra = model(source, None, previous)
    weights = extra["attn"][0]
    state = {}
    encoder_out = model.encoder(source)
    order = torch.tensor([2, 0, 0])
    for step in range(previous.size(1)):
        if step == 2:
            model.decoder.reorder_incremental_state_scripting(state, order)
            encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
            previous, target, whole, weights = (
                one[order] for one in (previous, target, whole, weights)
            )
        logits, found = model.decoder(previous[:, : step + 1], encoder_out, state)
        real = target[:, step].ne(1)
        torch.testing.assert_close(logits[real, 0], whole[real, step], rtol=0, atol=1e-10)
        torch.testing.assert_close(found["attn"][0][real, 0], weights[real, step])


@pytest.mark.parametrize("row", [slice(None), slice(0, 1)], ids=["padded", "unpadded"])
def test_the_decoder_reads_the_output_of_any_encoder(row: slice) -> None:
    """In fairseq's form: the boolean mask, which may be missing where nothing is padded."""
    model = small_model().double().eval()
    source, previous, _ = (tensor[row] for tensor in batch())
    expected, _ = model(source, None, previous)
    other = {"memory": model.encoder(source)["memory"]}
    if source.eq(1).any():
        other["encoder_padding_mask"] = [source.eq(1)]
    assert torch.equal(model.decoder(previous, other)[0], expected)


@pytest.mark.parametrize("name", ["return_all_hiddens", "need_head_weight", "token_embeddings"])
def test_an_unknown_option_of_a_call_is_refused(name: str) -> None:
    """Also one of fairseq's that would have no effect."""
    model = small_model().eval()
    source, previous, _ = batch()
    encoder_out = model.encoder(source)
    option = {name: True}
    for call in (
        lambda: model(source, None, previous, **option),
        lambda: model.extract_features(source, None, previous, **option),
        lambda: model.encoder(source, None, **option),
        lambda: model.decoder(previous, encoder_out, **option),
        lambda: model.decoder.extract_features(previous, encoder_out, **option),
        lambda: model.decoder.output_layer(torch.zeros(1, 1, 16), **option),
    ):
        with pytest.raises(TypeError, match=name):
            call()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"alignment_layer": 2}, "alignment_layer is 2, but must be from 0 to 1"),
        ({"alignment_layer": -1}, "alignment_layer is -1"),
        ({"alignment_heads": 0}, "alignment_heads is 0, but must be from 1 to 4"),
        ({"alignment_layer": 1, "alignment_heads": 5}, "alignment_heads is 5"),
        ({"full_context_alignment": True, "incremental_state": {}}, "full_context_alignment"),
    ],
)
def test_an_alignment_that_there_is_not_is_refused(options: dict[str, Any], named: str) -> None:
    model = small_model().eval()
    source, previous, _ = batch()
    with pytest.raises(ValueError, match=named):
        model.decoder(previous, model.encoder(source), **options)


def test_features_are_what_the_output_matrix_multiplies() -> None:
    model = small_model().eval()
    source, previous, _ = batch()
    features, extra = model.extract_features(source, None, previous)
    expected, attention = model(source, None, previous)
    torch.testing.assert_close(model.decoder.output_layer(features), expected)
    torch.testing.assert_close(extra["attn"][0], attention["attn"][0])


@pytest.mark.paper("figures 3 to 5")
def test_attention_per_head_has_fairseqs_names() -> None:
    """And ``attn``, from which fairseq reads alignments, is the last layer's mean over heads."""
    model = small_model().eval()
    source, previous, _ = batch()
    encoder_out = model.encoder(source, need_head_weights=True)
    _, extra = model.decoder(previous, encoder_out, need_head_weights=True)
    found = {"encoder_attention": encoder_out["encoder_attention"], **extra}
    for name, shape in (
        ("encoder_attention", (3, 4, 6, 6)),
        ("decoder_attention", (3, 4, 7, 7)),
        ("cross_attention", (3, 4, 7, 6)),
    ):
        assert [tuple(weights.shape) for weights in found[name]] == [shape, shape]
    torch.testing.assert_close(extra["attn"][0], extra["cross_attention"][-1].mean(1))
    assert model.train()(source, None, previous)[1]["attn"] == [None]


def test_validation_computes_no_attention_that_nobody_reads(monkeypatch: Any) -> None:
    """Its loss takes the kernel in every layer."""
    weighed: list[bool] = []
    attend = MultiHeadAttention.attend_heads
    monkeypatch.setattr(
        *(MultiHeadAttention, "attend_heads"),
        lambda self, *args: weighed.append(True) or attend(self, *args),
    )
    with torch.no_grad():
        VaswaniLabelSmoothedCrossEntropy(task(), False, 0.1)(small_model().eval(), sample())
    assert not weighed


def test_positions_state_their_limit() -> None:
    """Sinusoids have none of their own."""
    assert small_model().max_positions() == (10**6, 10**6)
    learned = small_model(encoder_learned_pos=True, decoder_learned_pos=True)
    assert learned.max_positions() == (64, 64)


def test_one_option_makes_the_whole_model_readable() -> None:
    """And then the loss is the formula's, too."""
    kinds = {}
    for choice in ("auto", "readable"):
        model = small_model(attention_impl=choice)
        kinds[choice] = {type(module) for module in model.modules()}
        assert model.decoder.computes_losses == (choice == "auto")
    stacks = {Encoder, Decoder}  # the plugin's are subclasses of their quick forms
    modules = set(FAST) - stacks
    assert modules <= kinds["readable"] and not modules & kinds["auto"]
    assert not set(FAST.values()) & kinds["readable"]


class OtherEncoder(Encoder):
    """Of a variant in plain torch."""


class OtherFairseqEncoder(VaswaniEncoder):
    """The same for fairseq."""


class ForwardOfItsOwn(Transformer):
    """A variant that does more with its parts."""

    def forward(self, source: Any, target: Any) -> Any:
        return 2 * super().forward(source, target)


class EncoderOfItsOwn(Transformer):
    """A variant whose encoder does more."""

    def build_encoder(self, tokens: Any) -> Encoder:
        paper = super().build_encoder(tokens)
        return OtherEncoder(paper.embedding, paper.layers)


def test_a_variant_of_which_fairseq_would_run_a_part_is_refused(monkeypatch: Any) -> None:
    for kind, named in (
        (ForwardOfItsOwn, r"ForwardOfItsOwn defines forward\(\), but fairseq"),
        (EncoderOfItsOwn, "OtherEncoder.*encoder_class of VaswaniTransformerModel"),
    ):
        monkeypatch.setattr(VaswaniTransformerModel, "transformer_class", kind)
        with pytest.raises(ConfigError, match=named):
            small_model()
    monkeypatch.setattr(VaswaniTransformerModel, "encoder_class", OtherFairseqEncoder)
    assert type(small_model().encoder) is OtherFairseqEncoder


def test_probabilities_of_float64_stay_float64() -> None:
    """Which fairseq's would round to float32."""
    logits = torch.randn(2, 3, 24, dtype=torch.float64)
    model = small_model()
    for log_probs, function in ((True, torch.log_softmax), (False, torch.softmax)):
        found = model.get_normalized_probs((logits, None), log_probs)
        torch.testing.assert_close(found, function(logits, -1), rtol=0, atol=1e-15)
    half = model.get_normalized_probs((logits.bfloat16(), None), True)
    assert half.dtype == torch.float32


def test_untied_embeddings_do_not_slip_into_a_model_that_shares_them() -> None:
    untied = small_model(untie_embeddings=True).state_dict()
    with pytest.raises(CheckpointError, match="--untie-embeddings"):
        small_model().load_state_dict(untied)
