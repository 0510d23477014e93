"""A treebank PCFG over gold tags: a baseline for parsing (section 6.3) that learns by counting.

Rules and their probabilities are those of the training trees, without smoothing (Charniak 1996,
"Tree-bank Grammars"). A rule with more than two children becomes several with two: its first child,
and the rest, which knows the label and the ``REMEMBERED`` children before it (Klein and Manning
2003). The likeliest tree is found by CKY, with chains of unary rules.

Shape letters: S symbols, M of them labels and tags (the others stand for the rest of a rule), R
rules with two children, K places to split a span.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy

from vaswani.data.trees import ROOT, Constituent, Tree, linearise

REMEMBERED = 1
Node = tuple[str, list[Any]]
"""A label and its children, which are nodes or tags."""


class Grammar(NamedTuple):
    """Log-probabilities of rules; rules are sorted by their parent.

    Attributes:
        symbols: their names, [S]; the first M are labels and tags
        left, right, log_p: of each rule with two children, [R]
        starts: where the rules of each of ``parents`` begin
        chain: of the best chain of unary rules from one symbol to another, [M, M]
        middle: a symbol on that chain, [M, M]; -1 where it is one rule
    """

    symbols: list[str]
    left: Any
    right: Any
    log_p: Any
    starts: Any
    parents: Any
    chain: Any
    middle: Any


def nest(tree: Tree) -> Node:
    """Convert a tree to nodes, from its root."""
    path: list[Node] = [(ROOT, [])]
    for token in linearise(tree, tags=True):
        if token.startswith("("):
            path.append((token[1:], []))
        elif token.startswith(")"):
            node = path.pop()
            path[-1][1].append(node)
        else:
            path[-1][1].append(token)
    return path[0]


def rules_of(node: Node, remembered: int) -> Iterator[tuple[str, ...]]:
    """Yield the rules below a node: parent, then one or two children."""
    label, children = node
    names = [child if isinstance(child, str) else child[0] for child in children]
    parent = label
    for place in range(len(names) - 2):
        before = names[max(0, place + 1 - remembered) : place + 1]
        rest = f"{label}|{' '.join(before)}"
        yield parent, names[place], rest
        parent = rest
    yield parent, *names[-2:]
    for child in children:
        if not isinstance(child, str):
            yield from rules_of(child, remembered)


def learn(trees: Sequence[Tree], remembered: int = REMEMBERED) -> Grammar:
    """Learn a grammar by counting the rules of trees."""
    counts: Counter[tuple[str, ...]] = Counter()
    for tree in trees:
        counts.update(rules_of(nest(tree), remembered))
    of_parent: Counter[str] = Counter()
    for rule, count in counts.items():
        of_parent[rule[0]] += count
    names = {name for rule in counts for name in rule}
    symbols = sorted(names, key=lambda name: ("|" in name, name))
    number = {name: place for place, name in enumerate(symbols)}
    chain = numpy.full((sum("|" not in name for name in symbols),) * 2, -numpy.inf)
    binary = []
    for rule, count in counts.items():
        places = [number[name] for name in rule]
        log_p = math.log(count / of_parent[rule[0]])
        if len(rule) == 3:
            binary.append((*places, log_p))
        else:
            chain[tuple(places)] = log_p
    table = numpy.array(sorted(binary))
    parents, left, right = table[:, :3].astype(int).T
    parents, starts = numpy.unique(parents, return_index=True)
    middle = numpy.full(chain.shape, -1)
    for between in range(len(chain)):
        longer = chain[:, between, None] + chain[between]
        likelier = longer > chain
        chain[likelier] = longer[likelier]
        middle[likelier] = between
    return Grammar(symbols, left, right, table[:, 3], starts, parents, chain, middle)


def parse(grammar: Grammar, tree: Tree) -> Tree | None:
    """Return the most probable tree over the tags of another; None if the rules allow none."""
    chart = Chart(grammar, tree.tags)
    root = grammar.symbols.index(ROOT)
    if numpy.isneginf(chart.best[0, len(tree.tags), root]):
        return None
    _, *constituents = chart.constituents(0, len(tree.tags), root)
    return Tree(tree.words, tree.tags, constituents)


class Chart:
    """The log-probability of the likeliest way from each symbol to each span of tags.

    Attributes:
        best: [T + 1, T + 1, S], by beginning and end
        direct: the same without unary rules at the top
    """

    def __init__(self, grammar: Grammar, tags: Sequence[str]) -> None:
        self.grammar = grammar
        size = len(tags) + 1
        self.best: Any = numpy.full((size, size, len(grammar.symbols)), -numpy.inf, numpy.float32)
        self.direct = self.best.copy()
        for start, tag in enumerate(tags):
            self.direct[start, start + 1, grammar.symbols.index(tag)] = 0
            self._add_chains(start, start + 1)
        for length in range(2, size):
            for start in range(size - length):
                end = start + length
                scores = self._splits(start, end, slice(None)).max(0) + grammar.log_p
                self.direct[start, end, grammar.parents] = numpy.maximum.reduceat(
                    scores, grammar.starts
                )
                self._add_chains(start, end)

    def _splits(self, start: int, end: int, rules: slice) -> Any:
        """Return the children's log-probabilities of rules at each place to split, [K, R]."""
        left = self.grammar.left[rules]
        right = self.grammar.right[rules]
        first = self.best[start, start + 1 : end]
        return first[:, left] + self.best[start + 1 : end, end][:, right]

    def _add_chains(self, start: int, end: int) -> None:
        direct = self.direct[start, end]
        best = self.best[start, end]
        many = len(self.grammar.chain)
        best[:] = direct
        best[:many] = numpy.maximum(direct[:many], (self.grammar.chain + direct[:many]).max(1))

    def constituents(self, start: int, end: int, symbol: int) -> Iterator[Constituent]:
        """Yield the likeliest tree's constituents below a symbol, each before those inside it."""
        grammar = self.grammar
        direct = self.direct[start, end]
        if self.best[start, end, symbol] > direct[symbol]:
            below = int((grammar.chain[symbol] + direct[: len(grammar.chain)]).argmax())
            for label in self._on_chain(symbol, below):
                yield Constituent(grammar.symbols[label], start, end)
            symbol = below
        if symbol < len(grammar.chain) and (end - start > 1):
            yield Constituent(grammar.symbols[symbol], start, end)
        if end - start == 1:
            return
        place = int(numpy.searchsorted(grammar.parents, symbol))
        stop = [*grammar.starts, len(grammar.left)][place + 1]
        rules = slice(grammar.starts[place], stop)
        scores = self._splits(start, end, rules) + grammar.log_p[rules]
        split, rule = numpy.unravel_index(scores.argmax(), scores.shape)
        middle = start + 1 + int(split)
        yield from self.constituents(start, middle, int(grammar.left[rules][rule]))
        yield from self.constituents(middle, end, int(grammar.right[rules][rule]))

    def _on_chain(self, top: int, bottom: int) -> list[int]:
        """Return the symbols of a chain of unary rules, without its last."""
        between = int(self.grammar.middle[top, bottom])
        if between < 0:
            return [top]
        return self._on_chain(top, between) + self._on_chain(between, bottom)
