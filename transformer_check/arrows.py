"""Checks of Figure 1's arrows (3.1, 3.2.3, 3.3, 3.5).

They need ``build`` and ``logits``; the last two also the layers and embeddings.
"""

from dataclasses import replace

import torch

from .findings import Finding, differs, error, not_run, passed, waits_for
from .subject import difference
from .trace import trace_model
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
    Part,
    Wiring,
    check_of_wiring,
    has_changed,
    shown_scores,
    zero_gates,
)


@check_of_wiring(
    "sublayer-order",
    "3.1",
    passes="The sub-layers come in the order of Figure 1.",
    fails="The sub-layers do not come in the order of Figure 1.",
    explains=("feed-forward-place", "residual-sums", "attention-inputs", "adapter-decoder"),
)
def sublayers_in_order(wiring: Wiring) -> Finding:
    """Compare the order in which the sub-layers of each layer are computed."""
    for kinds in (ENCODER, DECODER):
        seen = [part for part in wiring.parts if part.kind in kinds]
        there = [kind for kind in kinds if any(part.kind == kind for part in seen)]
        for first in range(0, len(seen), len(there)):
            layer = [part.kind for part in seen[first : first + len(there)]]
            if layer != there:
                number = first // len(there) + 1
                return differs(f"{', '.join(layer)} (layer {number})", ", ".join(there))
    return passed()


def list_parts(parts: list[Part]) -> str:
    """Return the names of sub-layers for a sentence; layers of one kind are listed together."""
    layers: dict[str, list[str]] = {}
    for part in parts:
        layers.setdefault(part.kind, []).append(str(part.layer))
    return ", ".join(f"{kind} {' and '.join(numbers)}" for kind, numbers in layers.items())


def is_in_order(wiring: Wiring) -> bool:
    """Return whether the check sublayer-order passes."""
    return not sublayers_in_order(wiring).failed


def look_for_broken_links(wiring: Wiring, links: dict[str, str], reads: str, fix: str) -> Finding:
    """Check that changing a sub-layer's output changes what the next sub-layer computes.

    Args:
        wiring: the sub-layers of the subject
        links: kind of sub-layer → the kind that should read its output, in each layer
        reads: what the second kind computes from its input: ``scores`` or ``activations``
        fix: what to change in the model
    """
    if not is_in_order(wiring):
        return waits_for("sublayer-order")
    broken = []
    for layer in range(1, wiring.subject.config.layers + 1):
        for start, end in links.items():
            reader = wiring.part(end, layer)
            if reader and not wiring.reaches(wiring.part(start, layer), reader):
                broken.append(reader)
    if not broken:
        return passed()
    start = "self-attention" if SELF_ATTENTION in links else "attention"
    return differs(
        f"changing the output of {start} does not change the {reads} of {list_parts(broken)}",
        f"other {reads}",
        modules=wiring.modules_of(broken),
        fix=fix,
    )


@check_of_wiring(
    "cross-attention-queries",
    "3.2.3",
    passes="The queries of cross-attention come from decoder self-attention.",
    fails="The queries of cross-attention do not come from decoder self-attention.",
    explains=("residual-sums", "attention-inputs"),
)
def cross_queries(wiring: Wiring) -> Finding:
    """Check that changing self-attention's output changes the scores of cross-attention."""
    return look_for_broken_links(
        wiring,
        {SELF_ATTENTION: CROSS_ATTENTION},
        "scores",
        "Compute the queries from the output of Add & Norm after self-attention.",
    )


@check_of_wiring(
    "feed-forward-input",
    "3.3",
    passes="The feed-forward network reads the output of attention.",
    fails="The feed-forward network does not read the output of attention.",
    explains=("feed-forward-place", "residual-sums", "gradients"),
)
def ffn_reads_attention(wiring: Wiring) -> Finding:
    """Check that changing attention's output changes the activations of the network."""
    if not any(part.kind in (ENCODER_FFN, DECODER_FFN) for part in wiring.parts):
        return not_run("no product with config.d_ff numbers per token was seen")
    finding = look_for_broken_links(
        wiring,
        {ENCODER_ATTENTION: ENCODER_FFN, CROSS_ATTENTION: DECODER_FFN},
        "activations",
        "Compute the feed-forward network from the output of Add & Norm after attention.",
    )
    if finding.failed and not output_reaches_next_layer(wiring).failed:
        says = "Attention and the feed-forward network are in parallel: both read the same input."
        return replace(finding, says=says)
    return finding


