"""Constituency trees (section 6.3): read from Penn brackets, turned into a sequence, and back.

    (TOP (S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .)))
    (S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S

The second line is the first as the model writes it, as in Vinyals et al. 2015, "Grammar as a
Foreign Language", which section 6.3 follows: labelled closing brackets, no words (they are the
source), and every part-of-speech tag replaced by XX, unless tags are kept.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vaswani.common.errors import UserError
from vaswani.data.text import read_lines, write_lines

ROOT = "TOP"
#: how treebanks and parsers call the root; the Penn Treebank leaves its label out
ROOTS = ("", ROOT, "ROOT", "S1")
#: the tag of what is not in the text: traces and other empty elements
TRACE = "-NONE-"
#: stands for any tag
ANY_TAG = "XX"
_PIECE = re.compile(
    r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)"  # a word with its tag
    r"|\(\s*(?P<label>[^\s()]*)"  # a constituent begins
    r"|(?P<close>\))"
    r"|(?P<stray>[^\s()]+)"
)
_WITHOUT_FUNCTION = re.compile(r".[^-=]*")


class Constituent(NamedTuple):
    """A label over the words from ``start`` to before ``end``, counted from 0."""

    label: str
    start: int
    end: int


class Tree(NamedTuple):
    """A sentence's words, their tags, and its constituents, each before those inside it.

    The root is not among the constituents: it is the same in every tree.
    """

    words: list[str]
    tags: list[str]
    constituents: list[Constituent]


def read_trees(path: Path) -> list[Tree]:
    """Return the trees of a file, compressed or not, one a line.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: it is empty, or a line is not a tree; gives the line.
    """
    trees = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            trees.append(parse_tree(line))
        except ValueError as error:
            raise UserError(
                f"{path}, line {number:,}: {error}: give one whole tree in Penn brackets on each "
                "line"
            ) from None
    if not trees:
        raise UserError(f"{path} is empty: give a file with one tree per line")
    return trees


def write_sides(
    path: Path, sides: tuple[Path, Path], whole: Path, tags: bool, limit: int | None
) -> int:
    """Write each tree's words, its brackets, and the whole tree.

    Args:
        path: of the trees
        sides: the files of words and of brackets
        whole: the file of whole trees
        tags: as in ``linearise``
        limit: how many trees to take; None: all

    Returns:
        The number of trees.
    """
    trees = read_trees(path)[:limit]
    write_lines(sides[0], (" ".join(tree.words) for tree in trees))
    write_lines(sides[1], (" ".join(linearise(tree, tags)) for tree in trees))
    write_lines(whole, map(penn_brackets, trees))
    return len(trees)


def parse_tree(line: str) -> Tree:
    """Return a tree from Penn brackets, with its root normalised, without traces and functions.

    ``NP-SBJ`` and ``NP=2`` become NP. Traces go, with the constituents that hold nothing else. The
    root may be called TOP, ROOT, S1 or nothing, or may be missing.

    Raises:
        ValueError: the brackets are malformed; says how.
    """
    words: list[str] = []
    tags: list[str] = []
    constituents: list[Constituent] = []
    unclosed: list[int] = []  # places in `constituents`
    for piece in _PIECE.finditer(line):
        if piece["stray"]:
            raise ValueError(f"'{piece['stray']}' is not written as (TAG word)")
        if (words or constituents) and not unclosed:
            raise ValueError(f"'{piece[0]}' comes after the end of the tree")
        if piece["close"]:
            if not unclosed:
                raise ValueError("a ')' has no opening bracket")
            place = unclosed.pop()
            constituents[place] = constituents[place]._replace(end=len(words))
            continue
        if piece["tag"]:
            if piece["tag"] != TRACE:
                words.append(piece["word"])
                tags.append(piece["tag"])
        else:
            label = piece["label"]
            label = _WITHOUT_FUNCTION.findall(label)[0] if label else label
            unclosed.append(len(constituents))
            constituents.append(Constituent(label, len(words), -1))
    if unclosed:
        raise ValueError(f"{len(unclosed)} opening brackets are not closed")
    if not words or not constituents:
        raise ValueError("the line holds no tree")
    if constituents[0].label in ROOTS:
        constituents = constituents[1:]
    return Tree(words, tags, [span for span in constituents if span.end > span.start])


def linearise(tree: Tree, tags: bool = False) -> list[str]:
    """Return the tree as the tokens that the model learns to write: see the top of this file.

    ``tags``: keep the part-of-speech tags instead of XX.
    """
    return _flatten(tree, tree.tags if tags else [ANY_TAG] * len(tree.words), ")")


def penn_brackets(tree: Tree) -> str:
    """Return the tree as a line that ``parse_tree`` reads."""
    leaves = [f"({tag} {word})" for tag, word in zip(tree.tags, tree.words, strict=True)]
    text = " ".join([f"({ROOT}", *_flatten(tree, leaves, ""), ")"])
    return re.sub(r" (?=\))", "", text)


def repair(tokens: Sequence[str], words: Sequence[str]) -> tuple[Tree, bool]:
    """Return the tree over ``words`` (at least one) that is most similar to a model's hypothesis.

    The inverse of ``linearise``; but any other sequence is made into a tree, too:

    - Closing brackets: one whose label is open closes what is open inside it too; others are left
      out; what stays open is closed at the end.
    - Words that have no place are put before the last closing bracket, or at the end; places
      without a word are left out, and so are constituents that end up without words.

    Returns:
        The tree, its tags as in the hypothesis; and whether anything had to be changed.
    """
    tags: list[str] = []
    constituents: list[Constituent] = []
    unclosed: list[int] = []
    missing = len(words) - sum(token[0] not in "()" for token in tokens)
    last = len(tokens) - bool(tokens and tokens[-1].startswith(")"))
    for token in [*tokens[:last], *[ANY_TAG] * missing, *tokens[last:]]:
        if token.startswith("("):
            unclosed.append(len(constituents))
            constituents.append(Constituent(token[1:], len(tags), len(words)))
        elif not token.startswith(")"):
            tags += [token] if len(tags) < len(words) else []
        elif any(constituents[place].label == token[1:] for place in unclosed):
            closed = ""
            while closed != token[1:]:
                place = unclosed.pop()
                closed = constituents[place].label
                constituents[place] = constituents[place]._replace(end=len(tags))
    tree = Tree(list(words), tags, [span for span in constituents if span.end > span.start])
    return tree, _flatten(tree, tags, ")") != list(tokens)


def _flatten(tree: Tree, leaves: Sequence[str], close: str) -> list[str]:
    """Return the leaves, one for each word, with the brackets around them.

    If ``close`` is ")", closing brackets have their label; if it is empty, they have none.
    """
    opened: list[list[str]] = [[] for _ in leaves]
    closed: list[list[str]] = [[] for _ in leaves]
    for label, start, end in tree.constituents:
        opened[start].append(f"({label}")
        closed[end - 1].insert(0, f"){label}" if close else ")")  # the inner one closes first
    parts = zip(opened, leaves, closed, strict=True)
    return [token for before, leaf, after in parts for token in (*before, leaf, *after)]
