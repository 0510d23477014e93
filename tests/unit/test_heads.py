"""experiments/heads: the sentences are what they say, and the measures find what was planted."""

import random
from collections import Counter
from typing import Any

import numpy
import pytest
import torch

from experiments.heads import measures
from experiments.heads import text as heads_text
from experiments.heads import weights as heads_weights
from experiments.heads.weights import Cut
from vaswani_transformer import Transformer, TransformerConfig, Vocabulary

KINDS = [(kind, order) for kind in heads_text.FILE["orders"] for order in heads_text.ORDERS]


@pytest.fixture(scope="module")
def types() -> Vocabulary:
    """Return the vocabulary, which 2,000 sentences have, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads_text, "SENTENCES", 2_000)
        return heads_text.vocabulary()


@pytest.mark.parametrize(("kind", "order"), KINDS)
def test_nothing_but_the_subject_tells_the_word(kind: str, order: str) -> None:
    """Neither the distractor, nor its distance, nor German so far unless that has the subject."""
    word = "its" if kind == "pronoun" else "verb"
    forms: Counter = Counter()
    for content in heads_text.random_contents(kind, order, 800, True, 1):
        one = heads_text.sentence(content)
        other, beside = (
            heads_text.sentence(heads_text.replace_noun(content, r)) for r in heads_text.ROLES
        )
        assert (
            one.target[one.target_places.word] == heads_text.german(content)[word] == one.forms[0]
        )
        assert other.forms == one.forms[::-1] and beside.forms == one.forms
        distances = [
            abs(one.source_places.word - at[-1])
            for at in (one.source_places.distractor, one.source_places.subject)
        ]
        near = distances[0] < distances[1]
        assert near == (order == "near")
        if kind != "verb after its subject":
            so_far = one.target_places.word
            assert (
                one.target[:so_far] == other.target[:so_far]
                and so_far < one.target_places.subject[0]
            )
        is_first = one.forms[0].startswith("ihr") if word == "its" else content.subject_is_plural
        agrees = (
            (content.subject < heads_text.HALF) == (content.distractor < heads_text.HALF)
            if word == "its"
            else content.subject_is_plural == content.distractor_is_plural
        )
        forms[is_first, agrees] += 1
    assert len(forms) == 4 and min(forms.values()) > 150  # of 200; a standard deviation is 12


def test_the_test_has_no_pair_of_the_training() -> None:
    """Of subject and distractor, or of subject and place."""
    seen: dict[bool, set[Any]] = {False: set(), True: set()}
    for test, pairs in seen.items():
        for kind, order in KINDS:
            for content in heads_text.random_contents(kind, order, 500, test, 1):
                pairs.add((content.subject, content.distractor))
                pairs.add((content.subject, content.place[0]))
    assert not seen[False] & seen[True] and len(seen[False]) > 3 * len(seen[True]) > 300


def test_a_planted_head_is_chosen_and_one_by_position_is_not() -> None:
    """A head that looks at the nearer noun is good in one order alone."""
    noise = numpy.random.default_rng(1).uniform(0, 0.1, (2, 50, 2, 2, 3))  # [order, B, noun, N, H]
    noise[:, :, 0, 1, 2] += 0.3  # the planted one
    noise[0, :, 1, 0, 0] += 0.2  # distractor nearer
    noise[1, :, 0, 0, 0] += 0.9
    assert measures.best_head(list(noise)) == (1, 2)
    differences = noise[:, :, 0] - noise[:, :, 1]
    assert measures.p_value(differences[0, :, 1, 2]) == 1 / (1 + measures.EXCHANGES)
    # two-sided: a head that looks away from the subject is as far from chance
    assert measures.p_value(differences[0, :, 0, 0]) == 1 / (1 + measures.EXCHANGES)
    assert measures.p_value(numpy.array([0.1, -0.1] * 20)) == 1


@pytest.mark.parametrize("attention", heads_weights.ATTENTION)
def test_a_weight_that_is_cut_is_zero_and_its_row_sums_to_one(
    attention: str, types: Vocabulary
) -> None:
    sizes = {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    both: dict[str, Any] = {
        f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in sizes.items()
    }
    torch.manual_seed(1)
    model = Transformer(TransformerConfig(**both), len(types), len(types)).double().eval()
    dice = random.Random(1)
    kind = f"verb {'after' if attention == 'decoder' else 'before'} its subject"
    content = [heads_text.random_content(kind, "near", True, dice) for _ in range(20)]
    text = heads_weights.text_batch(types, [heads_text.sentence(one) for one in content])
    for number, one in enumerate(text.sentences):
        row, columns = heads_weights.row_and_columns(attention, one, "subject", True) or (0, [])
        read = text.shifted if attention == "decoder" else text.source
        words, at = (
            (one.target, one.target_places)
            if attention == "decoder"
            else (one.source, one.source_places)
        )
        phrase = words[at.subject.start : at.subject.stop]
        assert [types[int(read[number, column])] for column in columns] == phrase
        looking = text.source if attention == "encoder" else text.shifted.roll(-1, 1)
        word = one.source[row] if attention == "encoder" else one.forms[0]
        assert types[int(looking[number, row])] == word
    whole = heads_weights.weights(model, text)[attention]  # [B, noun, N, H]
    with heads_weights.zero_weights(model, text, "subject", [Cut(attention, layer=0, head=1)]):
        cut = heads_weights.weights(model, text)[attention]
    numpy.testing.assert_allclose(cut[:, 0, 0, 1], 0)
    expected = whole[:, 1, 0, 1] / (1 - whole[:, 0, 0, 1])
    numpy.testing.assert_allclose(cut[:, 1, 0, 1], expected, rtol=1e-10)
    numpy.testing.assert_allclose(cut[:, :, 0, 0], whole[:, :, 0, 0], rtol=1e-10)
    numpy.testing.assert_allclose(heads_weights.weights(model, text)[attention], whole)