@check_of_wiring(
    "residual-connections",
    "3.1",
    passes="Every sub-layer has a residual connection.",
    fails="A sub-layer has no residual connection.",
    explains=("post-norm", "residual-sums", "sublayer-output-used", "feed-forward-place"),
)
def residual_connections(wiring: Wiring) -> Finding:
    """Check that tokens still change the layer's output if a sub-layer's output is fixed."""
    missing = [part for part in wiring.parts if not wiring.passes_input(part)]
    if not missing:
        return passed()
    return differs(
        f"the input of {list_parts(missing)} does not reach the layer's output",
        "x + Sublayer(x)",
        says=f"No residual connection around {list_parts(missing)}.",
        modules=wiring.modules_of(missing),
        fix="Add the sub-layer's input to its output.",
    )


@check_of_wiring(
    "sublayer-output-used",
    "3.1",
    passes="Every sub-layer's output reaches the next layer.",
    fails="A sub-layer's output does not reach the next layer.",
    explains=("feed-forward-place", "residual-sums", "gradients", "pre-norm"),
)
def output_reaches_next_layer(wiring: Wiring) -> Finding:
    """Check that changing a sub-layer's output changes the next layer's input.

    Attention weights and activations are kept, so the change travels by residual connections and
    values only.
    """
    layers = wiring.subject.config.layers
    lost = []
    for part in wiring.parts:
        if part.kind in ENCODER and part.layer == layers:
            continue  # the next check looks at it
        kind = ENCODER_ATTENTION if part.kind in ENCODER else SELF_ATTENTION
        end = LOGITS if part.layer == layers else wiring.part(kind, part.layer + 1)
        if not wiring.reaches(part, end):
            lost.append(part)
    last = wiring.part(ENCODER_ATTENTION, layers)
    has_network = wiring.part(ENCODER_FFN, layers) is not None
    reads_network = has_network and top_layer(wiring, 1) == (layers, ENCODER_FFN)
    if reads_network and last and not wiring.reaches(last, LOGITS):
        lost.append(last)
    if not lost:
        return passed()
    gates = zero_gates(wiring, lost[0])
    if gates:
        return differs(
            f"{', '.join(gates[:4])}{' …' * (len(gates) > 4)}: zero in a new model",
            "x + Sublayer(x)",
            says=f"{gates[0]} is zero at first and multiplies a sub-layer's output: "
            f"{list_parts(lost)} have no effect in a new model.",
            modules=tuple(dict.fromkeys(name.rpartition(".")[0] for name in gates)),
            explains=OF_GATES,
        )
    skipped = skipped_layer(wiring, lost)
    if skipped:
        return differs(
            f"the output of {list_parts(lost)} does not reach the next layer",
            "each layer reads the output of the layer before it",
            says=skipped,
            modules=wiring.modules_of(lost),
            fix="Give each layer's output to the next layer: x = layer(x).",
        )
    return differs(
        f"the output of {list_parts(lost)} does not reach the next layer",
        "every output in the next residual sum",
        modules=wiring.modules_of(lost),
        fix="Add each sub-layer's own input to its output, not the layer's input or an earlier x.",
    )


OF_GATES = (
    *("source-dependence", "cross-attention-queries", "feed-forward-input", "attention-inputs"),
    *("residual-connections", "post-norm", "final-norm", "encoder-output", "decoder-input"),
    *("output-scale", "parameter-count", "heads", "source-order", "source-visible"),
    *("self-attention-inputs", "sublayer-dropout", "head-size"),
)
"""checks that fail in a new model whose sub-layers are multiplied by zero"""


