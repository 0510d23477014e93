"""Training speed: fairseq's trainer with fairseq's model and with ours, on the same batches."""

import time
from typing import Any, Dict, List

from benchmarks.worker import peak_megabytes


class Training:
    """A training inside this process that does some updates whenever it is asked.

    Args:
        data: a data-bin with a training part
        flags: of fairseq-train, for the system under test
        device: ``cpu`` or ``cuda``
        autocast: run the model's forward under bf16 autocast, as our own precision switch does
    """

    def __init__(self, data: str, flags: List[str], device: str, autocast: bool = False) -> None:
        import torch

        import transformer_plugin  # noqa: F401  (registers our side; harmless for the other)

        self.device = device
        self.trainer = make_trainer([data, *flags, *(["--cpu"] if device == "cpu" else [])])
        if autocast:
            forward = self.trainer._model.forward

            def under_autocast(*args: Any, **kwargs: Any) -> Any:
                with torch.autocast(device, dtype=torch.bfloat16):
                    return forward(*args, **kwargs)

            self.trainer._model.forward = under_autocast
        self.epoch = self.trainer.get_train_iterator(epoch=1, load_dataset=True)
        self.batches = iter(())

    def updates(self, count: int) -> Dict[str, Any]:
        """Do ``count`` updates.

        Returns:
            seconds of wall and of processor time, target tokens, and each update's loss in bits
            per token.
        """
        samples = [[self.next_batch()] for _ in range(count)]
        tokens = sum(sample[0]["ntokens"] for sample in samples)
        self.synchronise()
        start, processor = time.perf_counter(), time.process_time()
        losses = [float(self.trainer.train_step(sample)["loss"]) for sample in samples]
        self.synchronise()
        return {
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - processor,
            "tokens": int(tokens),
            "losses": losses,
        }

    def next_batch(self) -> Any:
        """The next batch; after the last one of an epoch, the next epoch's first."""
        for sample in self.batches:
            return sample
        self.batches = self.epoch.next_epoch_itr(shuffle=True)
        return next(self.batches)

    def synchronise(self) -> None:
        """Wait until the GPU has done what was asked."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def peak_megabytes(self) -> float:
        """See :func:`benchmarks.worker.peak_megabytes`."""
        return peak_megabytes(self.device)


def make_trainer(arguments: List[str]) -> Any:
    """fairseq's trainer as ``fairseq-train`` would make it from these arguments."""
    import logging

    import torch
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    logging.getLogger("fairseq").setLevel(logging.WARNING)
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=arguments)
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(config.common.seed)
    task = tasks.setup_task(config.task)
    model = task.build_model(config.model)
    return Trainer(config, task, model, task.build_criterion(config.criterion))
