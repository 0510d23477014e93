"""Everything is made where its inputs are: the model, its loss, its update and its decoding.

torch's ``meta`` device, which has shapes and no numbers, stands for a GPU: a tensor made on the CPU
by mistake is seen here although no GPU is, and so is each time that the host waits for a number.
"""

from typing import Any

import pytest
import torch
from fairseq.data import LanguagePairDataset
from fairseq.logging import metrics
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.models import dictionary, sample, small_model
from transformer_plugin.config import VaswaniTranslationConfig
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy
from transformer_plugin.encoder import memory_of
from transformer_plugin.model import VaswaniTransformerModel
from transformer_plugin.task import VaswaniTranslationTask
from vaswani_transformer import SearchOptions
from vaswani_transformer.search.incremental import IncrementalModel, rule_and_limit
from vaswani_transformer.search.loop import search_loop
from vaswani_transformer.vocabulary import FAIRSEQ_IDS

META = torch.device("meta")
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class Watch(TorchDispatchMode):
    """Keeps the operations that made a tensor elsewhere than on ``meta``, and those that wait.

    The latter ask the device for numbers, which it does not have, and are answered here: of what
    may be nonzero all is but one element, a single number is 1, and what goes to the CPU is 0.
    So are the norms of a list, for which ``meta`` has no kernel in torch 2.2.

    Args:
        host_scalars: single numbers on the CPU are let pass

    Attributes:
        waits: the names of the operations for which the host waited
    """

    def __init__(self, host_scalars: bool = False) -> None:
        super().__init__()
        self.host_scalars = host_scalars
        self.seen = 0
        self.elsewhere: list[str] = []
        self.waits: list[str] = []

    def answer(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return the device's answer; None for an operation that asks it nothing."""
        if func is torch.ops.aten.nonzero.default:
            count = max(1, args[0].numel() - 1)
            return torch.empty(count, args[0].dim(), dtype=torch.int64, device=META)
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device == META:
            return 1
        to_host = str((kwargs or {}).get("device", "")) == "cpu"
        if func is torch.ops.aten._to_copy.default and to_host and args[0].device == META:
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        return None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answered = self.answer(func, args, kwargs)
        if answered is not None:
            self.waits.append(func.overloadpacket.__name__)
            return answered
        if func is torch.ops.aten._foreach_norm.Scalar:
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
    """Build a model that has its table of positions already.

    That is a formula, evaluated on the CPU in float64 (which not every device has) and then moved,
    once for each doubling of the longest sentence.
    """
    with META:
        model = small_model(attention_dropout=0.1, dropout=0.1, **options).to(dtype)
    like = torch.empty(0, dtype=dtype, device=META)
    for side in (model.encoder, model.decoder):
        side.embedding.positions(torch.zeros(1, 1, dtype=torch.int64, device=META), 1, like)
    return model


def counting_task() -> VaswaniTranslationTask:
    """Build our task, whose batches say how many target tokens they have."""
    own = VaswaniTranslationTask(VaswaniTranslationConfig(), dictionary(), dictionary())
    own.datasets["train"] = LanguagePairDataset([], [], dictionary())
    return own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("implementation", ["readable", "auto"])
@pytest.mark.parametrize("training", [True, False])
def test_forward_loss_and_backward(training: bool, implementation: str, dtype: torch.dtype) -> None:
    """As fairseq's trainer calls the criterion; float16 as under ``--fp16``."""
    model = model_on_meta(dtype, attention_impl=implementation).train(training)
    criterion = VaswaniLabelSmoothedCrossEntropy(counting_task(), False, 0.1)
    given = sample(device=META)
    with Watch() as watch, torch.set_grad_enabled(training):
        loss, _, log = criterion(model, given)
        if training:
            loss.backward()
    assert watch.seen > 200
    assert watch.elsewhere == watch.waits == []
    assert {value.device for value in log.values() if isinstance(value, Tensor)} == {META}
    if training:
        assert {p.grad.device for p in model.parameters()} == {META}
    with metrics.aggregate(new_root=True), Watch(host_scalars=True) as watch:
        criterion.reduce_metrics([log])
    # the losses, and in validation the accuracy; fairseq's Trainer would ask for each of them
    assert watch.waits == ["_to_copy"] * (1 if training else 2)


class OtherTask(VaswaniTranslationTask):
    """It could count anything."""


class OtherPairs(LanguagePairDataset):
    """It could count anything."""


@pytest.mark.parametrize("ours", [True, False])
def test_a_task_that_may_count_otherwise_is_not_believed(ours: bool) -> None:
    """The host waits for the number of target tokens rather than leave some out."""
    given = {**sample(device=META), "ntokens": 3}
    words = dictionary()
    other = (VaswaniTranslationTask if ours else OtherTask)(
        VaswaniTranslationConfig(), words, words
    )
    other.datasets["train"] = (OtherPairs if ours else LanguagePairDataset)([], [], words)
    criterion = VaswaniLabelSmoothedCrossEntropy(other, False, 0.1)
    with Watch() as watch:
        criterion(model_on_meta(torch.float32), given)
    assert watch.waits == ["nonzero"]


@pytest.mark.parametrize("penalty", ["fairseq", "gnmt"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_search(dtype: torch.dtype, penalty: str) -> None:
    """Three steps, in each of which a sentence is done: the host waits once in each, to know which,
    and once for all results."""
    model = model_on_meta(dtype).eval()
    options = SearchOptions(beam=2, max_len_b=40, min_len=2, length_penalty=penalty)
    source = sample(device=META)["net_input"]["src_tokens"]
    with Watch() as watch, torch.no_grad():
        rule, limit = rule_and_limit(options, source)
        memory = memory_of(model.encoder(source))
        decoding = IncrementalModel(options, model.decoder, memory, limit, FAIRSEQ_IDS)
        history = search_loop(decoding, rule, 3, 2, 2, 3, META)
    assert watch.seen > 200
    assert watch.elsewhere == []
    assert watch.waits == ["nonzero"] * 3
    assert [len(step.sentences) for step in history.steps] == [3, 2, 1]
    with Watch() as watch:
        history.on_host()
    assert watch.waits == ["_to_copy"]


def test_incremental_decoding_by_fairseqs_search() -> None:
    """One token, then two more at once, which need a mask; then the rows in another order."""
    model = model_on_meta(torch.float32).eval()
    given = sample(device=META)["net_input"]
    state: dict[str, Any] = {}
    order = torch.empty(2, dtype=torch.int64, device=META)
    with Watch() as watch, torch.no_grad():
        encoder_out = model.encoder(given["src_tokens"])
        model.decoder(given["prev_output_tokens"][:, :1], encoder_out, state)
        model.decoder(given["prev_output_tokens"][:, :3], encoder_out, state)
        model.decoder.reorder_incremental_state(state, order)
    assert watch.elsewhere == watch.waits == []
