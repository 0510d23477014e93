"""Checks of Figure 1's arrows (3.1, 3.2.3, 3.3, 3.5).

They need ``build`` and ``logits``; the last two also the layers and embeddings.
"""

import torch

from .card import DIFFERS, ERROR, Result, not_checked
from .subject import difference
from .trace import traced
from .wiring import (
    ARRIVED,
    CROSS_ATTENTION,
    DECODER,
    DECODER_FFN,
    ENCODER,
    ENCODER_ATTENTION,
    ENCODER_FFN,
    LOGITS,
    SELF_ATTENTION,
    Wiring,
    changed,
    check_of_wiring,
    shown_scores,
)

ORDER = "sub-layers come in the order of Figure 1"


@check_of_wiring("3.1", ORDER)
def sublayers_in_order(wiring: Wiring) -> Result:
    """In each layer, by when they are computed."""
    for kinds in (ENCODER, DECODER):
        seen = [part for part in wiring.parts if part.kind in kinds]
        there = [kind for kind in kinds if any(part.kind == kind for part in seen)]
        for first in range(0, len(seen), len(there)):
            layer = [part.kind for part in seen[first : first + len(there)]]
            if layer != there:
                number = first // len(there) + 1
                return Result(
                    DIFFERS,
                    ", ".join(there),
                    f"{', '.join(layer)}, in layer {number}",
                    "Sub-layers are swapped: each reads what another one should have given first.",
                )
    return Result()


def is_in_order(wiring: Wiring) -> bool:
    """Whether the check above says so."""
    return not sublayers_in_order(wiring).expected


def broken(wiring: Wiring, start: str, end: str) -> list[str]:
    """Where, in a layer, a part does not reach the one that should read it."""
    links = []
    for n in range(1, wiring.subject.config.layers + 1):
        if not wiring.reaches(wiring.part(start, n), wiring.part(end, n)):
            links.append(f"{end} {n}")
    return links


@check_of_wiring("3.2.3", "queries of cross-attention come from the decoder's self-attention")
def cross_queries(wiring: Wiring) -> Result:
    """Its scores change where self-attention, just before it, gives something else."""
    if not is_in_order(wiring):
        return not_checked(f"see '{ORDER}'")
    links = broken(wiring, SELF_ATTENTION, CROSS_ATTENTION)
    if not links:
        return Result()
    return Result(
        DIFFERS,
        "other scores of cross-attention where self-attention gives something else",
        f"the same scores in {', '.join(links)}",
        "Likely the queries are the layer's input; or what self-attention gives is thrown away.",
    )


@check_of_wiring("3.3", "the feed-forward network reads what attention gives")
def ffn_reads_attention(wiring: Wiring) -> Result:
    """Its hidden numbers change where the attention just before it gives something else."""
    if not is_in_order(wiring):
        return not_checked(f"see '{ORDER}'")
    if not any(part.kind in (ENCODER_FFN, DECODER_FFN) for part in wiring.parts):
        return not_checked("no product with config.d_ff numbers for each word was seen")
    links = broken(wiring, ENCODER_ATTENTION, ENCODER_FFN)
    links += broken(wiring, CROSS_ATTENTION, DECODER_FFN)
    if not links:
        return Result()
    return Result(
        DIFFERS,
        "other hidden numbers where the attention before it gives something else",
        f"the same ones in {', '.join(links)}",
        "Likely it reads the layer's input; or the result of the sum before it is thrown away.",
    )


@check_of_wiring("3.1", "each sub-layer's input is added to what it gives")
def residual_connections(wiring: Wiring) -> Result:
    """Other words change what is behind a sub-layer that always gives the same."""
    missing = [part.name for part in wiring.parts if not wiring.passes_input(part)]
    if not missing:
        return Result()
    return Result(
        DIFFERS,
        "something else behind a sub-layer for other words, though it always gives the same",
        f"the same behind {', '.join(missing)}",
        "A residual connection is missing: signals and gradients go through every sub-layer.",
    )


@check_of_wiring("3.1", "what each sub-layer gives is carried on to the next layer")
def carried_on(wiring: Wiring) -> Result:
    """By the residual connections: weights of attention and hidden numbers stay as they are."""
    layers = wiring.subject.config.layers
    lost = []
    for part in wiring.parts:
        if part.kind in ENCODER and part.layer == layers:
            continue  # the next check's
        kind = ENCODER_ATTENTION if part.kind in ENCODER else SELF_ATTENTION
        end = LOGITS if part.layer == layers else wiring.part(kind, part.layer + 1)
        if not wiring.reaches(part, end):
            lost.append(part.name)
    last = wiring.part(ENCODER_ATTENTION, layers)
    has_network = wiring.part(ENCODER_FFN, layers) is not None
    reads_network = has_network and top_layer(wiring, 1) == (layers, ENCODER_FFN)
    if reads_network and last and not wiring.reaches(last, LOGITS):
        lost.append(last.name)
    if not lost:
        return Result()
    return Result(
        DIFFERS,
        "a change of what the next layer reads where a sub-layer gives something else",
        f"none of {', '.join(lost)}",
        "Likely a residual connection behind it is missing, or adds the layer's input in place of "
        "its own sub-layer's; or the next layer reads something else.",
    )


def top_layer(wiring: Wiring, layer: int) -> tuple[int, str]:
    """The last encoder layer and part that reach the keys of a decoder layer; 0 is none."""
    cross = wiring.part(CROSS_ATTENTION, layer)
    blocked = wiring.cross_attentions_but(layer)
    reaching = [p for p in wiring.parts if p.kind in ENCODER and wiring.reaches(p, cross, blocked)]
    last = max(reaching, key=lambda part: (part.layer, part.kind == ENCODER_FFN), default=None)
    return (last.layer, last.kind) if last else (0, "")


