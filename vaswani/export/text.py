"""The sentences used to prove an export."""

from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from vaswani.common.errors import UserError
from vaswani.decoding.text_input import Windows
from vaswani.experiment.find import read_yaml
from vaswani.model_folder.folder import ModelFolder


@dataclass(frozen=True)
class ProofText:
    """Sentences to translate, and their translations if there are any."""

    name: str
    source: List[str]
    reference: Optional[List[str]]


def proof_text(
    path: Path, folder: ModelFolder, text: Optional[str], reference: Optional[str], lines: int
) -> ProofText:
    """The sentences for the proof: as given, or the test (else validation) text of the model's run.

    Raises:
        UserError: there are none, or the number of references differs.
    """
    if text is None and reference:
        raise UserError("--reference needs --text: give both")
    source_file, reference_file = (text, reference) if text else run_text(path, folder)
    source = read_lines(Path(source_file), lines)
    references = read_lines(Path(reference_file), lines) if reference_file else None
    if references is not None and len(references) != len(source):
        raise UserError(
            f"{source_file} has {len(source):,} lines and {reference_file} {len(references):,}: "
            "they are not a text and its translation"
        )
    kept = [number for number, line in enumerate(source) if line.strip()]
    if not kept:
        raise UserError(f"{source_file} holds no sentence: the proof needs at least one")
    return ProofText(
        name=str(source_file),
        source=[source[number] for number in kept],
        reference=None if references is None else [references[number] for number in kept],
    )


def run_text(path: Path, folder: ModelFolder) -> Tuple[str, Optional[str]]:
    """The test or validation text, both sides, of the run that a model folder belongs to.

    Raises:
        UserError: it belongs to none, or its text is gone.
    """
    config = path.absolute().parent / "config.yaml"
    trained = read_yaml(config) if config.is_file() else {}
    data = (trained.get("task") or {}).get("data")
    if data:
        prepared = Path(str(data).split(":")[0]).parent
        for place in (prepared, config.parent.parent.parent / prepared):
            for subset in ("test", "valid"):
                source, target = (place / "text" / f"{subset}.{lang}" for lang in folder.langs)
                if source.is_file() and target.is_file():
                    return str(source), str(target)
    raise UserError(
        f"{path} is not in a run whose text still exists: say with --text FILE what to translate "
        "for the proof (and with --reference FILE its translation)"
    )


def read_lines(path: Path, most: int) -> List[str]:
    """The first ``most`` lines of a text (0: all); UserError, with the place, if it is not text."""
    lines: List[str] = []
    for _, window in Windows([path], most or 10000):
        lines += window
        if most:
            break
    return lines


def check_judgeable(folder: ModelFolder, quantization: Optional[str], text: ProofText) -> None:
    """Raises UserError if only BLEU could judge an export, but there are no references."""
    if text.reference is not None:
        return
    gnmt = folder.config["generation"].get("length_penalty") == "gnmt"
    if quantization or gnmt:
        why = f"--quantization {quantization}" if quantization else "the length penalty gnmt"
        raise UserError(
            f"an export with {why} is judged by its BLEU: give the translation of {text.name} with "
            "--reference FILE"
        )