def skipped_layer(wiring: Wiring, lost: list[Part]) -> str:
    """Return the sentence for a layer whose successor reads its input; empty if there is none."""
    for name, kinds in (("encoder", ENCODER), ("decoder", DECODER)):
        for layer in range(1, wiring.subject.config.layers):
            own = [p for p in wiring.parts if p.kind in kinds and p.layer == layer]
            if own and all(part in lost for part in own):
                return (
                    f"The output of {name} layer {layer} is lost: layer {layer + 1} reads the same "
                    f"input as layer {layer}."
                )
    return ""


def top_layer(wiring: Wiring, layer: int) -> tuple[int, str]:
    """Return the last encoder layer, and kind, that reach a decoder layer's keys; 0 for none."""
    cross = wiring.part(CROSS_ATTENTION, layer)
    blocked = wiring.cross_attentions_but(layer)
    reaching = [p for p in wiring.parts if p.kind in ENCODER and wiring.reaches(p, cross, blocked)]
    last = max(reaching, key=lambda part: (part.layer, part.kind == ENCODER_FFN), default=None)
    return (last.layer, last.kind) if last else (0, "")


@check_of_wiring(
    "encoder-output",
    "3.2.3",
    passes="Every decoder layer reads the last encoder layer's output.",
    fails="A decoder layer does not read the last encoder layer's output.",
    explains=("gradients", "final-norm"),
)
def last_encoder_layer(wiring: Wiring) -> Finding:
    """Check that keys and values of every decoder layer depend on the last encoder sub-layer."""
    layers = wiring.subject.config.layers
    has_ffn = wiring.part(ENCODER_FFN, layers) is not None and is_in_order(wiring)
    expected = (layers, ENCODER_FFN if has_ffn else ENCODER_ATTENTION)
    tops = [top_layer(wiring, n) for n in range(1, layers + 1)]
    if not is_in_order(wiring):
        tops = [(top[0], "") for top in tops]
        expected = (layers, "")
    wrong = [n for n, top in enumerate(tops, start=1) if top != expected]
    if wrong:
        names = []
        for n in wrong:
            number, kind = tops[n - 1]
            after = " before its feed-forward network" if number == layers else ""
            read = f"encoder layer {number}{after}" if number else "no encoder layer"
            names.append(f"decoder layer {n} reads {read}")
        ladder = len(set(tops)) > 1
        return differs(
            "; ".join(names),
            f"every decoder layer reads encoder layer {layers}",
            says="The decoder layers read different encoder layers." if ladder else "",
            fix="Pass the output of the last encoder layer to every decoder layer.",
        )
    last = wiring.part(expected[1] or ENCODER_ATTENTION, layers)
    for n in range(1, layers + 1):
        is_read = wiring.reaches(wiring.part(CROSS_ATTENTION, n), LOGITS)
        if is_read and not wiring.reaches(last, LOGITS, wiring.cross_attentions_but(n)):
            return differs(
                f"the values of decoder layer {n} do not depend on encoder layer {layers}; its "
                "keys do",
                "keys and values from the same memory",
                says="The values of cross-attention do not come from the encoder's output.",
            )
    return passed()


@check_of_wiring(
    "decoder-input",
    "3.1",
    passes="The first decoder self-attention depends on the target alone.",
    fails="The first decoder self-attention depends on the source.",
    explains=("source-padding", "adapter-decoder"),
)
def self_attention_without_source(wiring: Wiring) -> Finding:
    """Check that no encoder sub-layer changes the scores of the first decoder self-attention."""
    if not is_in_order(wiring):
        return waits_for("sublayer-order")
    first = wiring.part(SELF_ATTENTION, 1)
    for part in wiring.parts:
        if part.kind in ENCODER and first and first.name in wiring.reached(part):
            return differs(
                f"changing the output of {part.name} changes the scores of {first.name}",
                "no change",
                fix="Give the first decoder layer the target embeddings alone.",
            )
    return passed()


