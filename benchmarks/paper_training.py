"""A training of the paper's size in a process of its own, which keeps what an average needs."""

import math
import time
from collections import deque
from typing import Any

from benchmarks.gpu_training import TimedTraining

KEPT = 5
"""How many of the last models are averaged (6.1)."""
MARK = "@@ "


class PaperTraining(TimedTraining):
    """A training that goes on in steps, is averaged, validated, and translates.

    The arguments are those of :class:`benchmarks.train.Training`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.trainer.task.load_dataset("valid")
        self.kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.skipped = 0

    def advance(self, count: int) -> dict[str, Any]:
        """Do ``count`` updates, and keep a copy of the model.

        Returns:
            updates: how many were done since the start
            nll: mean loss of these updates, in bits per token, without label smoothing
            tokens: target tokens of these updates
            rate: the last learning rate
            skipped: batches since the start that ``--fp16`` left out
        """
        bits = 0.0
        tokens = 0
        end = self.trainer.get_num_updates() + count
        while self.trainer.get_num_updates() < end:
            batch = self.next_batch()
            logged = self.trainer.train_step([batch], raise_oom=True)
            if not logged:
                self.skipped += 1
                continue
            bits += float(logged["nll_loss"]) * batch["ntokens"]
            tokens += batch["ntokens"]
        self.keep()
        return {
            "updates": end,
            "nll": bits / tokens,
            "tokens": tokens,
            "rate": self.trainer.get_lr(),
            "skipped": self.skipped,
        }

    def keep(self) -> None:
        """Copy the parameters to the processor's memory, in fp32."""
        state = self.trainer.model.state_dict()
        copies: dict[tuple[int, Any], Any] = {}
        parameters = {}
        for name, tensor in state.items():
            place = (tensor.data_ptr(), tensor.shape)
            if place not in copies:  # tied matrices stay tied
                copies[place] = tensor.detach().float().cpu().clone()
            parameters[name] = copies[place]
        self.kept.append(parameters)

    def finish(self) -> dict[str, Any]:
        """Replace the model by the average of the last copies, and return its validation loss.

        Returns:
            averaged: how many
            nll: bits per token, without label smoothing
        """
        from vaswani.training.averaging import average_models

        labelled = [(str(number), model) for number, model in enumerate(self.kept)]
        self.trainer.model.load_state_dict(average_models(labelled))
        self.trainer.model.eval()
        loss = self.validation_loss()
        self.trainer.model.prepare_for_inference_(self.trainer.cfg)
        return {"averaged": len(labelled), "nll": loss}

    def validation_loss(self) -> float:
        """Return the loss on the validation set, in bits per token, without label smoothing."""
        import torch

        nats = 0.0
        tokens = 0
        batches = self.trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
        with torch.no_grad():
            for batch in batches:
                sample, _ = self.trainer._prepare_sample(batch)
                _, _, logged = self.trainer.task.valid_step(
                    sample, self.trainer.model, self.trainer.criterion
                )
                nats += float(logged["nll_loss"])
                tokens += int(logged["ntokens"])
        return nats / tokens / math.log(2)

    def translate(self, beam: int, count: int, size: int) -> dict[str, Any]:
        """Translate the first sentences of the validation set, longest first.

        Args:
            beam: hypotheses per sentence
            count: how many sentences
            size: how many at a time

        Returns:
            seconds, tokens (ends included), and BLEU of the words, as multi-bleu.perl computes it.
        """
        from fairseq import utils

        from vaswani.scoring.bleu import multi_bleu

        task = self.trainer.task
        dataset = task.dataset("valid")
        generator = task.build_generator([self.trainer.model], self.search(beam))
        numbers = sorted(range(min(count, len(dataset))), key=lambda i: -dataset.src_sizes[i])
        samples = []
        for first in range(0, len(numbers), size):
            rows = [dataset[number] for number in numbers[first : first + size]]
            sample = dataset.collater(rows)
            samples.append(utils.move_to_cuda(sample) if self.device == "cuda" else sample)
        hypotheses: dict[int, Any] = {}
        self.synchronise()
        start = time.perf_counter()
        for sample in samples:
            answers = task.inference_step(generator, [self.trainer.model], sample)
            for number, answer in zip(sample["id"].tolist(), answers, strict=True):
                hypotheses[number] = answer[0]["tokens"].cpu()
        self.synchronise()
        seconds = time.perf_counter() - start
        words = task.target_dictionary
        translations = [words.string(hypotheses[number], MARK) for number in sorted(hypotheses)]
        references = [
            words.string(dataset[number]["target"], MARK) for number in sorted(hypotheses)
        ]
        return {
            "seconds": seconds,
            "tokens": sum(len(tokens) for tokens in hypotheses.values()),
            "BLEU": multi_bleu("", translations, references).score,
        }

    def search(self, beam: int) -> Any:
        """Return fairseq's options for a search, with the same rule of length in both systems."""
        from omegaconf import OmegaConf

        changes = {"beam": beam, "lenpen": 0.6, "max_len_a": 1, "max_len_b": 50}
        return OmegaConf.merge(self.trainer.cfg.generation, changes)