@check_of_wiring("3.2.3", "every decoder layer reads the encoder's last layer")
def last_encoder_layer(wiring: Wiring) -> Result:
    """Keys change with what its last sub-layer gives; and values, with weights as they are."""
    layers = wiring.subject.config.layers
    has_ffn = wiring.part(ENCODER_FFN, layers) is not None and is_in_order(wiring)
    expected = (layers, ENCODER_FFN if has_ffn else ENCODER_ATTENTION)
    tops = [top_layer(wiring, n) for n in range(1, layers + 1)]
    if not is_in_order(wiring):
        tops = [(top[0], "") for top in tops]
        expected = (layers, "")
    wrong = [n for n, top in enumerate(tops, start=1) if top != expected]
    expected_change = (
        "keys and values of each layer that change with what the encoder's last layer gives"
    )
    if wrong:
        names = []
        for n in wrong:
            number, kind = tops[n - 1]
            after = " before its feed-forward network" if number == layers else ""
            read = f"encoder layer {number}{after}" if number else "no encoder layer"
            names.append(f"decoder layer {n} reads {read}")
        ladder = len(set(tops)) > 1
        return Result(
            DIFFERS,
            expected_change,
            "; ".join(names),
            "Each decoder layer has another one of the encoder's; all of the paper's have the last."
            if ladder
            else "What the encoder's last layer computes is not what the decoder looks up.",
        )
    last = wiring.part(expected[1] or ENCODER_ATTENTION, layers)
    for n in range(1, layers + 1):
        is_read = wiring.reaches(wiring.part(CROSS_ATTENTION, n), LOGITS)
        if is_read and not wiring.reaches(last, LOGITS, wiring.cross_attentions_but(n)):
            return Result(
                DIFFERS,
                expected_change,
                f"keys that change, and values of layer {n} that do not",
                "Likely values come from elsewhere than keys, such as the embeddings.",
            )
    return Result()


@check_of_wiring("3.1", "the decoder's first self-attention sees the target alone")
def self_attention_without_source(wiring: Wiring) -> Result:
    """Nothing of the encoder reaches it."""
    if not is_in_order(wiring):
        return not_checked(f"see '{ORDER}'")
    first = wiring.part(SELF_ATTENTION, 1)
    for part in wiring.parts:
        if part.kind in ENCODER and first and first.name in wiring.reached(part):
            return Result(
                DIFFERS,
                "scores that nothing in the encoder changes",
                f"others where {part.name} gives something else",
                "Its input is not the target's embeddings alone.",
            )
    return Result()


@check_of_wiring("3.5", "the order of the target matters")
def order_of_target(wiring: Wiring) -> Result:
    """The last word's score for an earlier word changes when that word changes its place."""
    first = wiring.part(SELF_ATTENTION, 1)
    swapped = wiring.subject.target[:1].clone()
    swapped[:, [1, 2]] = swapped[:, [2, 1]]
    with traced(wiring.wide) as trace:
        wiring.subject.logits(wiring.source, swapped)
    for number in first.events if first else ():
        before = shown_scores(wiring.events[number])[..., -1, :]
        after = shown_scores(trace.events[number])[..., -1, :]
        there_and_back = after[..., [0, 2, 1, *range(3, after.size(-1))]]
        if difference(before, there_and_back) > 10 * ARRIVED:
            return Result()
    return Result(
        ERROR,
        "other scores in the decoder where two words change places",
        "the same ones, wherever a word stands",
        "The decoder does not know where a word stands: it has no positions.",
    )


def shows_the_model(wiring: Wiring, embedding: str, layer: str, kind: str) -> Result:
    """Whether the scores of the first layer are the same through the file's two functions."""
    subject = wiring.subject
    part = wiring.part(kind, 1)
    ids = wiring.source if kind == ENCODER_ATTENTION else wiring.target
    shape = (*ids.shape, subject.config.d_model)
    x = subject.tensor(embedding, shape, subject.model, ids)
    memory = torch.zeros(1, wiring.source.size(1), subject.config.d_model)
    arguments = (x,) if kind == ENCODER_ATTENTION else (x, memory)
    with traced(wiring.wide) as trace:
        subject.tensor(layer, shape, subject.model, *arguments)
    own = [event for event in trace.events if wiring.kind(event) == kind]
    events = part.events if part else ()
    if len(own) == len(events):
        before = [wiring.events[number] for number in events]
        if not any(changed(old, new) for old, new in zip(before, own, strict=True)):
            return Result()
    return Result(
        DIFFERS,
        f"the scores of the model's first layer from {layer} of {embedding}",
        "other scores",
        "The file shows something else than what logits computes, or leaves out something between "
        "the two.",
    )


@check_of_wiring(
    "3.1", "embedding and encoder_layer are the model's own", "embedding", "encoder_layer"
)
def encoder_functions(wiring: Wiring) -> Result:
    """They give the scores that the model has."""
    return shows_the_model(wiring, "embedding", "encoder_layer", ENCODER_ATTENTION)


@check_of_wiring(
    "3.1",
    "target_embedding and decoder_layer are the model's own",
    "target_embedding",
    "decoder_layer",
)
def decoder_functions(wiring: Wiring) -> Result:
    """They give the scores that the model has."""
    return shows_the_model(wiring, "target_embedding", "decoder_layer", SELF_ATTENTION)
