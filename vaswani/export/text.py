"""The sentences used to prove an export."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.find import first_data_bin
from vaswani.data import text
from vaswani.folders.model_folder import ModelFolder
from vaswani.folders.prepared_text import TEXT, PreparedText
from vaswani.folders.run import Run


@dataclass(frozen=True)
class ProofText:
    """Sentences to translate."""

    name: str
    source: list[str]
    reference: list[str] | None

    def only(self, numbers: list[int]) -> "ProofText":
        """Return the sentences with these numbers, and their references."""
        reference = self.reference
        references = None if reference is None else [reference[number] for number in numbers]
        return ProofText(self.name, [self.source[number] for number in numbers], references)


def proof_text(
    path: Path, folder: ModelFolder, text: str | None, reference: str | None, lines: int
) -> ProofText:
    """Return the sentences for the proof: as given, or the test or validation text of the run.

    Raises:
        UserError: there are none, or the number of references differs.
    """
    if text is None and reference:
        raise UserError("--reference needs --text: give both")
    source, target = (text, reference) if text else run_text(path, folder)
    sentences = read_lines(Path(source), lines)
    references = read_lines(Path(target), lines) if target else None
    if references is not None and len(references) != len(sentences):
        raise UserError(
            f"{source} has {len(sentences):,} lines and {target} has {len(references):,}: give a "
            "text and its translation, line by line"
        )
    return ProofText(source, sentences, references)


def run_text(path: Path, folder: ModelFolder) -> tuple[str, str | None]:
    """Return the test or validation text, both sides, of the run that a model folder belongs to.

    Raises:
        UserError: it belongs to none, or its text is gone.
    """
    run = Run.of_model(path)
    data = (run.configuration().get("task") or {}).get("data")
    if data:
        prepared = first_data_bin(data).parent
        for place in (prepared, run.folder.parent.parent / prepared):
            for subset in ("test", "valid"):
                source, target = PreparedText(place).sides(TEXT, subset, folder.langs)
                if source.is_file() and target.is_file():
                    return str(source), str(target)
    raise UserError(
        f"{path} belongs to no run, or to a run whose text no longer exists: give sentences for "
        "the verification with --text FILE (and their translations with --reference FILE)"
    )


def read_lines(path: Path, most: int) -> list[str]:
    """Read the first lines of a text, or all; raise UserError if one is not text."""
    return list(islice(text.read_lines(path), most or None))
