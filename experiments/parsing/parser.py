"""A trained model that writes the trees of sentences."""

import math
from pathlib import Path

import torch

from experiments.fairseq_runs import Training
from experiments.parsing.search import Brackets, PartialTree, batches, greedy, pad
from experiments.parsing.text import TARGET, nearest_in_length
from vaswani.configuration.plugin import load_user_dir
from vaswani.data.text import read_lines
from vaswani_transformer import Vocabulary
from vaswani_transformer.vocabulary import EOS

EXTRA = 300
"""Unconstrained, a tree may have so many tokens more than its sentence (6.3)."""


class Parser:
    """A row's model, with the dictionaries and prepared text that it was trained on."""

    def __init__(self, training: Training, average: Path) -> None:
        from fairseq import checkpoint_utils

        load_user_dir(training.config.common.user_dir)
        [self.model], _, _ = checkpoint_utils.load_model_ensemble_and_task([str(average)])
        self.model.eval()
        task = training.config.task
        data = Path(task.data)
        self.text = data.parent / "text"
        self.kind = task.source_lang
        self.source = Vocabulary.load(data / f"dict.{self.kind}.txt")
        self.target = Vocabulary.load(data / f"dict.{TARGET}.txt")
        self.brackets = Brackets(self.target)

    def ids(self, split: str) -> tuple[list[list[int]], list[list[int]]]:
        """Return the token ids of a set's sources and targets, each with an end."""
        sources = read_lines(self.text / f"{split}.{self.kind}")
        targets = read_lines(self.text / f"{split}.{TARGET}")
        return (
            [self.source.encode(line.split()) for line in sources],
            [self.target.encode(line.split()) for line in targets],
        )

    def parses(self, split: str, other: bool, constrained: bool) -> list[list[str]]:
        """Return the tokens that the model writes for each sentence, or for another's source.

        Args:
            split: the set
            other: give it the source of another sentence
            constrained: one tree, with a leaf for each word of the sentence
        """
        from transformer_plugin.encoder import memory_of

        own_sources, _ = self.ids(split)
        lengths = [len(source) - 1 for source in own_sources]
        sources = own_sources
        if other:
            sources = [own_sources[place] for place in nearest_in_length(lengths)]
        written: dict[int, list[str]] = {}
        for batch in batches(lengths):
            source = pad([sources[place] for place in batch])
            memory = memory_of(self.model.encoder(source))
            longest = max(lengths[place] for place in batch) + EXTRA
            partial = [PartialTree(self.brackets, lengths[place]) for place in batch]
            ids = greedy(self.model.decoder, memory, longest, partial if constrained else None)
            for place, tokens in zip(batch, ids, strict=True):
                written[place] = self.target.decode(tokens)
        return [written[place] for place in range(len(sources))]

    @torch.no_grad()
    def nll(self, split: str, other: bool) -> float:
        """Return the bits of an opening bracket, after the right tokens before it.

        If ``other``, each sentence gets the source of another, of nearly the same length.
        """
        sources, targets = self.ids(split)
        if other:
            lengths = [len(source) for source in sources]
            sources = [sources[place] for place in nearest_in_length(lengths)]
        opening = torch.tensor(list(self.brackets.opening))
        bits = []
        for batch in batches([len(target) for target in targets]):
            source = pad([sources[place] for place in batch])
            target = pad([targets[place] for place in batch])
            shifted = target.roll(1, dims=1)
            shifted[:, 0] = EOS
            logits = self.model(source, None, shifted)[0]
            nats = torch.nn.functional.cross_entropy(logits.mT, target, reduction="none")
            bits.append(nats[torch.isin(target, opening)] / math.log(2))
        return float(torch.cat(bits).mean())
