"""The loss inside the model's forward: two processes' gradients are one process's."""

import os
from pathlib import Path

import pytest
import torch
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.models import sample, small_model, task
from tests.processes import leave_after
from transformer_plugin.criterion import VaswaniLabelSmoothedCrossEntropy

WRAPPERS = ["legacy_ddp", "pytorch_ddp", "pytorch_ddp, unused parameters looked for"]
CASES = [(wrapper, untied) for wrapper in WRAPPERS for untied in (False, True)]


def model(untied: bool) -> nn.Module:
    """Build a model with the same weights in every process."""
    return small_model(untie_embeddings=untied).train()


def wrapped(name: str, own: nn.Module) -> nn.Module:
    """Wrap a model as fairseq does, but without a device number, which a CPU has not."""
    group = torch.distributed.group.WORLD
    if name == "legacy_ddp":
        wrapper = LegacyDistributedDataParallel(own, process_group=group)
    else:
        wrapper = DistributedDataParallel(own, find_unused_parameters="unused" in name)
    return ModuleProxyWrapper(wrapper)


def gradients(own: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in own.named_parameters() if p.grad is not None}


def criterion() -> VaswaniLabelSmoothedCrossEntropy:
    return VaswaniLabelSmoothedCrossEntropy(task(), False, 0.1)


def _rank(rank: int, folder: str) -> None:
    """Train one of two processes: on the first two sentences, or the third, twice in every case."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    found = []
    for name, untied in CASES:
        own = model(untied)
        parallel = wrapped(name, own)
        for _ in range(2):
            own.zero_grad()
            loss, _, _ = criterion()(parallel, sample(slice(0, 2) if rank == 0 else slice(2, 3)))
            loss.backward()
            if name == "legacy_ddp":
                parallel.all_reduce_grads()
        found.append(gradients(own))
    torch.save(found, f"{folder}/{rank}.tmp")
    os.replace(f"{folder}/{rank}.tmp", f"{folder}/{rank}.pt")
    leave_after(Path(folder) / f"{1 - rank}.pt")


@pytest.mark.slow
def test_gradients_of_two_processes(tmp_path: Path) -> None:
    """Every wrapper of fairseq's, with one matrix and with three; both average over processes."""
    torch.multiprocessing.spawn(_rank, args=(str(tmp_path),), nprocs=2)
    for rank in (0, 1):
        for (_, untied), found in zip(CASES, torch.load(tmp_path / f"{rank}.pt"), strict=True):
            alone = model(untied)
            loss, _, _ = criterion()(alone, sample(slice(0, 3)))
            (loss / 2).backward()
            torch.testing.assert_close(found, gradients(alone), rtol=1e-5, atol=1e-6)
            assert len(found) > 40
