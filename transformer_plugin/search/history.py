"""What each step of beam search chose, and how all hypotheses are read from that at once.

A hypothesis is never stored while it grows: each step keeps which candidates it considered and
which row each continues, its parent. Following the parents from an end back to the first step gives
the tokens.

Shape letters: N sentences still searched, k beam, C = 2k candidates, R = N·k rows, n finished
hypotheses of all sentences, T steps.
"""

from typing import Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import torch
from torch import Tensor


class Hypotheses(NamedTuple):
    """All results of a batch, n of them, sorted by sentence and score."""

    sentences: List[int]
    tokens: Tuple[Tensor, ...]  # n of [length]
    token_scores: Tuple[Tensor, ...]  # n of [length], log-probabilities
    scores: Tensor  # [n]


class History:
    """What each step considered and chose; hypotheses are read from it, backwards, at the end."""

    def __init__(self) -> None:
        self.steps: List[Dict[str, Tensor]] = []

    def add(self, **step: Tensor) -> None:
        """Keep a step's tensors where they are.

        ``sentences`` [N], their numbers in the batch; for the candidates [N, C], ``scores``,
        ``tokens``, ``parents`` (the row of the step before that each continues) and ``finished``;
        ``chosen`` [R], the candidates that go on, as positions in the N·C.
        """
        self.steps.append(step)

    def on_host(self) -> List[Dict[str, np.ndarray]]:
        """The steps as arrays: one transfer for all, not one for each."""
        tensors = [tensor for step in self.steps for tensor in step.values()]
        if tensors[0].is_cpu:
            arrays = iter([tensor.numpy() for tensor in tensors])  # they share memory
        else:  # float64 holds every number, token and truth value here exactly
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
        last, ends = finished_in(steps)
        tokens, sums = backtrace(steps, last, ends)  # [n, T] both
        scores = ends["scores"] / penalty(last + 1.0).astype(sums.dtype)
        best_first = np.lexsort((-scores, ends["sentences"]))  # by sentence, then by score
        sentences = ends["sentences"][best_first]
        # the rank of each among those of its sentence, which begin where the sentence is first
        rank = np.arange(len(best_first)) - np.searchsorted(sentences, sentences)
        best_first, sentences = best_first[rank < beam], sentences[rank < beam]
        lengths = (last[best_first] + 1).tolist()
        inside = np.arange(len(steps)) <= last[best_first, None]  # [n, T]
        # sums run over the tokens so far: a token's own score is the difference from the one before
        token_scores = np.diff(sums[best_first], axis=1, prepend=sums.dtype.type(0))
        return Hypotheses(
            sentences.tolist(),
            torch.from_numpy(tokens[best_first][inside]).split(lengths),
            torch.from_numpy(token_scores[inside]).split(lengths),
            torch.from_numpy(scores[best_first]),
        )


def finished_in(steps: List[Dict[str, np.ndarray]]) -> Tuple[np.ndarray, Dict[str, np.ndarray]]:
    """All n finished hypotheses: the number of the step each ended in [n], and its last candidate.

    That is its ``sentences``, ``scores``, ``tokens`` (the last one) and ``parents``, each [n].
    """
    places = [np.nonzero(step["finished"]) for step in steps]
    last: np.ndarray = np.repeat(np.arange(len(steps)), [len(place[0]) for place in places])
    ends = {
        name: np.concatenate([step[name][place] for step, place in zip(steps, places)])  # noqa: B905
        for name in ("scores", "tokens", "parents")
    }
    of_sentences = [step["sentences"][place[0]] for step, place in zip(steps, places)]  # noqa: B905
    return last, {**ends, "sentences": np.concatenate(of_sentences)}


def backtrace(
    steps: List[Dict[str, np.ndarray]], last: np.ndarray, ends: Dict[str, np.ndarray]
) -> Tuple[np.ndarray, np.ndarray]:
    """From the ends back to the first step, all hypotheses at once.

    A loop over steps instead of hypotheses: n is in the hundreds, and each step is a few indexings.

    Returns:
        Tokens and sums of log-probabilities [n, T]; what lies after a hypothesis' end is 0.
    """
    tokens: np.ndarray = np.zeros((len(last), len(steps)), dtype=np.int64)
    sums = np.zeros((len(last), len(steps)), dtype=ends["scores"].dtype)
    all_of_them = np.arange(len(last))
    tokens[all_of_them, last], sums[all_of_them, last] = ends["tokens"], ends["scores"]
    row = ends["parents"].copy()  # [n], where each was in the step before the one last looked at
    for number in reversed(range(len(steps) - 1)):
        # those that end later than this step; the others are not yet on their way back
        step, longer = steps[number], np.nonzero(last > number)[0]
        candidate = step["chosen"][row[longer]]  # a row is a chosen candidate of its step
        tokens[longer, number] = step["tokens"].ravel()[candidate]
        sums[longer, number] = step["scores"].ravel()[candidate]
        row[longer] = step["parents"].ravel()[candidate]
    return tokens, sums