@check_of_wiring(
    "target-order",
    "3.5",
    passes="The decoder knows the order of the target tokens.",
    fails="The decoder does not know the order of the target tokens.",
)
def order_of_target(wiring: Wiring) -> Finding:
    """Check that swapping two target tokens changes their scores, not only the scores' order."""
    first = wiring.part(SELF_ATTENTION, 1)
    swapped = wiring.subject.target[:1].clone()
    swapped[:, [1, 2]] = swapped[:, [2, 1]]
    with trace_model(wiring.wide, layouts=wiring.subject.layouts) as trace:
        wiring.subject.logits(wiring.source, swapped)
    for number in first.events if first else ():
        before = shown_scores(wiring.events[number])[..., -1, :]
        after = shown_scores(trace.events[number])[..., -1, :]
        there_and_back = after[..., [0, 2, 1, *range(3, after.size(-1))]]
        if difference(before, there_and_back) > 10 * ARRIVED:
            return passed()
    return error(
        "swapping two target tokens swaps their attention scores and changes nothing else",
        "attention scores that depend on the position",
        fix="Add positional encodings to the target embeddings.",
    )


def has_scores_of_model(wiring: Wiring, embedding: str, layer: str, kind: str) -> bool:
    """Return whether two functions of the file have the scores of the model's first layer.

    Args:
        wiring: the sub-layers of the subject
        embedding: the function that returns the input of the first layer
        layer: the function of the first layer
        kind: of the attention whose scores are compared
    """
    subject = wiring.subject
    part = wiring.part(kind, 1)
    ids = wiring.source if kind == ENCODER_ATTENTION else wiring.target
    shape = (*ids.shape, subject.config.d_model)
    x = subject.tensor(embedding, shape, subject.model, ids)
    memory = torch.zeros(1, wiring.source.size(1), subject.config.d_model)
    arguments = (x,) if kind == ENCODER_ATTENTION else (x, memory)
    with trace_model(wiring.wide, layouts=wiring.subject.layouts) as trace:
        subject.tensor(layer, shape, subject.model, *arguments)
    own = [event for event in trace.events if wiring.kind(event) == kind]
    events = part.events if part else ()
    if len(own) != len(events):
        return False
    before = [wiring.events[number] for number in events]
    return not any(has_changed(old, new) for old, new in zip(before, own, strict=True))


def shows_the_model(wiring: Wiring, embedding: str, layer: str, kind: str) -> Finding:
    """Return the finding of comparing two functions' attention scores with the model's."""
    if not (wiring.subject.defines(embedding) or wiring.subject.defines(layer)):
        return not_run("the file defines neither of the two functions to compare")
    if has_scores_of_model(wiring, embedding, layer, kind):
        return passed()
    return differs(
        f"{layer}({embedding}(ids)) has other attention scores than the model's first layer",
        "the same scores",
        fix=f"Call in {embedding}() and {layer}() everything that logits() does before and in the "
        "first layer.",
    )


@check_of_wiring(
    "adapter-encoder",
    "3.1",
    passes="embedding() and encoder_layer() return what the model computes.",
    fails="embedding() or encoder_layer() does not return what the model computes.",
    needs=("embedding", "encoder_layer"),
)
def encoder_functions(wiring: Wiring) -> Finding:
    """Compare the scores of embedding() and encoder_layer() with the model's."""
    return shows_the_model(wiring, "embedding", "encoder_layer", ENCODER_ATTENTION)


@check_of_wiring(
    "adapter-decoder",
    "3.1",
    passes="target_embedding() and decoder_layer() return what the model computes.",
    fails="target_embedding() or decoder_layer() does not return what the model computes.",
    needs=("target_embedding", "decoder_layer"),
)
def decoder_functions(wiring: Wiring) -> Finding:
    """Compare the scores of target_embedding() and decoder_layer() with the model's."""
    return shows_the_model(wiring, "target_embedding", "decoder_layer", SELF_ATTENTION)
