"""What a training computes on: whether the user chose it, and what its first line says."""

import pytest
from omegaconf import OmegaConf

from vaswani.common.find import find_config
from vaswani.configuration.fairseq_config import read_configuration
from vaswani.training.launch import devices_in_words, on_cpu


def config(processes: int = 1, precision: str = "fp32", **common: bool):
    return OmegaConf.create(
        {
            "common": {"cpu": False, **common},
            "model": {"precision": precision},
            "distributed_training": {"distributed_world_size": processes},
        }
    )


@pytest.fixture
def gpus(monkeypatch):
    """Make torch report two GPUs."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda number: "NVIDIA H100")
    monkeypatch.setattr("vaswani_transformer.precision.has_bf16_units", lambda device: True)


def test_a_cpu_that_nobody_asked_for_is_not_recorded(monkeypatch):
    """Else 'vaswani generate' would leave the GPUs of another machine unused."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = find_config("demo_en_de")
    assert read_configuration(path).common.cpu is False
    assert read_configuration(path, ["common.cpu=true"]).common.cpu is True
    assert on_cpu(read_configuration(path))


def test_the_devices_are_named(gpus):
    assert devices_in_words(config(8, "bf16")) == "on NVIDIA H100 in bf16, 8 processes"
    assert devices_in_words(config(fp16=True)) == "on NVIDIA H100 in fp16"
    assert devices_in_words(config(2, cpu=True)) == "on the CPU in fp32, 2 processes"
