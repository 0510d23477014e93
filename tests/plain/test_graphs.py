"""Graphs that torch makes of the model, and what its transformations leave behind."""

import threading
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.plain.small import EOS, PAD, TYPES, batch, small_model
from vaswani_transformer import Transformer
from vaswani_transformer.embedding import ROWS, SinusoidalPositions, sinusoids
from vaswani_transformer.fast import use_fast_kernels

LONG = ROWS + 44
"""More tokens than the table of positions has rows."""


def long_batch(sentences: int = 4) -> tuple[Tensor, Tensor]:
    """Return a batch of longer sentences, one of them padded."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, TYPES, (sentences, LONG), generator=generator)
    target = torch.randint(4, TYPES, (sentences, LONG - 7), generator=generator)
    source[1, :20] = PAD
    target[1, -20:] = PAD
    target[:, 0] = EOS
    return source, target


def model_of(fast: bool) -> Transformer:
    """Build a small model, readable or with fast kernels."""
    model = small_model()
    if fast:
        use_fast_kernels(model)
    return model


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore::DeprecationWarning")
def test_a_traced_model_takes_other_batches(fast: bool) -> None:
    """``torch.jit.trace`` of a new model, for more and longer sentences than it was traced with."""
    model = model_of(fast)
    source, previous, _ = batch()
    traced = torch.jit.trace(model, (source, previous))
    other = long_batch()
    torch.testing.assert_close(traced(*other), model(*other))


@pytest.mark.skipif(
    not hasattr(torch.compiler, "is_compiling"), reason="torch.export of 2.2 cannot trace the model"
)
@pytest.mark.parametrize("fast", [False, True])
def test_an_exported_model_takes_any_batch_and_length(fast: bool) -> None:
    """``torch.export`` with dynamic dimensions; lengths beyond the table of positions."""
    model = model_of(fast)
    source, previous, _ = batch()
    sentences = torch.export.Dim("sentences", min=2, max=1000)
    source_length = torch.export.Dim("source_length", min=2, max=5000)
    target_length = torch.export.Dim("target_length", min=2, max=5000)
    shapes = ({0: sentences, 1: source_length}, {0: sentences, 1: target_length})
    program = torch.export.export(model, (source, previous), dynamic_shapes=shapes).module()
    other = long_batch()
    torch.testing.assert_close(program(*other), model(*other))
    torch.testing.assert_close(program(source, previous), model(source, previous))


def test_a_transformation_of_torch_func_leaves_the_model_as_it_was() -> None:
    """Every tensor of the module is a plain one afterwards, and the logits are the same."""
    model = small_model()
    source, previous, _ = batch()
    before = model(source, previous)
    parameters = dict(model.named_parameters())

    def loss(values: dict[str, Tensor], source: Tensor, previous: Tensor) -> Tensor:
        given = (source[None], previous[None])
        return torch.func.functional_call(model, values, given).logsumexp(-1).sum()

    with torch.no_grad():  # which looks at no ids: vmap has none to show
        model.requires_grad_(True)
    per_sentence = torch.func.grad(loss)(parameters, source[0], previous[0])
    assert all(gradient.isfinite().all() for gradient in per_sentence.values())
    for side in (model.encoder, model.decoder):
        assert not torch._C._functorch.is_functorch_wrapped_tensor(side.embedding.positions.table)
    assert torch.equal(model(source, previous), before)


def test_threads_share_a_model_at_any_length() -> None:
    """A longer sentence in one thread does not change the positions that another reads."""
    model = small_model()
    source, previous, _ = batch()
    table = model.encoder.embedding.positions.table
    expected = model(source, previous)
    longer = long_batch()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(model(source, previous))),
        threading.Thread(target=lambda: model(*longer)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(found[0], expected)
    assert model.encoder.embedding.positions.table is table


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_converted_table_comes_from_the_formula(dtype: torch.dtype) -> None:
    """Not from float16 numbers, after ``half`` and back; nor from memory that was never written."""
    positions = SinusoidalPositions(16).half().to(dtype)
    assert torch.equal(positions.table, sinusoids(ROWS, 16).to(dtype))
    with torch.device("meta"):
        empty = SinusoidalPositions(16)
    assert torch.equal(empty.to_empty(device="cpu").table, sinusoids(ROWS, 16).float())


def test_a_long_sentence_has_the_positions_of_a_short_one() -> None:
    """Both are rows of one formula, whichever the length of the batch."""
    positions = SinusoidalPositions(16)
    numbers = torch.arange(ROWS)[None]
    like = torch.zeros(1)
    torch.testing.assert_close(positions(numbers, LONG, like), positions(numbers, ROWS, like))


@pytest.mark.parametrize("options", [{}, {"share_decoder_input_output_embed": True}])
def test_assigned_parameters_are_shared_as_before(options: dict[str, bool]) -> None:
    """``load_state_dict(assign=True)`` gives each name a tensor of its own (3.4)."""
    saved = small_model(1, **options)
    state = {name: tensor.clone() for name, tensor in saved.state_dict().items()}
    with torch.device("meta"):
        model = small_model(2, **options)
    model.load_state_dict(state, assign=True)
    assert model.decoder.output_projection.weight is model.decoder.embedding.tokens.weight
    source, previous, _ = batch()
    assert torch.equal(model(source, previous), saved(source, previous))


def test_separate_matrices_stay_separate_when_they_are_assigned() -> None:
    """Check that ``untie_embeddings`` survives the assignment."""
    model = small_model(untie_embeddings=True)
    model.load_state_dict(model.state_dict(), assign=True)
    assert model.decoder.output_projection.weight is not model.decoder.embedding.tokens.weight
