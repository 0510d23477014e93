"""A packed model: a folder that can be copied anywhere and is all that translating takes.

    config.json         the model's sizes, how text is prepared, how to decode, where it comes from
    model.safetensors   the parameters; matrices that are shared are stored once
    dict.LANG.txt       the dictionaries, as fairseq has them
    bpecodes            the BPE codes, as subword-nmt has them (none if words are not split)
    README.md           a model card, which may be edited
    SHA256SUMS          a hash of every file, as ``sha256sum --check`` takes it

Nothing in it is a program or a pickle. All but the model card is checked when it is read.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterable, NamedTuple, Tuple

from vaswani.errors import UserError
from vaswani.experiment import is_run, run_folders
from vaswani.files import read_json, sha256_of
from vaswani.outputs import aside, check_folder, put_in_place, writing
from vaswani.packed.text_recipe import TextRecipe, recipe_of

FORMAT, FORMAT_VERSION = "vaswani-transformer", 1
CONFIG, WEIGHTS, CODES, CARD, SUMS = (
    "config.json",
    "model.safetensors",
    "bpecodes",
    "README.md",
    "SHA256SUMS",
)
#: what 'vaswani export' leaves beside the files of its target
EXPORT = "vaswani.json"
#: sections that every config.json has
SECTIONS = ("architecture", "text", "generation", "origin")
#: how files end that are pickles, or archives of them
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
#: parameters that are the first one's where the matrices are shared (3.4)
SHARED = (
    "encoder.embedding.tokens.weight",
    "decoder.embedding.tokens.weight",
    "decoder.output_projection.weight",
)


class Kind(NamedTuple):
    """A kind of folder: its table, what that says as its format, the command that makes it."""

    table: str
    format: str
    command: str


PACKED = Kind(CONFIG, FORMAT, "vaswani pack")


@dataclass(frozen=True)
class ModelFolder:
    """A folder that was read and found whole."""

    path: Path
    #: what config.json says
    config: Dict[str, Any]
    #: SHA-256 by the name of the file
    sums: Dict[str, str]
    #: how text is prepared
    recipe: TextRecipe

    @property
    def langs(self) -> Tuple[str, str]:
        """Source, then target."""
        return self.recipe.langs

    def dictionary(self, lang: str) -> Path:
        """The dictionary of a language."""
        return self.path / f"dict.{lang}.txt"

    def parameters(self) -> Dict[str, Any]:
        """The state dict of the model, shared matrices under all their names.

        Raises:
            UserError: the file is none of safetensors'.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            state: Dict[str, Any] = load_file(str(self.path / WEIGHTS))
        except SafetensorError as error:
            raise UserError(f"{self.path / WEIGHTS} is no safetensors file ({error})") from None
        if not self.config["architecture"].get("untie_embeddings"):
            for name in SHARED[1:]:
                state[name] = state[SHARED[0]]
        return state


# ---- reading --------------------------------------------------------------------------------


def read_folder(path: Path) -> ModelFolder:
    """A model folder, every file that is used compared with its hash.

    Raises:
        UserError: it is none, of another format version, incomplete or altered, or holds a pickle.
    """
    config = read_config(path)
    if not (path / SUMS).is_file():
        raise UserError(f"{path} is incomplete: {SUMS} is missing; copy the folder again")
    sums = read_sums(path / SUMS)
    refuse_pickles(path)
    recipe = recipe_of(config["text"], str(path / CONFIG))
    needed = [CONFIG, WEIGHTS, *(f"dict.{lang}.txt" for lang in recipe.langs)]
    check_files(path, needed + ([CODES] if recipe.bpe else []), sums, "pack the model again")
    return ModelFolder(path, config, sums, recipe)


def check_files(path: Path, names: Iterable[str], sums: Dict[str, str], remedy: str) -> None:
    """Raises UserError for a file of a folder that is missing, or has not its hash in ``sums``."""
    for name in names:
        if not (path / name).is_file():
            raise UserError(f"{path} is incomplete: {name} is missing; copy the folder again")
        if sums.get(name) != sha256_of(path / name):
            raise UserError(
                f"{path / name} was altered or damaged: its hash is not the one in {SUMS}; copy "
                f"the folder again, or {remedy}"
            )


def read_config(path: Path) -> Dict[str, Any]:
    """config.json of a folder; UserError, as :func:`read_folder`."""
    check_is_folder(path)
    if (path / EXPORT).is_file():
        raise UserError(
            f"{path} was made by 'vaswani export', and is for 'vaswani translate' or its target "
            "alone: give the model folder that it was made of"
        )
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} has no {CONFIG}: it is no model folder, or not all of one")
    config = read_json(path / CONFIG)
    version = config.get("format_version")
    if config.get("format") != FORMAT or not isinstance(version, int):
        raise UserError(f"{path / CONFIG} was not written by 'vaswani pack', or is damaged")
    if version != FORMAT_VERSION:
        advice = "get a newer one" if version > FORMAT_VERSION else "pack the model again"
        raise UserError(
            f"{path} is of format version {version}, but this vaswani-transformer reads version "
            f"{FORMAT_VERSION}: {advice}"
        )
    missing = [name for name in SECTIONS if not isinstance(config.get(name), dict)]
    if missing:
        raise UserError(f"{path / CONFIG} was altered: it has no section '{missing[0]}'")
    return config


