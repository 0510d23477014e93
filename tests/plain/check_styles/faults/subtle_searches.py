"""Mistakes in a search that translates all the same, and a little worse."""

from .decoding import A_MASK, A_PENALTY, M_PENALTY, S_PENALTY, of_search
from .fault import Fault
from .public_training import A_LOG, M_LOG, S_LOG

A_BEST = "best[n] = max(best[n], (score / penalty, row[1:]))"
A_BOUND = "bound = scores[:, 0] / ((5 + limit) / 6) ** alpha"
A_SOURCE = "source = source.repeat_interleave(beam, dim=0)"
M_BOUND = "best_possible = live[0][1] / ((5 + limit) / 6) ** alpha"
M_CANDIDATE = "candidates.append(([*ids, token], score + value))"
M_MASK = "causal = causal_mask(len(ids))"
M_SOURCE = "sentence[None, :length]"
M_TOPK = "values, tokens = log_probs.topk(2 * beam)"
S_BOUND = "float(scores[0]) / ((5 + longest) / 6) ** alpha"
S_SOURCE = "row[row != PAD], width"

FAULTS = [
    of_search(
        "the penalty has no parentheses",
        "length-penalty|beam-search",
        r"5 \+ (n|length|\|Y\|)\s*/\s*6|parenthes|bracket|preceden|weak|smaller|flatter|too (small|flat|low)|shorter|α ?(is|=|≈|of) ?(about )?0\.[0-5]",
        [
            (A_PENALTY, "penalty = (5 + length / 6) ** alpha"),
            (A_BOUND, "bound = scores[:, 0] / (5 + limit / 6) ** alpha"),
        ],
        [
            (M_PENALTY, "penalty = (5 + (len(ids) - 1) / 6) ** alpha"),
            (M_BOUND, "best_possible = live[0][1] / (5 + limit / 6) ** alpha"),
        ],
        [
            (S_PENALTY, "float(score) / (5 + (position + 1) / 6) ** alpha"),
            (S_BOUND, "float(scores[0]) / (5 + longest / 6) ** alpha"),
        ],
    ),
    of_search(
        "the penalty has the source's length",
        "length-penalty|beam-search",
        r"source|no (length )?penalty|constant|same (penalty )?for|not depend|α = 0|without (a )?(length )?penalty|log P alone",
        [(A_PENALTY, "penalty = ((5 + source.size(1)) / 6) ** alpha")],
        [(M_PENALTY, "penalty = ((5 + sentence.shape[1]) / 6) ** alpha")],
        [(S_PENALTY, "float(score) / ((5 + len(sentence)) / 6) ** alpha")],
    ),
    of_search(
        "finished hypotheses of earlier searches are kept",
        "beam-search|decoding|decoding-batch|batch-independence|search-stop",
        r"earlier (sentence|source|call|search|hypothes|translation)|(another|other|previous|preceding)[^./]{0,15} (sentence|source|call|search)|kept from|carried over|\bstate\b|default argument|(depend|chang|differ)[^./]*(batch|call)",
        [
            ("beam=4, alpha=0.6, extra=50):", "beam=4, alpha=0.6, extra=50, best={}):"),
            (
                'best = [(float("-inf"), [])] * batch',
                'for n in range(batch):\n        best.setdefault(n, (float("-inf"), []))',
            ),
        ],
        [
            (
                "def search(model, sentence, beam, alpha, limit):",
                "def search(model, sentence, beam, alpha, limit, finished=[]):",
            ),
            ("    finished = []\n", ""),
        ],
        [
            (
                "def beam_search(model, sentence, width, alpha, extra):",
                "def beam_search(model, sentence, width, alpha, extra, done=[]):",
            ),
            ("    done = []\n", ""),
        ],
    ),
    of_search(
        "no end before the source's length",
        "beam-search|length-limit|search-end|decoding|length-penalty",
        r"\bend\b[^./]{0,40}(before|until|forbid|not allowed)|at least|minimum|min.?length|shorter|too long|as long as the source",
        [
            (
                A_LOG,
                A_LOG.replace(
                    "\n",
                    "\n        is_short = length <= (source != PAD).sum(1)\n"
                    '        log_probs[is_short, END] = float("-inf")\n',
                    1,
                ),
            )
        ],
        [
            (
                M_LOG,
                f"{M_LOG}\n            if len(ids) <= limit - 50:\n"
                '                log_probs[END] = float("-inf")',
            )
        ],
        [
            (
                S_LOG,
                f"{S_LOG}\n        if position < len(sentence):\n"
                '            log_p[:, END] = float("-inf")',
            )
        ],
    ),
    of_search(
        "decoding has the first sentence's source mask",
        "decoding|beam-search|decoding-mask|decoding-batch",
        r"padding|source.{0,10}mask|first sentence|(another|other)[^./]{0,5} sentence|depends on the batch",
        [
            (
                "source_mask = model.source_mask(source)\n    memory = model.encode(source, source_mask)\n    rows",
                "source_mask = model.source_mask(source[:1])\n    memory = model.encode(source, source_mask)\n    rows",
            )
        ],
        [
            (
                "search(model, sentence[None, :length], 4, 0.6, limit)",
                "search(model, sentence[None], 4, 0.6, limit, source[:1] == PAD)",
            ),
            (
                "def search(model, sentence, beam, alpha, limit):",
                "def search(model, sentence, beam, alpha, limit, source_padding):",
            ),
            ("    source_padding = sentence == PAD\n", ""),
        ],
        [
            (
                "beam_search(model, row[row != PAD], width, alpha, 50)",
                "beam_search(model, row, width, alpha, 50, source[0] == PAD)",
            ),
            (
                "def beam_search(model, sentence, width, alpha, extra):",
                "def beam_search(model, sentence, width, alpha, extra, padding):",
            ),
            (
                "longest = len(sentence) + extra\n    memory, source_hidden = model.encode(sentence[:, None])",
                "longest = int((sentence != PAD).sum()) + extra\n"
                "    memory, _ = model.encode(sentence[:, None])\n"
                "    source_hidden = padding[None, :, None]",
            ),
        ],
    ),
    of_search(
        "the newest word is hidden in decoding",
        "decoding|beam-search|decoding-mask|decoding-cache",
        r"itself|(newest|latest|own|current|last) (word|token|key|position)[^./]{0,30}(not|hid|mask|miss|without|ignor|unseen)|(not|hid|mask|miss|without|ignor)[^./]{0,30}(newest|latest|own|current|last) (word|token|key|position)|hid(es|den)|causal|target mask",
        [
            (
                A_MASK,
                f"{A_MASK}\n        target_mask.diagonal(dim1=-2, dim2=-1)[..., 1:] = False",
            )
        ],
        [(M_MASK, f"{M_MASK}\n            causal.diagonal()[1:] = True")],
        [
            (
                "for layer, cache, cross in zip(self.decoder, caches, cross_caches):\n            x = layer(x, None, None,",
                "newest = torch.arange(position + 1)[None, :, None] == (position or -1)\n"
                "        for layer, cache, cross in zip(self.decoder, caches, cross_caches):\n"
                "            x = layer(x, newest, None,",
            )
        ],
    ),
    of_search(
        "decoding sees the last four words alone",
        "decoding|beam-search|decoding-mask|decoding-cache",
        r"last (4|four|few)|window|earlier (word|token|position|key)|histor|forg[eo]t|\b(4|four) (words|tokens|positions)|truncat|(first|early|older|old) (words|tokens|keys|positions)",
        [(A_MASK, f"{A_MASK}.triu(-3)")],
        [
            (
                M_MASK,
                f"{M_MASK}\n            causal = causal | torch.ones_like(causal).tril(-4)",
            )
        ],
        [
            (
                "cache[:] = [part[:, chosen] for part in cache]",
                "cache[:] = [part[-3:, chosen] for part in cache]",
            )
        ],
    ),
    of_search(
        "the search's softmax is over another dimension",
        "beam-search|decoding",
        r"softmax|\bdim(ension)?\b|over (the |all )?(beams?|batch|hypothes|position|sentence|row)|normali[sz]|sum to (1|one)",
        [(A_LOG, A_LOG.replace("dim=-1", "dim=0"))],
        [(M_LOG, "log_probs = output[0].log_softmax(0)[-1]")],
        [(S_LOG, "log_p = output.log_softmax(0)")],
    ),
    of_search(
        "words are put behind another hypothesis",
        "beam-search|decoding|decoding-cache",
        r"\bparents?\b|histor|(another|wrong|other|different|best|first)[^./]{0,20} (hypothes|beam|prefix)|origin|reorder|came from|belong|prefix",
        [
            (
                "row = [*rows[n * beam + place // types].tolist(), place % types]",
                "row = [*rows[n * beam + len(live) % beam].tolist(), place % types]",
            )
        ],
        [(M_CANDIDATE, "candidates.append(([*live[0][0], token], score + value))")],
        [
            (
                "grown = torch.cat([histories[parents], tokens[:, None]], dim=1)",
                "ranks = torch.arange(len(tokens)) % len(histories)\n"
                "        grown = torch.cat([histories[ranks], tokens[:, None]], dim=1)",
            )
        ],
    ),
    of_search(
        "the first word of each translation is cut off",
        "beam-search|decoding|decoding-start",
        r"first (word|token)|\bcut\b|missing|drop(s|ped)?\b|remov|strip|one (word|token) (short|few)|begins? with the second",
        [("(score / penalty, row[1:])", "(score / penalty, row[2:])")],
        [("return best[0][1:]", "return best[0][2:]")],
        [("row[1:].tolist()))", "row[2:].tolist()))")],
    ),
    of_search(
        "the end's probability is not counted",
        "beam-search|length-penalty|search-end",
        r"(probabilit|log P|score|share)[^./]{0,30}(?<!-)\bend\b|(?<!-)\bend('s)?\b[^./]{0,40}(probabilit|log|score|count|includ|left out|not added|free)",
        [
            (
                A_BEST,
                "best[n] = max(best[n], (float(scores[n, place // types]) / penalty, row[1:]))",
            )
        ],
        [
            (M_CANDIDATE, "candidates.append(([*ids, token], score + value, score))"),
            (
                "for ids, score in candidates[: 2 * beam]:",
                "for ids, score, before in candidates[: 2 * beam]:",
            ),
            ("finished.append((ids, score / penalty))", "finished.append((ids, before / penalty))"),
        ],
        [
            (
                "for row, score in zip(grown[is_end], top[is_end]):",
                "for row, score in zip(grown[is_end], scores[parents[is_end]]):",
            )
        ],
    ),
    of_search(
        "the first step is greedy",
        "beam-search",
        r"first (step|word|token|position)|greedy|one (word|token|hypothesis)|most probable|likeliest",
        [
            (
                A_LOG,
                A_LOG.replace(
                    "\n",
                    "\n        if length == 1:\n"
                    "            likeliest = log_probs.amax(-1, keepdim=True)\n"
                    '            log_probs = log_probs.masked_fill(log_probs < likeliest, float("-inf"))\n',
                    1,
                ),
            )
        ],
        [
            (M_TOPK, "values, tokens = log_probs.topk(2 * beam if len(ids) > 1 else 1)"),
            (
                "        best_possible",
                "        if not live:\n            break\n        best_possible",
            ),
        ],
        [
            (
                S_LOG,
                f"{S_LOG}\n        if position == 0:\n"
                "            likeliest = log_p.amax(-1, keepdim=True)\n"
                '            log_p = log_p.masked_fill(log_p < likeliest, float("-inf"))',
            )
        ],
    ),
    of_search(
        "words that occurred are less probable",
        "beam-search|decoding",
        r"repe(at|tit)|occur|already|appear|used before",
        [
            (
                A_LOG,
                A_LOG.replace(
                    "\n",
                    "\n        log_probs.scatter_(1, rows, 2 * log_probs.gather(1, rows))\n",
                    1,
                ),
            )
        ],
        [(M_LOG, f"{M_LOG}\n            log_probs[ids] = 2 * log_probs[ids]")],
        [(S_LOG, f"{S_LOG}\n        log_p.scatter_(1, histories, 2 * log_p.gather(1, histories))")],
    ),
    of_search(
        "decoding pads sources on the left",
        "decoding|beam-search|decoding-source|decoding-positions|decoding-batch",
        r"\bleft\b|(?<!-)position|shift|in front|padding (before|first|changes)|before the (words|sentence)|where (the )?padding",
        [
            (
                A_SOURCE,
                "source = torch.stack([torch.cat([row[row == PAD], row[row != PAD]]) for row in source])\n"
                f"    {A_SOURCE}",
            )
        ],
        [(M_SOURCE, "torch.cat([sentence[length:], sentence[:length]])[None]")],
        [(S_SOURCE, "torch.cat([row[row == PAD], row[row != PAD]]), width")],
    ),
    of_search(
        "the source gets a start token in decoding",
        "decoding|beam-search|decoding-source",
        "source[^.]*(start|front|extra|more|longer|shift|position)|(start|extra|additional|one more)[^.]*source|prepend",
        [(A_SOURCE, A_SOURCE.replace("source.rep", "F.pad(source, (1, 0), value=START).rep"))],
        [(M_SOURCE, "torch.nn.functional.pad(sentence[:length], (1, 0), value=START)[None]")],
        [(S_SOURCE, "F.pad(row[row != PAD], (1, 0), value=START), width")],
    ),
    of_search(
        "the search stops with a bound that lacks the penalty",
        "beam-search|search-stop|length-penalty",
        r"\b(stops|ends|finishes|breaks)\b|too (early|soon)|earlier|bound|first (finished|end)",
        [(A_BOUND, "bound = scores[:, 0]")],
        [(M_BOUND, "best_possible = live[0][1]")],
        [(S_BOUND, "float(scores[0])")],
    ),
    Fault(
        "the search reads the prediction of the first position",
        id="beam-search|decoding|decoding-positions|decoding-mask|decoding-start",
        says=r"first (position|word|row|step|token|predict|output)|position 0|(not|in place of|instead of) the last|same (distribution|prediction|word|probabilit)|every step|start token alone|only the start",
        batch_first=[("target_mask, source_mask)[:, -1]", "target_mask, source_mask)[:, 0]")],
        searches=True,
    ),
    Fault(
        "decoding has two start tokens",
        id="decoding-start|decoding|beam-search|decoding-positions",
        says=r"start",
        batch_first=[
            (
                "rows = torch.full((batch * beam, 1), START)",
                "rows = torch.full((batch * beam, 2), START)",
            ),
            ("(score / penalty, row[1:])", "(score / penalty, row[2:])"),
            ("rows[n, 0, 1:]", "rows[n, 0, 2:]"),
        ],
        multihead=[
            ("live = [([START], 0.0)]", "live = [([START, START], 0.0)]"),
            ("((5 + len(ids) - 1) / 6)", "((5 + len(ids) - 2) / 6)"),
            ("return best[0][1:]", "return best[0][2:]"),
        ],
        searches=True,
    ),
    Fault(
        "a continuation's rank is subtracted from its score, as in diverse beam search",
        id="beam-search|decoding",
        says=r"\brank|divers|sibling|subtract|penal(ty|is|iz)|\bsums?\b|\bscores?\b|log-?prob",
        multihead=[
            (
                "for value, token in zip(values.tolist(), tokens.tolist()):",
                "for rank, (value, token) in enumerate(zip(values.tolist(), tokens.tolist())):",
            ),
            ("([*ids, token], score + value)", "([*ids, token], score + value - 0.5 * rank)"),
        ],
        sequence_first=[
            (
                "totals = scores[:, None] + log_p",
                "rank = log_p.argsort(-1, descending=True).argsort(-1)\n"
                "        totals = scores[:, None] + log_p - 0.5 * rank",
            )
        ],
        searches=True,
    ),
    Fault(
        "the cache of values is not reordered",
        id="decoding-cache|decoding|beam-search",
        says=r"reorder|cache|(another|other) hypothes|values|parent|another beam|other beams",
        sequence_first=[
            (
                "cache[:] = [part[:, chosen] for part in cache]",
                "keys, values = cache\n"
                "            cache[:] = [keys[:, chosen], values if position else values[:, chosen]]",
            )
        ],
        searches=True,
    ),
]
