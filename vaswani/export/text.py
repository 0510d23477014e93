"""The sentences used to prove an export."""

from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.decoding.translated_file import Windows
from vaswani.experiment.find import first_data_bin, read_yaml
from vaswani.model_folder.folder import ModelFolder


@dataclass(frozen=True)
class ProofText:
    """Sentences to translate."""

    name: str
    source: list[str]
    reference: list[str] | None


def proof_text(
    path: Path, folder: ModelFolder, text: str | None, reference: str | None, lines: int
) -> ProofText:
    """The sentences for the proof: as given, or the test (else validation) text of the model's run.

    Raises:
        UserError: there are none, or the number of references differs.
    """
    if text is None and reference:
        raise UserError("--reference needs --text: give both")
    sides = (text, reference) if text else run_text(path, folder)
    source = read_lines(Path(sides[0]), lines)
    meant = read_lines(Path(sides[1]), lines) if sides[1] else None
    if meant is not None and len(meant) != len(source):
        raise UserError(
            f"{sides[0]} has {len(source):,} lines and {sides[1]} {len(meant):,}: they are not "
            "a text and its translation"
        )
    kept = [number for number, line in enumerate(source) if line.strip()]
    if not kept:
        raise UserError(f"{sides[0]} holds no sentence: the proof needs at least one")
    references = [meant[number] for number in kept] if meant is not None else None
    return ProofText(str(sides[0]), [source[number] for number in kept], references)


def run_text(path: Path, folder: ModelFolder) -> tuple[str, str | None]:
    """The test or validation text, both sides, of the run that a model folder belongs to.

    Raises:
        UserError: it belongs to none, or its text is gone.
    """
    config = path.absolute().parent / "config.yaml"
    trained = read_yaml(config) if config.is_file() else {}
    data = (trained.get("task") or {}).get("data")
    if data:
        prepared = first_data_bin(data).parent
        for place in (prepared, config.parent.parent.parent / prepared):
            for subset in ("test", "valid"):
                source, target = (place / "text" / f"{subset}.{lang}" for lang in folder.langs)
                if source.is_file() and target.is_file():
                    return str(source), str(target)
    raise UserError(
        f"{path} is not in a run whose text still exists: say with --text FILE what to translate "
        "for the proof (and with --reference FILE its translation)"
    )


def read_lines(path: Path, most: int) -> list[str]:
    """The first lines of a text; UserError, with the place, if it is not text."""
    windows = Windows([path], most or 10000)
    lines: list[str] = []
    for _, window in windows:
        lines += window
        if most:
            break
    return lines