def check_is_folder(path: Path) -> None:
    """Raises UserError, with the way to a model folder, for a checkpoint, a run, or nothing."""
    if path.is_file():
        if path.suffix == ".pt":
            raise UserError(
                f"{path} is a checkpoint and no model folder: 'vaswani pack {path} --data DIR "
                "--out MODEL' makes one of it"
            )
        raise UserError(f"{path} is a file and no model folder, which 'vaswani pack' makes")
    for run in run_folders(str(path)):
        if is_run(run) and not (run / CONFIG).is_file():
            packed = run / "model"
            if (packed / CONFIG).is_file():
                raise UserError(f"{path} is a run; its model folder is {packed}: give that")
            raise UserError(f"{path} is a run and no model folder: 'vaswani pack {path}' makes one")
    if not path.is_dir():
        raise UserError(f"there is no model folder {path}: 'vaswani pack RUN' makes one")


def read_sums(path: Path) -> Dict[str, str]:
    """The hashes in a file of ``sha256sum``'s form, by name; UserError if it is none."""
    found = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, separator, name = line.partition("  ")
        if len(digest) != 64 or not separator or "/" in name:
            raise UserError(f"{path} was altered or damaged: '{line[:80]}' is no hash and name")
        found[name] = digest
    return found


def refuse_pickles(folder: Path, known: Collection[str] = ()) -> None:
    """Raises UserError where a folder holds what could run code when it is loaded.

    Args:
        folder: looked through
        known: names that are none, whatever their ends: only their content counts
    """
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        with open(path, "rb") as stream:
            start = stream.read(2)
        named = path.suffix in _PICKLES and path.name not in known
        if named or start[:1] == b"\x80" and start[1:] in b"\2\3\4\5":
            raise UserError(
                f"{path} is a pickle, which can run a program when it is loaded, and has no place "
                "in a model folder: nothing was loaded; remove it if you know where it comes from"
            )


# ---- writing --------------------------------------------------------------------------------


def write_folder(folder: Path, fill: Callable[[Path], None], kind: Kind = PACKED) -> None:
    """Make a model folder: all of it, or nothing. One that was packed before is replaced.

    Args:
        folder: where to
        fill: writes everything but the hashes into a folder aside
        kind: of the folder

    Raises:
        UserError: there is something that was not packed, or changed since; the disk is full.
    """
    check_folder(folder.parent)
    check_replaceable(folder, kind)
    with writing(folder), aside(folder) as part:
        fill(part)
        names = sorted(path.name for path in part.iterdir())
        with open(part / SUMS, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(f"{sha256_of(part / name, sync=True)}  {name}\n" for name in names)
            stream.flush()
            os.fsync(stream.fileno())
        put_in_place(part, folder)


def check_replaceable(folder: Path, kind: Kind = PACKED) -> None:
    """Raises UserError unless nothing is at a path, or exactly what was packed there."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    there = changed_since_packed(folder, kind)
    if there:
        name, change = next(iter(there.items()))
        raise UserError(
            f"{folder} is not as '{kind.command}' leaves a folder ({name} {change}), and would be "
            "replaced: give another one with --out, or move it away"
        )


def changed_since_packed(folder: Path, kind: Kind = PACKED) -> Dict[str, str]:
    """What of a folder was not packed, or changed since: by its name, what of it."""
    if folder.is_symlink() or not folder.is_dir():
        return {folder.name: "is no folder"}
    table = read_json(folder / kind.table)
    if table.get("format") != kind.format or not (folder / SUMS).is_file():
        return {kind.table: "is missing, or another's"}
    sums = read_sums(folder / SUMS)
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name not in sums and path.name != SUMS:
            found[path.name] = "was added"
        elif path.name != SUMS and (not path.is_file() or sha256_of(path) != sums[path.name]):
            found[path.name] = "was changed"
    return found


def write_weights(path: Path, state: Dict[str, Any], tied: bool) -> None:
    """Write parameters; of shared matrices the first."""
    from safetensors.torch import save

    kept = {
        name: value.detach().contiguous().clone()
        for name, value in state.items()
        if not (tied and name in SHARED[1:])
    }
    with open(path, "wb") as stream:  # the library's save_file has errors without a number
        stream.write(save(kept, metadata={"format": "pt"}))


def write_json(path: Path, table: Dict[str, Any]) -> None:
    """Write a table as JSON that people can read, too."""
    with open(path, "w", encoding="utf-8", newline="\n") as stream:
        json.dump(table, stream, indent=2, ensure_ascii=False)
        stream.write("\n")
