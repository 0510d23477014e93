"""What translate computes."""

from .fault import Edits, Fault


def of_search(
    name: str, id: str, says: str, batch_first: Edits, multihead: Edits, sequence_first: Edits
) -> Fault:
    """Return a fault for which the card needs ``translate``."""
    return Fault(
        name,
        id=id,
        says=says,
        batch_first=batch_first,
        multihead=multihead,
        sequence_first=sequence_first,
        searches=True,
    )


A_BEAM = "def translate(model, source, beam=4, alpha=0.6, extra=50):"
M_CALL = "search(model, sentence[None, :length], 4, 0.6, limit)"
S_CALL = "def translate(model, source, width=4, alpha=0.6):"
A_PENALTY = "penalty = ((5 + length) / 6) ** alpha"
M_PENALTY = "penalty = ((5 + len(ids) - 1) / 6) ** alpha"
S_PENALTY = "float(score) / ((5 + position + 1) / 6) ** alpha"
A_TOTALS = "totals = scores[:, :, None] + log_probs.view(batch, beam, types)"
M_TOTALS = "candidates.append(([*ids, token], score + value))"
S_TOTALS = "totals = scores[:, None] + log_p"
A_STOP = "if all(best[n][0] > bound[n] for n in range(batch)):"
M_STOP = "if any(score > best_possible for _, score in finished):"
S_STOP = "if done and max(done)[0] > float(scores[0]) / ((5 + longest) / 6) ** alpha:"
A_LIMIT = "limit = source.size(1) + extra"
M_LIMIT = "limit = length + 50"
S_LIMIT = "longest = len(sentence) + extra"
A_MASK = "target_mask = model.target_mask(rows)"
A_SOURCE = "source_mask = model.source_mask(source)\n    memory = model.encode(source, source_mask)\n    rows"
A_START = "rows = torch.full((batch * beam, 1), START)"
M_START = "live = [([START], 0.0)]"
M_BEST = "best_possible = live[0][1]"
S_START = "histories = torch.full((1, 1), START)"
A_EVAL = "model.eval()\n    batch"
M_EVAL = "model.eval()\n    translations"
S_EVAL = "model.eval()\n    return"


def of_penalty(name: str, says: str, value: str) -> Fault:
    """Return a fault with another penalty, in terms of ``n`` tokens, the end included."""
    return of_search(
        name,
        "length-penalty",
        says,
        [(A_PENALTY, f"n = length\n        penalty = {value}"), (A_STOP, "if False:")],
        [
            (M_PENALTY, f"n = len(ids) - 1\n                penalty = {value}"),
            (M_STOP, "if False:"),
        ],
        [(S_PENALTY, f"float(score) / (lambda n: {value})(position + 1)"), (S_STOP, "if False:")],
    )


def of_limit(name: str, says: str, value: str) -> Fault:
    """Return a fault with another greatest length, in terms of the source's ``s``."""
    return of_search(
        name,
        "length-limit",
        says,
        [(A_LIMIT, f"s = source.size(1)\n    limit = {value}")],
        [(M_LIMIT, f"s = length\n        limit = {value}")],
        [(S_LIMIT, f"s = len(sentence)\n    longest = {value}")],
    )


