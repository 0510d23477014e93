"""Attention on a GPU: cuDNN's is never chosen in half precision, and the user's switch stays."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from vaswani_transformer.fast import attention
from vaswani_transformer.fast.attention import HAS_CUDNN_ATTENTION, fused_attention

switch = pytest.mark.skipif(not HAS_CUDNN_ATTENTION, reason="this torch has no such switch")
HALVES = [torch.float16, torch.bfloat16]


def is_on() -> bool | None:
    """Return whether torch may choose cuDNN's attention."""
    return torch._C._get_cudnn_sdp_enabled() if HAS_CUDNN_ATTENTION else None


@pytest.fixture(params=[True, False], ids=["on", "off"])
def before(request: Any) -> Iterator[bool | None]:
    """Set the switch as a user may have it, and restore it."""
    if not HAS_CUDNN_ATTENTION:
        yield None
        return
    default = is_on()
    torch._C._set_sdp_use_cudnn(request.param)
    yield request.param
    torch._C._set_sdp_use_cudnn(default)


@pytest.fixture
def seen(monkeypatch: Any) -> list[bool | None]:
    """Record the switch at each call of torch's attention, which computes nothing."""
    states: list[bool | None] = []
    monkeypatch.setattr(
        attention.F, "scaled_dot_product_attention", lambda *_: states.append(is_on())
    )
    return states


def query(dtype: torch.dtype, device: str = "cuda") -> Any:
    """Return a stand-in for a query on a GPU."""
    return SimpleNamespace(dtype=dtype, device=torch.device(device))


def attend(dtype: torch.dtype, device: str = "cuda") -> None:
    fused_attention(query(dtype, device), None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_on_a_gpu_does_without(
    dtype: torch.dtype, before: bool | None, seen: list[bool | None]
) -> None:
    attend(dtype)
    assert seen == [False if HAS_CUDNN_ATTENTION else None]
    assert is_on() == before


@pytest.mark.parametrize(
    ("dtype", "device"), [(torch.float32, "cuda"), (torch.float64, "cuda"), (torch.float16, "cpu")]
)
def test_elsewhere_the_switch_is_not_touched(
    dtype: torch.dtype, device: str, before: bool | None, seen: list[bool | None]
) -> None:
    attend(dtype, device)
    assert seen == [before] and is_on() == before


@switch
@pytest.mark.parametrize("dtype", HALVES)
def test_after_an_error_the_switch_is_as_before(
    dtype: torch.dtype, before: bool | None, monkeypatch: Any
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        attend(dtype)
    assert is_on() == before


@switch
def test_threads_do_not_turn_it_on_for_each_other(before: bool | None, monkeypatch: Any) -> None:
    """The second begins inside the first, which ends before it."""
    first_is_inside, second_is_inside, first_has_ended = (threading.Event() for _ in range(3))
    states: dict[str, bool | None] = {}

    def compute(*_: Any) -> None:
        if threading.current_thread().name == "first":
            first_is_inside.set()
            second_is_inside.wait(10)
        else:
            second_is_inside.set()
            first_has_ended.wait(10)
        states[threading.current_thread().name] = is_on()

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", compute)
    first, second = (
        threading.Thread(target=attend, args=(torch.bfloat16,), name=name)
        for name in ("first", "second")
    )
    first.start()
    first_is_inside.wait(10)
    second.start()
    first.join(10)
    first_has_ended.set()
    second.join(10)
    assert states == {"first": False, "second": False}
    assert is_on() == before


@switch
def test_a_graph_is_traced_whole_and_without(before: bool | None, monkeypatch: Any) -> None:
    """The kernel is chosen while torch.compile traces: then the switch must be off."""
    states: list[bool | None] = []

    @torch.library.custom_op("vaswani_test::attention", mutates_args=())
    def probe(value: Tensor) -> Tensor:
        return value.clone()

    @probe.register_fake
    def _(value: Tensor) -> Tensor:
        states.append(is_on())
        return torch.empty_like(value)

    def compute(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
        return probe(value)

    monkeypatch.setattr(attention.F, "scaled_dot_product_attention", compute)
    monkeypatch.setattr(attention, "may_choose_cudnn", lambda query: True)
    layer: Callable[[Tensor], Tensor] = lambda x: fused_attention(x, x, 2 * x).relu()  # noqa: E731
    compiled = torch.compile(layer, dynamic=True, fullgraph=True, backend="aot_eager")
    for length in (5, 7):
        x = torch.randn(2, length)
        assert torch.equal(compiled(x), (2 * x).relu())
        assert is_on() == before
    assert states and set(states) == {False}
