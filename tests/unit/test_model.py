"""Sections 3.1 to 3.5, 5.4: the whole model, its caches, sharing and initialisation."""

import math
from typing import Any, Dict, List

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from tests.models import SMALL, batch, config, dictionary, sample, small_model, task
from transformer_plugin.checkpoints import CheckpointError
from transformer_plugin.config import (
    ConfigError,
    VaswaniTransformerBigConfig,
    VaswaniTransformerBigEnFrConfig,
    VaswaniTransformerConfig,
)
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from transformer_plugin.model import VaswaniTransformerModel
from vaswani_transformer.attention import MultiHeadAttention
from vaswani_transformer.cache import INITIAL_CAPACITY, DecoderCache
from vaswani_transformer.fast.dropout import Dropout
from vaswani_transformer.layers import AddAndNorm

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


def parameters_by_formula(cfg: VaswaniTransformerConfig, vocabulary: int) -> int:
    """Sections 3.1 to 3.4 written out: matrices and biases counted one by one."""
    d, ff, h = cfg.encoder_embed_dim, cfg.encoder_ffn_embed_dim, cfg.encoder_attention_heads
    d_k, d_v = cfg.head_key_dim or d // h, cfg.head_value_dim or d // h
    attention = 2 * (d + 1) * h * d_k + (d + 1) * h * d_v + (h * d_v + 1) * d
    feed_forward = (d + 1) * ff + (ff + 1) * d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    positions = 2 * 1024 * d if cfg.encoder_learned_pos else 0
    layers = cfg.encoder_layers * encoder_layer + cfg.decoder_layers * decoder_layer
    return layers + vocabulary * d + positions


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
    cfg = table_3_config(row)
    with torch.device("meta"):
        model = VaswaniTransformerModel.build_model(cfg, paper_task)
    count = sum(p.numel() for p in model.parameters())
    assert count == parameters_by_formula(cfg, TABLE_3.vocabulary)
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


def test_incremental_equals_full_decoding() -> None:
    """Position by position with caches, against all at once (float64, 1e-10)."""
    model = small_model().double().eval()
    source, previous, _ = batch()
    full, extra = model(source, None, previous)
    encoder_out = model.encoder(source)
    state: Dict[str, Any] = {}
    for step in range(previous.size(1)):
        logits, step_extra = model.decoder(previous[:, : step + 1], encoder_out, state)
        real = previous[:, step].ne(1)
        torch.testing.assert_close(logits[real, 0], full[real, step], rtol=0, atol=1e-10)
        torch.testing.assert_close(
            step_extra["attn"][0][real, 0], extra["attn"][0][real, step], rtol=0, atol=1e-10
        )


def test_incremental_decoding_may_begin_with_several_tokens() -> None:
    model = small_model().double().eval()
    source, previous, _ = batch()
    full, _ = model(source[:1], None, previous[:1, :5])
    state: Dict[str, Any] = {}
    encoder_out = model.encoder(source[:1])
    first, _ = model.decoder(previous[:1, :3], encoder_out, state)
    second, _ = model.decoder(previous[:1, :5], encoder_out, state)
    torch.testing.assert_close(torch.cat([first, second], 1), full, rtol=0, atol=1e-10)


def test_more_steps_than_the_cache_has_room_for_at_first() -> None:
    """Its tensor grows twice, and loses nothing."""
    model = small_model().double().eval()
    source = batch()[0][:1]
    previous = torch.randint(4, 24, (1, 2 * INITIAL_CAPACITY + 10))
    full, _ = model(source, None, previous)
    encoder_out = model.encoder(source)
    cache = DecoderCache(len(model.decoder.layers))
    for step in range(previous.size(1)):
        logits = model.decoder.step(previous[:, step], encoder_out, cache)
        torch.testing.assert_close(logits, full[:, step], rtol=0, atol=1e-10)