FAULTS = [
    of_search(
        "a beam of one",
        "beam-search",
        "greedy|beam (of )?(size )?1\\b",
        [(A_BEAM, A_BEAM.replace("beam=4", "beam=1"))],
        [(M_CALL, M_CALL.replace("4", "1", 1))],
        [(S_CALL, S_CALL.replace("4", "1"))],
    ),
    of_search(
        "greedy decoding",
        "beam-search",
        "greedy",
        [
            (
                A_BEAM,
                "def translate(model, source):\n    model.eval()\n    rows = torch.full((len(source), 1), START)\n    for _ in range(source.size(1) + 50):\n        rows = torch.cat([rows, model(source, rows)[:, -1:].argmax(-1)], 1)\n    return rows.tolist()\n\n\n"
                + A_BEAM.replace("translate", "search"),
            )
        ],
        [
            (M_CALL, "greedy(model, sentence[None, :length], limit)"),
            (
                "def translate(",
                "@torch.no_grad()\ndef greedy(model, source, limit):\n    ids = [START]\n    while ids[-1] != END and len(ids) <= limit:\n        ids.append(int(logits(model, source, torch.tensor([ids]))[0, -1].argmax()))\n    return ids\n\n\ndef translate(",
            ),
        ],
        [
            (
                "return [beam_search(model, row[row != PAD], width, alpha, 50) for row in source]",
                "rows = torch.full((len(source), 1), START)\n    for _ in range(source.size(1) + 50):\n        rows = torch.cat([rows, logits(model, source, rows)[:, -1:].argmax(-1)], 1)\n    return rows",
            )
        ],
    ),
    of_search(
        "all beams are equal",
        "beam-search",
        "equal|same|alike|greedy",
        [("scores[:, 0] = 0.0", "scores[:] = 0.0")],
        [
            (M_START, "live = [([START], 0.0)] * beam"),
            ("values, tokens = log_probs.topk(2 * beam)", "values, tokens = log_probs.topk(1)"),
            (M_BEST, f"if not live:\n            break\n        {M_BEST}"),
        ],
        [
            (S_START, "histories = torch.full((width, 1), START)"),
            ("scores = torch.zeros(1)", "scores = torch.zeros(width)"),
            (
                "cross_caches = [list(layer.cross.keys_and_values(memory)) for layer in model.decoder]",
                "cross_caches = [[part.expand(-1, width, -1, -1) for part in layer.cross.keys_and_values(memory)] for layer in model.decoder]",
            ),
        ],
    ),
    of_search(
        "scores are not carried over",
        "beam-search",
        "carried|sum|accumul|last (word|token)|scores",
        [
            (
                A_TOTALS,
                "totals = 0 * scores[:, :, None].nan_to_num() + log_probs.view(batch, beam, types) + (scores[:, :, None] if length == 1 else 0)",
            )
        ],
        [(M_TOTALS, "candidates.append(([*ids, token], value))")],
        [(S_TOTALS, "totals = 0 * scores[:, None] + log_p")],
    ),
    of_search(
        "raw logits are summed",
        "beam-search",
        "logit|softmax",
        [
            (
                "log_probs = F.log_softmax(output, dim=-1)\n        log_probs[:, PAD]",
                "log_probs = output\n        log_probs[:, PAD]",
            )
        ],
        [("log_probs = output[0, -1].log_softmax(-1)", "log_probs = output[0, -1]")],
        [("log_p = output.log_softmax(-1)", "log_p = output.clone()")],
    ),
    of_search(
        "probabilities are summed",
        "beam-search",
        "probabilit",
        [
            (
                "log_probs = F.log_softmax(output, dim=-1)\n        log_probs[:, PAD]",
                "log_probs = F.softmax(output, dim=-1)\n        log_probs[:, PAD]",
            )
        ],
        [("log_probs = output[0, -1].log_softmax(-1)", "log_probs = output[0, -1].softmax(-1)")],
        [("log_p = output.log_softmax(-1)", "log_p = output.softmax(-1)")],
    ),
    of_search(
        "the search ends with the first end",
        "beam-search|search-stop",
        "first",
        [(A_STOP, "if all(best[n][1] for n in range(batch)):")],
        [(M_STOP, "if finished:")],
        [(S_STOP, "if done:")],
    ),
    of_search(
        "an end does not end a translation",
        "beam-search|search-end",
        "end",
        [("if place % types == END:", "if False:")],
        [("if ids[-1] == END:", "if False:")],
        [("is_end = tokens == END", "is_end = tokens == -1")],
    ),
    of_search(
        "the end is never chosen",
        "beam-search|search-end|length-limit",
        "end",
        [('log_probs[:, PAD] = float("-inf")', 'log_probs[:, END] = float("-inf")')],
        [("if token != PAD:", "if token != END:")],
        [('log_p[:, PAD] = float("-inf")', 'log_p[:, END] = float("-inf")')],
    ),
    of_search(
        "the worst hypothesis is chosen",
        "beam-search",
        "worst|lowest|least",
        [
            (
                "best[n] = max(best[n], (score / penalty, row[1:]))",
                "best[n] = min(best[n], (score / penalty, row[1:])) if best[n][1] else (score / penalty, row[1:])",
            ),
            (A_STOP, "if all(best[n][0] > float('-inf') for n in range(batch)) and length >= 14:"),
        ],
        [("best = max(finished", "best = min(finished"), (M_STOP, "if len(finished) >= 30:")],
        [("return max(done)[1]", "return min(done)[1]"), (S_STOP, "if len(done) >= 30:")],
    ),
    of_search(
        "the first finished hypothesis is chosen",
        "beam-search|search-stop|length-penalty",
        "first",
        [
            (
                "best[n] = max(best[n], (score / penalty, row[1:]))",
                "best[n] = best[n] if best[n][1] else (0.0, row[1:])",
            )
        ],
        [("best = max(finished, key=lambda pair: pair[1])", "best = finished[0]")],
        [("return max(done)[1]", "return done[0][1]")],
    ),
    of_penalty("no length penalty", "no (length )?penalty", "1"),
    of_penalty("a mean of log-probabilities", "log P / length|mean|length", "n"),
    of_penalty("the length to the power of 0.6", "0\\.6", "n**0.6"),
    of_penalty("alpha is one", "α = 1|alpha.*1", "(5 + n) / 6"),
    of_penalty("the penalty multiplies", "multipl", "1 / ((5 + n) / 6) ** 0.6"),
    of_penalty("alpha is two", "α = 2|alpha.*2|longer", "((5 + n) / 6) ** 2"),
    of_limit("at most 20 words", "20", "20"),
    of_limit("at most twice the source's length", "2|twice", "2 * s"),
    of_limit("at most the source's length", "source|as long", "s"),
    of_limit("at most 100 words", "100", "100"),
    of_limit("at most ten more than the source", "10|ten", "s + 10"),
    of_search(
        "dropout is on in decoding",
        "decoding-dropout|beam-search|decoding",
        "dropout|training",
        [(A_EVAL, "model.train()\n    batch")],
        [(M_EVAL, "model.train()\n    translations")],
        [(S_EVAL, "model.train()\n    return")],
    ),
    of_search(
        "no causal mask in decoding",
        "decoding|beam-search|decoding-mask",
        "causal|mask",
        [(A_MASK, "target_mask = None")],
        [("causal = causal_mask(len(ids))", "causal = None")],
        [],
    ),
    of_search(
        "no source mask in decoding",
        "decoding|beam-search|decoding-mask",
        "padding|source",
        [(A_SOURCE, A_SOURCE.replace("model.source_mask(source)", "None"))],
        [
            ("sentence[None, :length]", "sentence[None]"),
            (
                '@torch.no_grad()\ndef search(model, sentence, beam, alpha, limit):\n    """Translate one sentence [1, S] with lists of hypotheses."""\n    source_padding = sentence == PAD',
                '@torch.no_grad()\ndef search(model, sentence, beam, alpha, limit):\n    """Translate one sentence [1, S] with lists of hypotheses."""\n    source_padding = None',
            ),
        ],
        [("row[row != PAD]", "row.masked_fill(row == PAD, 0)")],
    ),
    of_search(
        "the cache puts every word at position 0",
        "decoding|beam-search|decoding-positions",
        "position",
        [
            (
                "output = model.decode(rows, memory, target_mask, source_mask)[:, -1]",
                "full, model.table = model.table, model.table[:1].expand_as(model.table)\n        output = model.decode(rows, memory, target_mask, source_mask)[:, -1]\n        model.table = full",
            )
        ],
        [],
        [
            (
                "x = self.embed_target(tokens[None], position)",
                "x = self.embed_target(tokens[None], 0)",
            )
        ],
    ),
    of_search(
        "the cache counts positions from one",
        "decoding|beam-search|decoding-positions",
        "position",
        [
            (
                "output = model.decode(rows, memory, target_mask, source_mask)[:, -1]",
                "full, model.table = model.table, model.table[1:]\n        output = model.decode(rows, memory, target_mask, source_mask)[:, -1]\n        model.table = full",
            )
        ],
        [],
        [
            (
                "x = self.embed_target(tokens[None], position)",
                "x = self.embed_target(tokens[None], position + 1)",
            )
        ],
    ),
    of_search(
        "the cache is not reordered",
        "decoding|beam-search|decoding-cache",
        "cache|reorder|history|another hypothesis",
        [],
        [],
        [
            (
                "cache[:] = [part[:, chosen] for part in cache]",
                "cache[:] = [part[:, :1].expand(-1, len(chosen), -1, -1) if part.size(1) == 1 else part[:, : len(chosen)] for part in cache]",
            )
        ],
    ),
    of_search(
        "only the last word is read",
        "decoding|beam-search|decoding-cache",
        "last (word|token)|history|earlier",
        [
            (
                "output = model.decode(rows, memory, target_mask, source_mask)[:, -1]",
                "output = model.decode(rows[:, -1:], memory, None, source_mask)[:, -1]",
            )
        ],
        [
            ("target = torch.tensor([ids])", "target = torch.tensor([ids[-1:]])"),
            ("causal = causal_mask(len(ids))", "causal = None"),
        ],
        [("cache[:] = [part[:, chosen] for part in cache]", "cache[:] = []")],
    ),
    of_search(
        "decoding starts with the end",
        "decoding|beam-search|decoding-start",
        "start",
        [(A_START, A_START.replace("START", "END"))],
        [(M_START, M_START.replace("START", "END"))],
        [(S_START, S_START.replace("START", "END"))],
    ),
    of_search(
        "decoding starts with padding",
        "decoding|beam-search|decoding-start",
        "start",
        [(A_START, A_START.replace("START", "PAD"))],
        [(M_START, M_START.replace("START", "PAD"))],
        [(S_START, S_START.replace("START", "PAD"))],
    ),
    of_search(
        "the source is turned round in decoding",
        "decoding|beam-search|decoding-source",
        "source",
        [
            (
                "source = source.repeat_interleave(beam, dim=0)",
                "source = source.flip(1).repeat_interleave(beam, dim=0)",
            )
        ],
        [("sentence[None, :length]", "sentence[None, :length].flip(1)")],
        [("row[row != PAD], width", "row[row != PAD].flip(0), width")],
    ),
    of_search(
        "the source's end is cut off in decoding",
        "decoding|beam-search|decoding-source",
        "end|source",
        [
            (
                "source = source.repeat_interleave(beam, dim=0)",
                "source = source.masked_fill(source == END, PAD).repeat_interleave(beam, dim=0)",
            )
        ],
        [("sentence[None, :length]", "sentence[None, : length - 1]")],
        [("row[row != PAD], width", "row[(row != PAD) & (row != END)], width")],
    ),
    of_search(
        "all sentences get the first one's translation",
        "decoding|beam-search|decoding-batch",
        "sentence|source",
        [
            (
                "source = source.repeat_interleave(beam, dim=0)",
                "source = source[:1].repeat(batch * beam, 1)",
            )
        ],
        [("for sentence in source:", "for sentence in source[:1].expand_as(source):")],
        [("for row in source]", "for row in source[:1].expand_as(source)]")],
    ),
    of_search(
        "sentences come back in another order",
        "decoding|beam-search|decoding-batch",
        "order|sentence",
        [
            (
                "return [best[n][1] or rows[n, 0, 1:].tolist() for n in range(batch)]",
                "return [best[n][1] or rows[n, 0, 1:].tolist() for n in reversed(range(batch))]",
            )
        ],
        [("    return translations", "    return translations[::-1]")],
        [("for row in source]", "for row in source.flip(0)]")],
    ),
    of_search(
        "beams of sentences are mixed",
        "decoding|beam-search|decoding-batch",
        "sentence",
        [("source = source.repeat_interleave(beam, dim=0)", "source = source.repeat(beam, 1)")],
        [],
        [],
    ),
]
