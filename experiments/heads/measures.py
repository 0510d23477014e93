"""What is asked of a trained model: does a word change, where do heads look, what do they carry?"""

from collections.abc import Sequence
from typing import Any

import numpy

from experiments.demo_measures import share
from experiments.heads.text import ORDERS, ROLES, Content, replace_noun, sentence
from experiments.heads.weights import (
    ATTENTION,
    Cut,
    TextBatch,
    is_right,
    text_batch,
    weights,
    zero_weights,
)
from vaswani_transformer import Vocabulary

EXCHANGES = 10_000


def best_head(orders: Sequence[Any]) -> tuple[int, int]:
    """Return the layer and head with the greatest mean difference, in the order where it is less.

    Args:
        orders: of each order, the weights on the two nouns [B, 2, N, H]
    """
    lower = numpy.min([(each[:, 0] - each[:, 1]).mean(0) for each in orders], axis=0)
    layer, head = numpy.unravel_index(lower.argmax(), lower.shape)
    return int(layer), int(head)


def p_value(differences: Any) -> float:
    """Return the two-sided p of a mean other than 0.

    The distribution comes from exchanging the two weights within sentences.
    """
    signs = numpy.random.default_rng(1).choice([-1, 1], (EXCHANGES, len(differences)))
    as_far = (abs(signs @ differences) >= abs(differences.sum())).sum()
    return float((1 + as_far) / (1 + EXCHANGES))


def changes(model: Any, types: Vocabulary, contents: list[Content]) -> dict[str, float]:
    """Return how often the word changes when a noun does, in per cent.

    The noun is changed in the source, and in what is already written.
    """
    sentences = [sentence(content) for content in contents]
    before = is_right(model, text_batch(types, sentences))

    def changed_share(role: str, source: bool = True, written: bool = True) -> float:
        other_sentences = [sentence(replace_noun(content, role)) for content in contents]
        after = text_batch(
            types,
            sentences,
            source=other_sentences if source else None,
            written=other_sentences if written else None,
        )
        return share(is_right(model, after) != before)

    shares = {role: changed_share(role) for role in ROLES}
    if contents[0].kind == "verb after its subject":
        shares["source"] = changed_share("subject", written=False)
        shares["written"] = changed_share("subject", source=False)
    return shares


def attention_on(
    model: Any, choosing: Sequence[TextBatch], testing: Sequence[TextBatch], whole_phrase: bool
) -> dict[str, Any]:
    """Choose a head on half of the sentences and test it on the others, by attention and order.

    Args:
        choosing: sentences that choose, of each order
        testing: sentences that test, of each order
        whole_phrase: weights on the whole phrase, with a head for each order; else on the noun,
            with the same head for both
    """
    to_choose = [weights(model, text, whole_phrase) for text in choosing]
    to_test = [weights(model, text, whole_phrase) for text in testing]
    best: dict[str, Any] = {}
    for attention in ATTENTION:
        of_both_orders = [each[attention] for each in to_choose if attention in each]
        heads = {}
        for order, chooses, tests in zip(ORDERS, to_choose, to_test, strict=True):
            if attention not in tests:
                continue
            layer, head = best_head([chooses[attention]] if whole_phrase else of_both_orders)
            on_nouns = tests[attention][:, :, layer, head]  # [B, 2]
            subject, distractor = on_nouns.mean(0).tolist()
            heads[order] = {
                "subject": subject,
                "distractor": distractor,
                "p": p_value(on_nouns[:, 0] - on_nouns[:, 1]),
                "layer": layer,
                "head": head,
            }
        if heads:
            best[attention] = heads
    return best


def cut_off(model: Any, texts: Sequence[TextBatch], noun: Any, phrase: Any) -> dict[str, Any]:
    """Return the per cent still right without weights on a noun, by attention and by noun.

    Args:
        noun, phrase: the heads of :func:`attention_on`
    """

    def accuracy_without(role: str, orders: Sequence[Sequence[Cut]]) -> float:
        hits: list[bool] = []
        for text, cuts in zip(texts, orders, strict=True):
            with zero_weights(model, text, role, cuts):
                hits += is_right(model, text).tolist()
        return share(hits)

    def best_cuts(attention: str, heads_of: Any, whole: bool) -> list[list[Cut]]:
        heads = [heads_of[attention].get(order) for order in ORDERS]
        return [[Cut(attention, h["layer"], h["head"], whole)] if h else [] for h in heads]

    cuts: dict[str, list[list[Cut]]] = {"nothing": [[], []]}
    for attention in noun:
        cuts[f"{attention}, best head, noun"] = best_cuts(attention, noun, False)
        cuts[f"{attention}, best head, phrase"] = best_cuts(attention, phrase, True)
    groups: dict[str, Sequence[str]] = {attention: [attention] for attention in noun}
    groups["all three"] = ATTENTION
    for name, group in groups.items():
        cuts[f"{name}, all heads, noun"] = [[Cut(each) for each in group]] * 2
        cuts[f"{name}, all heads, phrase"] = [[Cut(each, phrase=True) for each in group]] * 2
        cuts[f"{name}, from all words, noun"] = [[Cut(each, all_rows=True) for each in group]] * 2
    return {
        name: {role: accuracy_without(role, orders) for role in ROLES}
        for name, orders in cuts.items()
    }
