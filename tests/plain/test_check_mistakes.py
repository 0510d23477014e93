"""The mistakes that the report card can name, each by itself: searches, losses, rates and sums."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from transformer_check import Config
from transformer_check.cross_entropies import (
    AVERAGES,
    SOFTMAXES,
    cross_entropies,
    entropy,
    factors,
    smoothings,
)
from transformer_check.dropout import dropout_rate
from transformer_check.learning_rate import equation_3, name_rate
from transformer_check.scores import Scale
from transformer_check.search_logits import is_among
from transformer_check.searches import RIGHT, Row, Search, search_with_steps
from transformer_check.sinusoids import PAPER, constant_beside, formula_of
from transformer_check.softmax import name_of_length
from transformer_check.subject import Subject
from transformer_check.tables import PositionSums, rows_of_table
from transformer_check.tiny_model import missing_mask
from transformer_check.trace import Event
from transformer_check.uneven_batch import weak_mask

PAD, END = 0, 1
TYPES = 6


# ---- Searches ------------------------------------------------------------------------------------


class Tables:
    """Logits of next tokens by a table; the end is certain after any other hypothesis."""

    def __init__(self, probabilities: dict[Row, dict[int, float]]) -> None:
        self.probabilities = probabilities

    def __call__(self, rows: list[Row]) -> Tensor:
        logits = torch.full((len(rows), TYPES), -30.0)
        for number, row in enumerate(rows):
            for token, probability in self.probabilities.get(row, {END: 1.0}).items():
                logits[number, token] = math.log(probability)
        return logits


def translation(search: Search, probabilities: dict[Row, dict[int, float]]) -> list[int]:
    return search_with_steps(search, Tables(probabilities), 6, END, PAD)[0]


def test_a_search_that_goes_on_with_one_token_each_misses_the_second_best() -> None:
    probabilities = {
        (): {2: 0.9, 3: 0.1},
        (2,): {4: 0.51, 5: 0.49},
        (2, 4): {2: 0.4, 3: 0.3, 4: 0.3},
        (3,): {END: 1.0},
    }
    assert translation(RIGHT, probabilities) == [2, 5, END]
    assert translation(replace(RIGHT, goes_on_with_best=True), probabilities)[:2] == [2, 4]


def test_a_search_without_repetition_gives_no_token_twice() -> None:
    probabilities = {(): {2: 0.95, 3: 0.05}, (2,): {2: 0.9, 4: 0.1}, (2, 2): {END: 1.0}}
    assert translation(RIGHT, probabilities) == [2, 2, END]
    assert translation(replace(RIGHT, repetition=math.inf), probabilities) == [2, 4, END]


def test_repeated_tokens_are_less_probable_by_a_factor() -> None:
    probabilities = {(): {2: 0.95, 3: 0.05}, (2,): {2: 0.6, 4: 0.4}, (2, 2): {END: 1.0}}
    assert translation(RIGHT, probabilities) == [2, 2, END]
    assert translation(replace(RIGHT, repetition=1.2), probabilities) == [2, 2, END]
    assert translation(replace(RIGHT, repetition=2.0), probabilities) == [2, 4, END]


def test_a_greedy_first_step_loses_what_begins_with_another_token() -> None:
    probabilities = {(): {2: 0.6, 3: 0.4}, (2,): {4: 0.5, 5: 0.5}, (3,): {END: 1.0}}
    assert translation(RIGHT, probabilities) == [3, END]
    assert translation(replace(RIGHT, first_is_greedy=True), probabilities)[0] == 2


def test_an_end_without_its_probability_comes_too_soon() -> None:
    probabilities = {(): {2: 1.0}, (2,): {END: 0.01, 4: 0.99}, (2, 4): {END: 1.0}}
    assert translation(RIGHT, probabilities) == [2, 4, END]
    assert translation(replace(RIGHT, counts_end=False), probabilities) == [2, END]


def test_a_least_length_forbids_the_end_before_it() -> None:
    probabilities = {(): {2: 0.6, 3: 0.4}, (2,): {END: 0.9, 4: 0.1}, (2, 4): {END: 1.0}}
    assert translation(RIGHT, probabilities) == [2, END]
    assert translation(replace(RIGHT, shortest=2), probabilities) == [2, 4, END]


def test_mixed_hypotheses_give_a_token_to_the_wrong_one() -> None:
    probabilities = {
        (): {2: 0.6, 3: 0.4},
        (2,): {4: 0.5, 5: 0.5},
        (3,): {5: 1.0},
        (3, 5): {END: 1.0},
    }
    assert translation(RIGHT, probabilities)[:2] == [3, 5]
    assert translation(replace(RIGHT, mixes_hypotheses=True), probabilities)[:2] == [2, 5]


def test_a_loss_by_rank_spreads_the_beam_over_hypotheses() -> None:
    probabilities = {(): {2: 0.55, 3: 0.45}, (2,): {4: 0.5, 5: 0.5}, (3,): {4: 0.9, 5: 0.1}}
    assert translation(replace(RIGHT, rank=0.0), probabilities)[0] == 3
    assert translation(replace(RIGHT, rank=1.0), probabilities)[0] == 2


def test_a_bound_without_penalty_stops_too_soon() -> None:
    probabilities = {(): {END: 0.3, 2: 0.7}, (2,): {2: 0.7, 4: 0.3}, (2, 2): {5: 0.4, 4: 0.6}}
    probabilities |= {(2, 2, 4): {END: 1.0}}
    steep = replace(RIGHT, penalty=lambda length: length**2)
    assert translation(steep, probabilities) == [2, 2, 4, END]
    early = replace(steep, stop="better than live", penalty=lambda length: 4 * length**2)
    assert translation(early, probabilities) == [END]


def test_rows_are_among_others_except_for_a_shift_and_forbidden_tokens() -> None:
    known = torch.tensor([[1.0, 2.0, 3.0, 0.0], [3.0, 1.0, 2.0, 0.0]])
    rows = torch.tensor([[1.0, 2.0, 3.0, 9.0], [1.0, 2.5, 3.0, 9.0], [7.0, 5.0, 6.0, 9.0]])
    rows[:, 3] = float("-inf")
    assert is_among(rows, known).tolist() == [True, False, True]


def test_a_temperature_changes_which_translation_is_best() -> None:
    probabilities = {(): {2: 0.45, 3: 0.55}, (3,): {4: 0.6, 5: 0.4}, (3, 4): {END: 0.9, 2: 0.1}}
    cold = translation(replace(RIGHT, temperature=0.2), probabilities)
    hot = translation(replace(RIGHT, temperature=3.0), probabilities)
    assert cold == [3, 4, END]
    assert hot == [2, END]


def test_a_beam_that_each_end_makes_smaller_loses_a_better_translation() -> None:
    probabilities = {(): {END: 0.3, 2: 0.4, 3: 0.3}, (2,): {4: 0.4, 5: 0.6}, (2, 5): {END: 1.0}}
    two = replace(RIGHT, beam=2, penalty=lambda length: length**4)
    assert translation(two, probabilities) == [2, 5, END]
    narrow = translation(replace(two, narrows=True, beam=1), probabilities)
    assert narrow == [END]


@pytest.mark.parametrize(
    ("says", "shape", "shows"),
    [
        ("", (4, 9, 9), "no later"),
        ("causal mask", (4, 9, 9), "all"),
        ("source's padding", (4, 9, 5), "all"),
        ("", (4, 12, 12), "all"),  # probabilities of 12 tokens: the vocabulary
        ("", (4, 5, 5), "all"),  # the encoder
    ],
)
def test_a_missing_mask_is_read_from_weights_but_not_from_probabilities(
    says: str, shape: tuple[int, ...], shows: str
) -> None:
    scores = torch.zeros(shape)
    if shows == "no later":
        scores = scores.masked_fill(torch.ones(shape[-2:]).triu(1).bool(), float("-inf"))
    encoder = torch.zeros(4, 5, 5)
    events = [
        Event(each, each.softmax(-1), is_softmax=True, module=None) for each in (encoder, scores)
    ]
    mistake = missing_mask(events, size=5, vocabulary=12)
    assert says in mistake
    assert bool(says) == bool(mistake)


# ---- Losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("says", "smoothing"), smoothings(0.1).items())
def test_smoothed_labels_sum_to_one_unless_the_sentence_denies_it(
    says: str, smoothing: tuple[float, str]
) -> None:
    types = 10
    log_p = torch.full(
        (1, 1, types), -math.log(types)
    )  # then a cross entropy is log V times the sum
    loss = cross_entropies(log_p, torch.tensor([[3]]), *smoothing, pad=1)
    total = float(loss) / math.log(types)
    assert (abs(total - 1) < 1e-6) == ("do not sum to 1" not in says)


@pytest.mark.parametrize("over", ["others", "all", "no pad"])
def test_the_entropy_is_the_least_cross_entropy(over: str) -> None:
    types, pad, word = 10, 1, 3
    count = {"others": types - 1, "all": types, "no pad": types - 2}[over]
    shares = torch.full((types,), 0.1 / count, dtype=torch.float64)
    shares[word] = 0.9 + (0.1 / count if over == "all" else 0.0)
    shares[pad] = 1e-30 if over == "no pad" else shares[pad]
    loss = cross_entropies(shares.log()[None, None], torch.tensor([[word]]), 0.1, over, pad)
    assert float(loss) == pytest.approx(entropy(0.1, over, types), abs=1e-9)


def test_every_wrong_softmax_gives_other_numbers_than_the_right_one() -> None:
    logits = torch.randn(3, 4, TYPES, generator=torch.Generator().manual_seed(1))
    right = SOFTMAXES[""](logits)
    assert torch.allclose(right.exp().sum(-1), torch.ones(3, 4))
    for says, function in SOFTMAXES.items():
        assert not says or not torch.allclose(function(logits), right), says


def test_every_wrong_average_gives_another_number() -> None:
    each = torch.rand(3, 4, generator=torch.Generator().manual_seed(2))
    real = torch.tensor([4, 2, 4])[:, None] > torch.arange(4)
    values = {says: float(average(each, real)) for says, average in AVERAGES.items()}
    values["mean"] = float(each[real].mean())
    values["sum"] = float(each[real].sum())
    assert len({round(value, 6) for value in values.values()}) == len(values)
    assert values["It is the perplexity, the exponential of the loss."] == pytest.approx(
        math.exp(values["mean"])
    )


def test_factors_of_a_loss_are_different() -> None:
    assert len(set(factors(50).values())) == len(factors(50))


# ---- Rates, scores and positions -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "share"),
    [
        ("with a cosine, to 0 at step 100,000", lambda n: half_cosine((n - 4000) / 96_000)),
        ("with a cosine, to 0 at step 54,000, and", lambda n: half_cosine((n - 4000) / 50_000)),
        ("linearly, to 0 at step 200,000", lambda n: 1 - (n - 4000) / 196_000),
        ("it halves every 20,000 steps", lambda n: 0.5 ** ((n - 4000) / 20_000)),
        ("with step^-0.7:", lambda n: (n / 4000) ** -0.7),
        ("with (step - 3,000)^-0.5", lambda n: ((n - 3000) / 1000) ** -0.5),
        ("with (step + 1,000)^-1", lambda n: 5000 / (n + 1000)),
        ("with (200,000 - step)^2", lambda n: ((200_000 - n) / 196_000) ** 2),
        ("from step^-0.97 to", lambda n: 1 / (1 + math.log(n / 4000))),
        ("changes only every 10,000 steps", lambda n: 0.5 ** ((n - 4000) // 10_000)),
        ("rises again", lambda n: half_cosine((n - 4000) % 10_000 / 10_000)),
        ("never decreases", lambda n: 1.0),
        ("constant until step 50,000:", lambda n: min(1.0, (n / 50_000) ** -0.5)),
        ("0 times after it", lambda n: float(n < 4001)),
    ],
)
def test_a_decay_is_described(says: str, share: Callable[[int], float]) -> None:
    peak = equation_3(4000)
    assert says in name_rate(lambda n: equation_3(n) if n < 4000 else peak * share(n))


@pytest.mark.parametrize(
    ("says", "share"),
    [
        ("linearly from 6.988e-05 at step 0 until step 4,000", lambda n: 0.1 + 0.9 * n / 4000),
        ("linearly from 0 at step 1,000", lambda n: max(0.0, (n - 1000) / 3000)),
        ("with step^0.5 until", lambda n: (n / 4000) ** 0.5),
        ("it doubles every 400 steps", lambda n: 2 ** ((n - 4000) / 400)),
        ("is constant until step 4,000", lambda n: 1.0),
        ("is 0 times equation 3 until step 5", lambda n: n / 4000 if n > 5 else 0.0),
    ],
)
def test_a_warm_up_is_described(says: str, share: Callable[[int], float]) -> None:
    peak = equation_3(4000)
    assert says in name_rate(lambda n: equation_3(n) if n > 4000 else peak * share(n))


def half_cosine(share: float) -> float:
    return 0.5 + 0.5 * math.cos(math.pi * min(1.0, share))


def test_a_rate_of_another_width_or_precision_is_named() -> None:
    assert "4 times equation 3, as with d_model = 32." in name_rate(lambda n: 4 * equation_3(n))
    assert "d_model = 22.63 times" in name_rate(lambda n: 512**0.5 * equation_3(n))
    assert "to float16" in name_rate(lambda n: float(torch.tensor(equation_3(n)).half()))
    assert "never falls below 0.0001" in name_rate(lambda n: max(1e-4, equation_3(n)))
    assert "until step 50,000, and 0.9 times" in name_rate(
        lambda n: equation_3(n) * (0.9 if n > 50_000 else 1.0)
    )


@pytest.mark.parametrize("seed", range(20))
def test_any_rate_gets_a_sentence(seed: int) -> None:
    rng = random.Random(seed)
    rates: dict[int, float] = {}
    says = name_rate(lambda n: rates.setdefault(n, rng.choice([0.0, 1e-3, rng.random()])))
    assert says.startswith("The learning rate")


def test_a_factor_that_depends_on_a_length_is_named() -> None:
    pairs = ((7, 7), (5, 5), (5, 7))
    by_keys = [Scale(keys**-0.5, 8, queries, keys, {}) for queries, keys in pairs]
    by_queries = [Scale(queries**-0.5, 8, queries, keys, {}) for queries, keys in pairs]
    assert name_of_length(by_keys) == "keys"
    assert name_of_length(by_queries) == "queries"
    assert name_of_length([Scale(8**-0.5, 8, queries, keys, {}) for queries, keys in pairs]) == ""
    assert name_of_length([Scale(7**-0.5, 8, 7, 7, {})] * 2) == ""  # one length shows nothing


@pytest.mark.parametrize(
    ("says", "rate"),
    [
        ("", lambda given: 0.1),
        ("half of config.dropout", lambda given: given / 2),
        ("1 - config.dropout", lambda given: 1 - given),
    ],
)
def test_a_rate_of_dropout_is_named_if_it_follows_from_the_one_given(
    says: str, rate: Callable[[float], float]
) -> None:
    def build(config: Config) -> nn.Module:
        embedding = nn.Embedding(config.vocabulary, config.vocabulary)
        return nn.Sequential(embedding, nn.Dropout(rate(config.dropout)))

    adapter = SimpleNamespace(build=build, logits=lambda model, source, target: model(target))
    finding = dropout_rate(Subject(adapter))
    assert finding.failed
    assert says in finding.says
    assert bool(says) == bool(finding.says)


def test_sums_with_positions_are_counted_once_for_each_result() -> None:
    table = torch.randn(9, 4, generator=torch.Generator().manual_seed(3))
    x = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(4))
    assert rows_of_table(table[:5][:, None], table) == 5
    assert rows_of_table(table[1:6], table) == 0
    assert rows_of_table(x, table) == 0
    assert rows_of_table(2.0, table) == 0
    with PositionSums(table) as trace:
        for _ in range(2):  # the same sum again, as of a model that embeds a sentence twice
            first = x + table[:5]
        _ = table[:3] + x[:, :3]
    assert trace.count(5) == 1
    assert trace.count(3) == 1
    with trace:
        _ = 2 * first + table[:5]
    assert trace.count(5) == 2


def sinusoids_of(rates: Tensor) -> Tensor:
    """Return the table [64, D] of these multiples [D / 2] of positions."""
    angles = torch.arange(64.0)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)


PAIRS = torch.arange(16.0)
RATES = 10000 ** (-PAIRS / 16)


@pytest.mark.parametrize(
    ("says", "rates"),
    [
        ("multiplied by 10000^(2i/d_model)", 1 / RATES),
        ("multiplied by 10000^(4i/d_model)", 1 / RATES**2),
        ("multiplied by 1,000^(2i/d_model)", 1000 ** (PAIRS / 16)),
        ("the base is 1,000,000", 1e6 ** (-PAIRS / 16)),
        ("float16 or bfloat16", RATES.bfloat16().float()),
        ("multiplied by 0.998", 0.998 * RATES),
        ("1, 0.5, 0.3333, 0.25 … instead of 1, 0.5623", 1 / (PAIRS + 1)),
        ("1, 0, 0, 0 …", torch.exp(-10000 * PAIRS)),
    ],
)
def test_frequencies_of_sinusoids_are_measured(says: str, rates: Tensor) -> None:
    formula = formula_of(sinusoids_of(rates))
    assert formula is not None
    assert says in "; ".join(formula.differences)
    assert formula_of(sinusoids_of(RATES)) == PAPER


def test_a_vector_beside_the_sinusoids_is_found() -> None:
    table = sinusoids_of(RATES)
    vector = torch.linspace(-1, 1, 32)
    assert constant_beside(table) is None
    assert constant_beside(2 * table + vector) is None
    constant = constant_beside(table + vector)
    assert constant is not None
    assert torch.allclose(constant.float(), vector, atol=1e-5)


def test_what_a_mask_does_in_place_of_hiding_is_measured() -> None:
    later = torch.ones(4, 4).triu(1).bool()
    same = torch.tensor([0.3, 0.0])[:, None, None].expand(2, 4, 4)  # scores of two heads
    scores = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(5))
    assert weak_mask(same, scores, later) == ""
    one = later.float()
    lowers = "lowers the scores of {} by 1"
    assert weak_mask(same - one, scores - one, later) == lowers
    assert weak_mask(same + 1 - one, scores + 1 - one, later) == lowers
    assert weak_mask(same + one, scores + one, later) == "raises the scores of {} by 1"
    assert weak_mask(0 * same, scores * (1 - one), later) == "sets the scores of {} to 0"
