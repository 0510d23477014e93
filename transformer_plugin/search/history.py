"""What beam search leaves behind, and how its results are read off that, all at once.

Shape letters: N sentences still searched, k beam, C = 2k candidates, R = N·k rows, n results.
"""

from typing import Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import torch
from torch import Tensor


class Hypotheses(NamedTuple):
    """All results of a batch, n of them, sorted by sentence and score."""

    sentences: List[int]
    tokens: Tuple[Tensor, ...]  # n times [length]
    token_scores: Tuple[Tensor, ...]  # n times [length], log-probabilities
    scores: Tensor  # [n]


class Trail:
    """What each step looked at and chose; hypotheses are read off it, backwards, at the end."""

    def __init__(self) -> None:
        self.steps: List[Dict[str, Tensor]] = []

    def add(self, **step: Tensor) -> None:
        """Keep a step's tensors where they are.

        ``sentences`` [N], of the batch; of the candidates [N, C] ``scores``, ``words``, ``rows``
        (which hypothesis of the step before they continue) and ``ended``; ``chosen`` [R], the
        candidates that live on, as numbers into the N·C.
        """
        self.steps.append(step)

    def on_host(self) -> List[Dict[str, np.ndarray]]:
        """The same as arrays: one transfer for all, not one for each."""
        tensors = [tensor for step in self.steps for tensor in step.values()]
        if tensors[0].is_cpu:
            arrays = iter([tensor.numpy() for tensor in tensors])
        else:  # float64 holds every number, word and truth value here exactly
            together = torch.cat([tensor.flatten().double() for tensor in tensors]).cpu()
            parts = together.split([tensor.numel() for tensor in tensors])
            types = {torch.float32: np.float32, torch.int64: np.int64, torch.bool: np.bool_}
            arrays = iter(
                part.view(tensor.shape).numpy().astype(types.get(tensor.dtype, np.float64))
                for part, tensor in zip(parts, tensors)  # noqa: B905
            )
        return [{name: next(arrays) for name in step} for step in self.steps]

    def hypotheses(self, penalty: Callable[[np.ndarray], np.ndarray], beam: int) -> Hypotheses:
        """The ``beam`` best results of each sentence, or as many as there are."""
        steps = self.on_host()
        last, ends = results_in(steps)
        words, sums = traced_back(steps, last, ends)
        scores = ends["scores"] / penalty(last + 1.0).astype(sums.dtype)
        order = np.lexsort((-scores, ends["sentences"]))
        sentences = ends["sentences"][order]
        rank = np.arange(len(order)) - np.searchsorted(sentences, sentences)
        order, sentences = order[rank < beam], sentences[rank < beam]
        lengths = (last[order] + 1).tolist()
        inside = np.arange(len(steps)) <= last[order, None]
        token_scores = np.diff(sums[order], axis=1, prepend=sums.dtype.type(0))
        return Hypotheses(
            sentences.tolist(),
            torch.from_numpy(words[order][inside]).split(lengths),
            torch.from_numpy(token_scores[inside]).split(lengths),
            torch.from_numpy(scores[order]),
        )


def results_in(steps: List[Dict[str, np.ndarray]]) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
    """All n results of a trail: number of the step each ended in [n], and its row of that step.

    That is its ``sentences``, ``scores``, ``words`` (the last one) and ``rows``, each [n].
    """
    places = [np.nonzero(step["ended"]) for step in steps]
    last: np.ndarray = np.repeat(np.arange(len(steps)), [len(place[0]) for place in places])
    ends = {
        name: np.concatenate([step[name][place] for step, place in zip(steps, places)])  # noqa: B905
        for name in ("scores", "words", "rows")
    }
    of_sentences = [step["sentences"][place[0]] for step, place in zip(steps, places)]  # noqa: B905
    return last, {**ends, "sentences": np.concatenate(of_sentences)}


def traced_back(
    steps: List[Dict[str, np.ndarray]], last: np.ndarray, ends: Dict[str, np.ndarray]
) -> Tuple[np.ndarray, np.ndarray]:
    """From the ends back to the beginnings, all hypotheses at once.

    Returns:
        Words and sums of log-probabilities [n, steps]; what lies after a hypothesis' end is 0.
    """
    words: np.ndarray = np.zeros((len(last), len(steps)), dtype=np.int64)
    sums = np.zeros((len(last), len(steps)), dtype=ends["scores"].dtype)
    every = np.arange(len(last))
    words[every, last], sums[every, last] = ends["words"], ends["scores"]
    row = ends["rows"].copy()
    for number in reversed(range(len(steps) - 1)):
        step, longer = steps[number], np.nonzero(last > number)[0]
        candidate = step["chosen"][row[longer]]
        words[longer, number] = step["words"].ravel()[candidate]
        sums[longer, number] = step["scores"].ravel()[candidate]
        row[longer] = step["rows"].ravel()[candidate]
    return words, sums