def test_reordering_is_decoding_in_that_order() -> None:
    """Beam search duplicates, drops and swaps rows between steps."""
    model = small_model().double().eval()
    source, previous, _ = batch()
    order = torch.tensor([2, 0, 0])
    state: Dict[str, Any] = {}
    encoder_out = model.encoder(source)
    model.decoder(previous[:, :1], encoder_out, state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
    tokens = previous[order][:, :2]
    reordered, _ = model.decoder(tokens, encoder_out, state)
    expected, _ = model(source[order], None, tokens)
    torch.testing.assert_close(reordered[:, 0], expected[:, 1], rtol=0, atol=1e-10)


@pytest.mark.paper("3.2.3", "figure 1")
def test_no_position_sees_a_later_one() -> None:
    """Section 3.2.3: changing token t changes outputs at t and after, none before."""
    model = small_model().double().eval()
    source, previous, _ = batch()
    before, _ = model(source[:1], None, previous[:1, :5])
    for t in range(1, 5):
        changed = previous[:1, :5].clone()
        changed[0, t] = 4 + (changed[0, t] - 3) % 20
        after, _ = model(source[:1], None, changed)
        assert torch.equal(after[0, :t], before[0, :t])
        assert not torch.allclose(after[0, t], before[0, t])


@pytest.mark.parametrize("row", [slice(None), slice(0, 1)], ids=["padded", "unpadded"])
def test_the_decoder_reads_the_output_of_any_encoder(row: slice) -> None:
    """In fairseq's form: the boolean mask, which may be missing where nothing is padded."""
    model = small_model().double().eval()
    source, previous, _ = (tensor[row] for tensor in batch())
    expected, _ = model(source, None, previous)
    other = {"encoder_out": model.encoder(source)["encoder_out"]}
    if source.eq(1).any():
        other["encoder_padding_mask"] = [source.eq(1)]
    assert torch.equal(model.decoder(previous, other)[0], expected)


@pytest.mark.parametrize("layout", ["paper", "t2t", "fairseq"])
def test_padding_and_neighbours_change_nothing(layout: str) -> None:
    """Each sentence alone, padded left, padded right, and in a batch (float64, 1e-10)."""
    model = small_model(sinusoid_layout=layout).double().eval()
    source, previous, target = batch()
    together, _ = model(source, None, previous)
    for row in range(3):
        words = source[row][source[row].ne(1)]
        length = int(target[row].ne(1).sum())
        pads = torch.ones(3, dtype=torch.long)
        for alone in (words, torch.cat([pads, words]), torch.cat([words, pads])):
            logits, _ = model(alone[None], None, previous[row : row + 1, :length])
            torch.testing.assert_close(logits[0], together[row, :length], rtol=0, atol=1e-10)


@pytest.mark.paper("3.4")
def test_one_matrix_for_source_target_and_output() -> None:
    """Section 3.4."""
    model = small_model()
    weight = model.encoder.embedding.tokens.weight
    assert model.decoder.embedding.tokens.weight is weight
    assert model.decoder.output_projection.weight is weight
    untied = small_model(untie_embeddings=True)
    weights = [
        untied.encoder.embedding.tokens.weight,
        untied.decoder.embedding.tokens.weight,
        untied.decoder.output_projection.weight,
    ]
    assert len({w.data_ptr() for w in weights}) == 3


def test_the_decoder_may_have_a_matrix_of_its_own() -> None:
    """fairseq's ``--share-decoder-input-output-embed``; sharing all includes it, as there."""
    two = task(dictionary(24), dictionary(30))
    model = small_model(for_task=two, share_decoder_input_output_embed=True)
    weight = model.decoder.output_projection.weight
    assert model.decoder.embedding.tokens.weight is weight
    assert weight.shape == (30, 16) and not weight[1].any()
    assert model.encoder.embedding.tokens.weight.shape == (24, 16)
    both = {"share_decoder_input_output_embed": True, "share_all_embeddings": True}
    model = small_model(**both)
    assert model.encoder.embedding.tokens.weight is model.decoder.output_projection.weight
    with pytest.raises(ConfigError):
        small_model(for_task=two, **both)


def test_initialisation_as_in_tensor2tensor() -> None:
    """Glorot uniform within ±√(6 / (in + out)), biases 0, embeddings N(0, 1/√d), pad 0."""
    sizes = {"encoder_embed_dim": 64, "decoder_embed_dim": 64}
    model = small_model(**sizes, init="t2t", for_task=task(dictionary(2000)))
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not model.decoder.output_projection:
            limit = math.sqrt(6 / (module.in_features + module.out_features))
            assert limit * 0.9 < module.weight.abs().max() <= limit
            assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert module.weight.eq(1).all() and not module.bias.any()
            assert module.eps == 1e-6
    embeddings = model.encoder.embedding.tokens.weight
    assert embeddings.std().item() == pytest.approx(64**-0.5, rel=0.02)
    assert not embeddings[1].any()
    assert model.decoder.output_projection.bias is None


def test_fused_projection_has_the_releases_limit() -> None:
    """tensor2tensor made W^Q, W^K, W^V as one d → 3d matrix: Glorot's limit is √(6 / 4d)."""
    model = small_model(encoder_embed_dim=64, decoder_embed_dim=64, init="t2t")
    weight = model.encoder.layers[0].self_attention.qkv_proj.weight
    assert weight.shape == (192, 64)
    assert weight.abs().max().item() == pytest.approx(math.sqrt(6 / (4 * 64)), rel=0.01)


@pytest.mark.paper("3.1")
def test_norm_comes_after_the_sum_and_no_norm_ends_the_stack() -> None:
    """Section 3.1: LayerNorm(x + Sublayer(x)), so each stack's output is normalised already."""
    model = small_model().double().eval()
    source, previous, _ = batch()
    out = model.encoder(source)["encoder_out"][0]
    torch.testing.assert_close(
        out.mean(-1), torch.zeros(3, 6, dtype=torch.float64), atol=1e-6, rtol=0
    )
    norms = [n for n, m in model.named_modules() if isinstance(m, nn.LayerNorm)]
    assert len(norms) == 2 * SMALL["encoder_layers"] + 3 * SMALL["decoder_layers"]


@pytest.mark.paper("figures 3 to 5")
def test_attention_per_head_on_request() -> None:
    model = small_model().eval()
    source, previous, _ = batch()
    encoder_out = model.encoder(source, need_head_weights=True)
    _, extra = model.decoder(previous, encoder_out, need_head_weights=True)
    shapes = {
        "encoder_attention": (encoder_out, (3, 4, 6, 6)),
        "decoder_attention": (extra, (3, 4, 7, 7)),
        "cross_attention": (extra, (3, 4, 7, 6)),
    }
    for name, (holder, shape) in shapes.items():
        assert [tuple(w.shape) for w in holder[name]] == [shape, shape]
        for weights in holder[name]:
            torch.testing.assert_close(weights.sum(-1), torch.ones(shape[:-1]))
    plain, _ = model(source, None, previous)
    torch.testing.assert_close(model.decoder(previous, encoder_out)[0], plain)


def test_alignment_is_the_mean_over_heads() -> None:
    """``attn``, from which fairseq reads alignments: of the last layer."""
    model = small_model().eval()
    source, previous, _ = batch()
    _, extra = model.decoder(previous, model.encoder(source), need_head_weights=True)
    torch.testing.assert_close(extra["attn"][0], extra["cross_attention"][-1].mean(1))


def test_no_attention_is_kept_in_training() -> None:
    source, previous, _ = batch()
    assert small_model().train()(source, None, previous)[1]["attn"] == [None]


def test_validation_computes_no_attention_that_nobody_reads(monkeypatch: Any) -> None:
    """Its loss takes the kernel in every layer."""
    weighed: List[bool] = []
    attend = MultiHeadAttention.attend

    def watched(self: Any, *args: Any) -> Any:
        result = attend(self, *args)
        weighed.append(result[1] is not None)
        return result

    monkeypatch.setattr(MultiHeadAttention, "attend", watched)
    with torch.no_grad():
        VaswaniLabelSmoothedCrossEntropy(task(), False, 0.1)(small_model().eval(), sample())
    assert weighed == [False] * 6


@pytest.mark.paper("5.4")
def test_dropout_on_sublayers_and_embeddings_only() -> None:
    """Section 5.4 names the sub-layers' outputs and the sums of embeddings and positions."""
    model = small_model(dropout=0.3)
    active = [n for n, m in model.named_modules() if isinstance(m, Dropout) and m.p == 0.3]
    assert all("after_" in n or n.endswith("embedding.dropout") for n in active)
    assert len(active) == 2 + 2 * 2 + 3 * 2


@pytest.mark.paper("5.4")
def test_dropout_comes_before_the_sum() -> None:
    """Section 5.4: it spares what the residual connection carries."""
    sublayer = AddAndNorm(16, 0.5)
    sublayer.norm = nn.Identity()  # type: ignore[assignment]
    x, output = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    found = sublayer(x, output) - x
    dropped = found.abs().lt(1e-6)
    assert 50 < dropped.sum() < 110
    torch.testing.assert_close(found, (2 * output).masked_fill(dropped, 0.0))


def test_longer_than_any_limit() -> None:
    """Sinusoids are computed on demand: 3,000 tokens under limits of 64."""
    model = small_model().eval()
    source = torch.full((1, 3000), 5)
    with torch.no_grad():
        logits, _ = model(source, None, torch.tensor([[2, 5]]))
    assert torch.isfinite(logits).all()
    assert model.max_positions() == (10**6, 10**6)


def test_learned_positions_state_their_limit() -> None:
    model = small_model(encoder_learned_pos=True, decoder_learned_pos=True)
    assert model.max_positions() == (64, 64)


@pytest.mark.parametrize("implementation", ["readable", "fast", "auto"])
def test_implementations_agree(implementation: str) -> None:
    source, previous, _ = batch()
    expected, _ = small_model(attention_impl="readable").double()(source, None, previous)
    logits, _ = small_model(attention_impl=implementation).double()(source, None, previous)
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_bf16_is_near_fp32() -> None:
    """Products in bf16 (8 bits of mantissa), where the machine has it; fp32 elsewhere."""
    source, previous, target = batch()
    real = target.ne(1)
    full = small_model()(source, None, previous)[0][real]
    half = small_model(precision="bf16")(source, None, previous)[0][real]
    error = (half.float() - full).abs().max() / full.abs().max()
    assert error < 0.05


def test_misfitting_parameters_are_explained() -> None:
    with pytest.raises(CheckpointError, match="encoder.layers.2.* is only on one side"):
        small_model().load_state_dict(small_model(encoder_layers=3).state_dict())
    other = small_model(seed=1)
    other.load_state_dict(small_model().state_dict())
    assert torch.equal(
        other.encoder.layers[0].feed_forward.fc1.weight,
        small_model().encoder.layers[0].feed_forward.fc1.weight,
    )


class Renamed(VaswaniTransformerModel):
    """A model whose parameters had other names in an older version."""

    def upgrade_state_dict_named(self, state_dict: Dict[str, Any], name: str) -> None:
        for old in list(state_dict):
            state_dict[old.replace("coder.block.", "coder.layers.")] = state_dict.pop(old)


def test_names_of_an_older_version_are_replaced_before_they_are_compared() -> None:
    model = Renamed.build_model(config(), task())
    saved = small_model(seed=1).state_dict()
    old = {name.replace("coder.layers.", "coder.block."): value for name, value in saved.items()}
    model.load_state_dict(old)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_untied_embeddings_do_not_slip_into_a_model_that_shares_them() -> None:
    untied = small_model(untie_embeddings=True).state_dict()
    with pytest.raises(CheckpointError, match="--untie-embeddings"):
        small_model().load_state_dict(untied)


def test_a_model_without_memory_takes_the_tensors_of_a_checkpoint() -> None:
    """``meta`` and ``assign``; the shared matrix stays one."""
    saved = small_model(seed=1).state_dict()
    with torch.device("meta"):
        model = small_model()
    model.load_state_dict({name: value.clone() for name, value in saved.items()}, assign=True)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    weight = model.encoder.embedding.tokens.weight
    assert model.decoder.embedding.tokens.weight is weight
    assert model.decoder.output_projection.weight is weight


def test_configuration_is_kept_as_given() -> None:
    cfg = config(dropout=0.25)
    assert VaswaniTransformerModel.build_model(cfg, task()).cfg.dropout == 0.25


@pytest.mark.parametrize("untied", [False, True])
def test_the_padding_row_is_trained_where_the_output_shares_it_and_nobody_sees_it(untied):
    """Looked up it gets no gradient; as a class of the output matrix it does (3.4)."""
    model = small_model(untie_embeddings=untied).eval()
    source, previous, target = batch()
    lengths = source.ne(1).sum(1)
    logits = model(source, lengths, previous)[0]
    nn.functional.cross_entropy(logits[target.ne(1)], target[target.ne(1)]).backward()
    row = model.encoder.embedding.tokens.weight
    assert bool(row.grad[1].any()) is not untied
    with torch.no_grad():
        row[1] = 7.0
        other = model(source, lengths, previous)[0]
    real, classes = target.ne(1), [c for c in range(logits.size(-1)) if c != 1]
    torch.testing.assert_close(other[real][:, classes], logits[real][:, classes])
