"""What a pickle may ask for, checked step by step, so that none takes all memory or time.

Python's unpickler makes room for whatever a pickle says, a thousand million places for one number,
and code that walks through its tables afterwards follows them however deep they are. Nothing that
a pickle names is called here.
"""

import argparse
import pickletools
from typing import IO, Any, Dict, List, Optional, Set, Tuple

MOST_BYTES = 16 << 20
"""Limit for a pickle, or for the archive's list of files; a model of 5,000 tensors has 2 MB."""
MOST_STEPS = 1_000_000
"""Instructions in a pickle; a tensor has about 40."""
DEEPEST = 100
"""How deep tables and lists may be nested."""
OLD_MAGIC = 0x1950A86A20F9469CFC6C  # torch's number for its format before zip
# these fill a container that exists already; others make one out of its parts
_IN_PLACE = {"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"}


class Refused(Exception):
    """What is wrong with a file, as the rest of a sentence that begins with its name."""


DAMAGED = "is cut short or damaged"


class BoundedFile:
    """A file that gives no more than ``MOST_BYTES`` at once: no checkpoint needs more."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def read(self, size: int = -1) -> bytes:
        """As a file's; raises Refused for too much at once."""
        if size > MOST_BYTES:
            raise Refused(f"asks for {size:,} bytes at once, which no checkpoint does")
        return self.stream.read(size)

    def readline(self) -> bytes:
        """As a file's; a longer line is cut, which pickle takes for damage."""
        return self.stream.readline(MOST_BYTES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def check_steps(stream: Any) -> None:
    """Check the instructions of the next pickle in a stream, without following any.

    Raises:
        Refused: too many, nested too deeply, or taking memory or time out of all proportion.
    """
    depths: List[Optional[int]] = []  # of what lies on the pickle's stack; None is a mark
    memo: Dict[Any, int] = {}
    start = stream.tell()
    for step, (opcode, argument, position) in enumerate(pickletools.genops(stream)):
        if step > MOST_STEPS or (position or 0) - start > MOST_BYTES:
            raise Refused("has a table with more in it than any checkpoint")
        if isinstance(argument, int):
            if opcode.name.endswith("PUT") and argument > step:  # Python makes room up to there
                raise Refused(f"{DAMAGED} (it counts to {argument:,} without need)")
            if argument.bit_length() > 64 and argument != OLD_MAGIC:  # many may share a hash
                raise Refused("holds a number of more than 64 bits, as no checkpoint does")
        if opcode.name.startswith("EXT"):
            raise Refused(f"{DAMAGED} (instruction {opcode.name})")
        if opcode.name == "MEMOIZE":
            memo[len(memo)] = depths[-1] or 0
        elif opcode.name.endswith("PUT"):
            memo[argument] = depths[-1] or 0
        elif opcode.name.endswith("GET"):
            depths.append(memo[argument])
        else:
            follow(opcode, depths)


def follow(opcode: Any, depths: List[Optional[int]]) -> None:
    """Apply an instruction's effect to the depths on the stack."""
    before, after = opcode.stack_before, opcode.stack_after
    if opcode.name == "MARK":
        depths.append(None)
        return
    number, inside = len(before), []
    if pickletools.markobject in before:
        number = before.index(pickletools.markobject)
        while (part := depths.pop()) is not None:
            inside.append(part)
    below = [depths.pop() or 0 for _ in range(number)]
    if opcode.name in _IN_PLACE:
        depth = max(below.pop(), 1 + max(inside + below, default=0))
    else:
        depth = 1 + max(inside + below, default=-1)
    if depth > DEEPEST:
        raise Refused(f"has tables nested more than {DEEPEST} deep, as no checkpoint has")
    depths += [depth] * len(after)


def check_tree(top: Any) -> None:
    """Raise Refused if tables hold themselves, or unfold to too much by holding others repeatedly.

    Any code that walks through them would go on for ever, or nearly.
    """
    found: Dict[int, Tuple[int, int]] = {}  # all items in a table, and its depth
    within: Set[int] = set()
    ahead: List[Tuple[Any, bool]] = [(top, False)]
    while ahead:
        table, done = ahead.pop()
        name = id(table)
        if done:
            below = [found.get(id(part), (1, 0)) for part in parts_of(table)]
            items, depth = 1 + sum(b[0] for b in below), 1 + max((b[1] for b in below), default=0)
            if items > MOST_STEPS or depth > DEEPEST:
                raise Refused("has tables inside tables without end, as no checkpoint has")
            found[name] = (items, depth)
            within.remove(name)
        elif name in within:
            raise Refused("has a table that holds itself, as no checkpoint has")
        elif name not in found and parts_of(table):
            within.add(name)
            ahead.append((table, True))
            ahead += [(part, False) for part in parts_of(table)]


def parts_of(table: Any) -> List[Any]:
    """What a table, list, tuple, set or Namespace holds; nothing for anything else."""
    if isinstance(table, argparse.Namespace):
        table = vars(table)
    if isinstance(table, dict):
        return [*table, *table.values()]
    return list(table) if isinstance(table, (list, tuple, set)) else []
