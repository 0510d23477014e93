"""The systems that translate: fairseq's model, ours with the same weights, CTranslate2."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import switch_cudnn_attention_off
from vaswani.common.environment import peak_megabytes

BEAM, LONGER = 4, 50
"""Section 6.1: beam 4, output at most 50 tokens longer than the input."""

Sentences = list[list[int]]


class Translated(NamedTuple):
    """When a process began and ended, by a clock that all share; sentence number → its words.

    The words are token numbers, EOS included.
    """

    begun: float
    ended: float
    hypotheses: dict[int, list[int]]


class Decoding:
    """A model and a beam search in this process.

    Args:
        checkpoint: of fairseq's own ``transformer``
        data: the data-bin it was trained on; its ``test`` part is translated
        device: ``cpu`` or ``cuda``
        task: ``translation`` (fairseq's generator) or ``vaswani_translation`` (ours)
        model: ``fairseq``, or ``ours`` with the checkpoint's weights
        precision: ``fp32``; of our model also ``bf16``; of fairseq's ``fp16``, with cuDNN off
            (:mod:`benchmarks.systems`)
        sentences: how many are translated, from the start of the set
    """

    def __init__(
        self,
        checkpoint: str,
        data: str,
        device: str,
        task: str,
        model: str,
        precision: str = "fp32",
        sentences: int = 200,
    ) -> None:
        import torch
        from fairseq import tasks

        from transformer_plugin.checkpoints import load_checkpoint
        from vaswani.packing.convert import from_fairseq
        from vaswani_transformer.fast.linear import pack_weights
        from vaswani_transformer.fast.malloc import keep_freed_memory

        state = load_checkpoint(Path(checkpoint))
        config = configuration(task, data)
        self.task = tasks.setup_task(config.task)
        self.task.load_dataset("test")
        self.device = torch.device(device)
        if model == "fairseq":
            self.model = self.task.build_model(state["cfg"]["model"])
            self.model.load_state_dict(state["model"])
            if precision == "fp16":
                switch_cudnn_attention_off()
                self.model.half()
        else:
            keep_freed_memory()  # as fairseq-generate does
            self.model = our_model(state["cfg"]["model"], self.task, precision)
            self.model.load_state_dict(from_fairseq(state["model"]))
        self.model.eval().to(self.device)
        self.model.prepare_for_inference_(config)
        pack_weights(self.model)  # as in `vaswani generate`
        self.generator = self.task.build_generator([self.model], config.generation)
        dataset = self.task.dataset("test")
        numbers = list(range(min(sentences, len(dataset))))
        self.numbers = sorted(numbers, key=lambda i: -dataset.src_sizes[i])

    def texts(self, count: int) -> list[list[str]]:
        """Return the first ``count`` sentences as words, without the EOS."""
        dataset = self.task.dataset("test")
        words = self.task.source_dictionary
        texts = []
        for number in range(min(count, len(dataset))):
            source = dataset[number]["source"].tolist()
            texts.append([words[token] for token in source[:-1]])
        return texts

    def target_words(self) -> tuple[list[str], int]:
        """Return the target dictionary, and the number of its EOS."""
        words = self.task.target_dictionary
        return list(words.symbols), words.eos()

    def prepare(self, size: int, count: int, threads: int, share: int, shares: int) -> None:
        """Prepare this process's share of the first ``count`` sentences, for ``threads`` threads.

        Batches of ``size``, longest sentences first, go to the ``shares`` processes in turn.
        """
        import torch
        from fairseq import utils

        torch.set_num_threads(threads)
        dataset = self.task.dataset("test")
        numbers = [number for number in self.numbers if number < count]
        batches = [numbers[i : i + size] for i in range(0, len(numbers), size)]
        self.samples = []
        for batch in batches[share::shares]:
            sample = dataset.collater([dataset[number] for number in batch])
            if self.device.type == "cuda":
                sample = utils.move_to_cuda(sample)
            self.samples.append(sample)

    def translate(self) -> Translated:
        """Translate the prepared sentences, batch by batch."""
        hypotheses: dict[int, list[int]] = {}
        self.synchronise()
        begun = time.perf_counter()
        for sample in self.samples:
            answers = self.task.inference_step(self.generator, [self.model], sample)
            for number, answer in zip(sample["id"].tolist(), answers, strict=True):
                hypotheses[number] = answer[0]["tokens"].tolist()
        self.synchronise()
        return Translated(begun, time.perf_counter(), hypotheses)

    def scores(self, numbers: Sequence[int], hypotheses: Sentences) -> list[float]:
        """Return log P / length of each hypothesis in nats, in float64.

        It is the value that beam search compares.
        """
        import torch

        model = self.model.double()
        dataset = self.task.dataset("test")
        scores = []
        for number, words in zip(numbers, hypotheses, strict=True):
            source = dataset[number]["source"].unsqueeze(0).to(self.device)
            target = torch.tensor([words], device=self.device)
            previous = torch.cat([target[:, -1:], target[:, :-1]], dim=1)
            with torch.no_grad():
                out = model(source, torch.tensor([source.size(1)], device=self.device), previous)
            log_probs = torch.log_softmax(out[0].double(), dim=-1)
            total = log_probs.gather(-1, target.unsqueeze(-1)).sum().item()
            scores.append(total / len(words))
        self.model.float()
        return scores

    def synchronise(self) -> None:
        """Wait until the GPU has finished."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize()

    def peak_megabytes(self) -> float:
        """Return the peak memory: see :func:`vaswani.common.environment.peak_megabytes`."""
        return peak_megabytes(self.device.type)


class CTranslate2:
    """The same weights in CTranslate2, if installed; in a process without torch's threads.

    Args:
        folder: the converted model
        device: ``cpu`` or ``cuda``
        precision: ``float32`` or ``int8``
        threads: per worker, on a CPU
        workers: how many; CTranslate2 itself distributes the batches among them
        words: the target dictionary's, by number
        eos: the number of the end-of-sentence token
    """

    def __init__(
        self,
        folder: str,
        device: str,
        precision: str,
        threads: int,
        workers: int,
        words: list[str],
        eos: int,
    ) -> None:
        import ctranslate2

        self.numbers = {word: number for number, word in enumerate(words)}
        self.eos = eos
        self.model = ctranslate2.Translator(
            folder,
            device=device,
            compute_type=precision,
            intra_threads=threads,
            inter_threads=workers,
        )

    def prepare(self, size: int, texts: list[list[str]]) -> None:
        """Set the sentences, which CTranslate2 sorts by length and batches by ``size``."""
        self.size = size
        self.texts = texts

    def translate(self) -> Translated:
        """Translate the prepared sentences, as :meth:`Decoding.translate`."""
        longest = max(len(words) for words in self.texts) + 1 + LONGER
        begun = time.perf_counter()
        answers = self.model.translate_batch(
            self.texts, beam_size=BEAM, max_batch_size=self.size, max_decoding_length=longest
        )
        ended = time.perf_counter()
        hypotheses = {}
        for number, answer in enumerate(answers):
            words = answer.hypotheses[0]
            hypotheses[number] = [*(self.numbers[word] for word in words), self.eos]
        return Translated(begun, ended, hypotheses)

    def peak_megabytes(self) -> float:
        """Return the peak memory in MB; it is unknown on a GPU."""
        return peak_megabytes("cpu")


def configuration(task: str, data: str) -> Any:
    """Return fairseq's configuration for a task and beam search, into which a task may write."""
    from vaswani.configuration.fairseq_config import with_defaults, writable

    config = with_defaults(
        {
            "task": {"_name": task, "data": data},
            "generation": {"beam": BEAM, "max_len_a": 1, "max_len_b": LONGER},
            "scoring": {"_name": "bleu"},
            "model": {},
        }
    )
    return writable(config)


def our_model(theirs: Any, task: Any, precision: str) -> Any:
    """Build our model with the sizes, positions and LayerNorm ε of fairseq's."""
    from transformer_plugin.config import VaswaniTransformerConfig
    from transformer_plugin.model import VaswaniTransformerModel

    config = VaswaniTransformerConfig()
    for side in ("encoder", "decoder"):
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"):
            setattr(config, f"{side}_{name}", getattr(theirs, f"{side}_{name}"))
    config.sinusoid_layout = "fairseq"
    config.layer_norm_eps = 1e-5
    config.precision = precision
    config.max_source_positions = config.max_target_positions = 1024
    return VaswaniTransformerModel.build_model(config, task)


def convert_to_ctranslate2(checkpoint: Path, data: str) -> Path:
    """Return the checkpoint in CTranslate2's format, beside the original; made once.

    Raises:
        ImportError: CTranslate2 is not installed.
    """
    import torch
    from ctranslate2.converters import FairseqConverter

    # fairseq saves the options of its older models in a Namespace; the file is our own
    torch.serialization.add_safe_globals([argparse.Namespace])
    folder = checkpoint.with_suffix(".ctranslate2")
    if not folder.is_dir():
        FairseqConverter(str(checkpoint), data).convert(str(folder))
    return folder
