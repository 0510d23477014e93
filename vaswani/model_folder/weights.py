"""What a file of weights says in its header: the parameters' names, shapes and types."""

from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Tuple

from vaswani.common.errors import UserError

#: safetensors' names of the types that a parameter may have
FLOATS = ("F64", "F32", "F16", "BF16")


class Stored(NamedTuple):
    """A parameter without its numbers."""

    shape: Tuple[int, ...]
    #: safetensors' name: F32
    type: str


def stored_in(path: Path) -> Dict[str, Stored]:
    """The parameters in a file by name; their numbers are not read.

    Raises:
        UserError: it is not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as stored:
            parts = {name: stored.get_slice(name) for name in stored.keys()}  # noqa: SIM118
            return {n: Stored(tuple(p.get_shape()), p.get_dtype()) for n, p in parts.items()}
    except SafetensorError as error:
        raise UserError(f"{path} is not a safetensors file ({error})") from None


def refuse_others(
    stored: Mapping[str, Stored], expected: Mapping[str, Tuple[int, ...]], path: Path, by: str
) -> None:
    """Check stored parameters.

    Args:
        stored: what the file has
        expected: the shapes by name
        path: the file
        by: what describes the model

    Raises:
        UserError: other names or shapes, or a type that is not a floating-point one.
    """
    wrong = f"{path} is not the model that {by} describes"
    for name in sorted(set(stored) ^ set(expected)):
        which = "has no place in it" if name in stored else "is missing"
        raise UserError(f"{wrong}: {name} {which}; pack the model again")
    for name, (shape, kind) in stored.items():
        if shape != expected[name]:
            sizes = " × ".join(map(str, shape)), " × ".join(map(str, expected[name]))
            raise UserError(f"{wrong}: {name} is {sizes[0]}, not {sizes[1]}; pack the model again")
        if kind not in FLOATS:
            raise UserError(f"{wrong}: {name} has numbers of type {kind}; pack the model again")
