"""Everything is made where its inputs are: the model, its loss, its update and its decoding.

torch's ``meta`` device, which has shapes and no numbers, stands for a GPU: a tensor made on the CPU
by mistake is seen here although no GPU is.
"""

from typing import Any, Dict, List

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.models import sample, small_model, task
from transformer_plugin.cache import DecoderCache
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from transformer_plugin.model import VaswaniTransformerModel
from transformer_plugin.optimizer import CorrectedAdam, total_norm
from transformer_plugin.search.beam_search import BLOCK, top_candidates
from transformer_plugin.search.scoring_rules import FairseqRule, GnmtRule

META = torch.device("meta")


class Watch(TorchDispatchMode):
    """Keeps the operations that made a tensor elsewhere than on ``meta``.

    Two operations are answered for the device: ``nonzero``, for which it has no numbers (every
    element is), and the norms of a list, for which it has no kernel in torch 2.2.

    Args:
        host_scalars: single numbers on the CPU are let pass
    """

    def __init__(self, host_scalars: bool = False) -> None:
        super().__init__()
        self.host_scalars = host_scalars
        self.seen = 0
        self.elsewhere: List[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.nonzero.default:
            result = torch.empty(args[0].numel(), args[0].dim(), dtype=torch.int64, device=META)
        elif func is torch.ops.aten._foreach_norm.Scalar:
            result = [torch.empty((), dtype=tensor.dtype, device=META) for tensor in args[0]]
        else:
            result = func(*args, **(kwargs or {}))
        for found in tree_flatten(result)[0]:
            if isinstance(found, Tensor):
                self.seen += 1
                scalar = self.host_scalars and found.dim() == 0 and found.device.type == "cpu"
                if found.device != META and not scalar:
                    self.elsewhere.append(f"{func}: {found.device} {tuple(found.shape)}")
        return result


def model_on_meta(dtype: torch.dtype, **options: Any) -> VaswaniTransformerModel:
    """A model that has its table of positions already.

    That is a formula, evaluated on the CPU in float64 (which not every device has) and then moved,
    once for each doubling of the longest sentence.
    """
    with META:
        model = small_model(attention_dropout=0.1, dropout=0.1, **options).to(dtype)
    like = torch.empty(0, dtype=dtype, device=META)
    for side in (model.encoder, model.decoder):
        side.embedding.positions(torch.zeros(1, 1, dtype=torch.int64, device=META), 1, like)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("implementation", ["readable", "auto"])
@pytest.mark.parametrize("training", [True, False])
def test_forward_loss_and_backward(training: bool, implementation: str, dtype: torch.dtype) -> None:
    """As fairseq's trainer calls the criterion; float16 as under ``--fp16``."""
    model = model_on_meta(dtype, attention_impl=implementation).train(training)
    criterion = VaswaniLabelSmoothedCrossEntropy(task(), False, 0.1)
    given = sample(device=META)
    with Watch() as watch, torch.set_grad_enabled(training):
        loss, _, log = criterion(model, given)
        if training:
            loss.backward()
    assert watch.seen > 200
    assert watch.elsewhere == []
    assert {value.device for value in log.values() if isinstance(value, Tensor)} == {META}
    if training:
        assert {p.grad.device for p in model.parameters()} == {META}


def test_learned_positions_and_weights_per_head() -> None:
    model = model_on_meta(torch.float32, encoder_learned_pos=True, decoder_learned_pos=True)
    given = sample(device=META)["net_input"]
    with Watch() as watch:
        encoder_out = model.encoder(given["src_tokens"], need_head_weights=True)
        model.decoder(given["prev_output_tokens"], encoder_out, need_head_weights=True)
    assert watch.elsewhere == []


def test_update() -> None:
    """Norm of the gradients and two updates.

    By torch's plain kernels: ``meta`` has no fused ones, in torch 2.2 no foreach ones either. Only
    the fused ones count the updates of each parameter on its device, the others in single numbers
    on the CPU: these alone are let pass.
    """
    model = model_on_meta(torch.float32)
    optimizer = CorrectedAdam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    optimizer.param_groups[0].update(fused=None, foreach=False)
    for parameter in model.parameters():
        parameter.grad = torch.empty_like(parameter)
    with Watch() as watch:
        total_norm([parameter.grad for parameter in model.parameters()])
    assert watch.elsewhere == []
    with Watch(host_scalars=True) as watch:
        optimizer.step()
        optimizer.step()
    assert watch.seen > 20
    assert watch.elsewhere == []
    assert {state["exp_avg_sq"].device for state in optimizer.state.values()} == {META}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_decoding(dtype: torch.dtype) -> None:
    """Steps of beam search with two hypotheses of each sentence, reordered, one sentence done;
    more steps than the cache has room for at first."""
    model = model_on_meta(dtype).eval()
    cache = DecoderCache(len(model.decoder.layers))
    order = torch.empty(6, dtype=torch.int64, device=META)
    source = sample(device=META)["net_input"]["src_tokens"]
    with Watch() as watch, torch.no_grad():
        encoder_out = model.encoder(source)
        for _ in range(35):
            logits = model.decoder.step(order, encoder_out, cache)
            cache.reorder(order)
        cache.select_sentences(order[:2])
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order[:2])
        cache.reorder(order[:4])
        logits = model.decoder.step(order[:4], encoder_out, cache)
    assert logits.shape == (4, 24)
    assert watch.elsewhere == []


def test_incremental_decoding_by_fairseqs_search() -> None:
    """One token, then two more at once, which need a mask; then the rows in another order."""
    model = model_on_meta(torch.float32).eval()
    given = sample(device=META)["net_input"]
    state: Dict[str, Any] = {}
    order = torch.empty(2, dtype=torch.int64, device=META)
    with Watch() as watch, torch.no_grad():
        encoder_out = model.encoder(given["src_tokens"])
        model.decoder(given["prev_output_tokens"][:, :1], encoder_out, state)
        model.decoder(given["prev_output_tokens"][:, :3], encoder_out, state)
        model.decoder.reorder_incremental_state(state, order)
    assert watch.elsewhere == []


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
def test_candidates_and_rules_of_the_search(penalty: str) -> None:
    """What a step of beam search does with the scores, before the host asks which are done."""
    scores = torch.empty(3, 4 * 8 * BLOCK + 5, device=META)
    limits = torch.empty(3, device=META)
    rule: Any = FairseqRule(0.6, 3, 4, META) if penalty == "fairseq" else GnmtRule(0.6, limits, 1)
    with Watch() as watch:
        found, positions = top_candidates(scores, 8)
        rule.finished(found, positions.eq(2), positions[:, :4], length=5)
        rule.keep_sentences(positions[:2, 0])
    assert watch.seen > 10
    assert watch.elsewhere == []
