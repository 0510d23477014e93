"""What a training or decoding computes on, and in which precision: for messages and records."""

from typing import Any


def on_cpu(config: Any) -> bool:
    """Whether fairseq uses the CPU: ``common.cpu``, or CUDA cannot be used."""
    import torch

    return bool(config.common.cpu) or not torch.cuda.is_available()


def gpus_to_use(config: Any) -> int:
    """How many GPUs there are to use on this machine; torch counts those it cannot use, too."""
    import torch

    return 0 if on_cpu(config) else torch.cuda.device_count()


def precision_of(config: Any) -> str:
    """What products are computed in: ``fp32``, ``bf16`` or ``fp16`` (or fairseq's ``amp``).

    The model's bf16 is fp32 where the device has no units for it.
    """
    from vaswani_transformer.precision import computed_in

    for name in ("fp16", "bf16", "amp"):
        if config.common.get(name):
            return name
    chosen = getattr(config.model, "precision", None)
    return computed_in(str(chosen), "cpu" if on_cpu(config) else "cuda")


def in_words(config: Any) -> str:
    """``on the CPU in fp32``, ``on 8 GPUs (NVIDIA H100) in bf16``: all processes together."""
    import torch

    from vaswani_transformer.precision import tf32

    processes = config.distributed_training.distributed_world_size
    names = {torch.cuda.get_device_name(number): number for number in range(gpus_to_use(config))}
    precision = precision_of(config)
    if not names:
        several = f", {processes} processes," if processes > 1 else ""
        return f"on the CPU{several} in {precision}"
    device = f"{processes} GPUs" if processes > 1 else "one GPU"
    if precision == "fp32" and tf32():
        precision = "TF32"
    return f"on {device} ({', '.join(names)}) in {precision}"
