"""Whether the translations of a subset are there, and are as a configuration says."""

from pathlib import Path
from typing import Any

from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of
from vaswani.common.outputs import RecordedOutputs
from vaswani.common.yaml_tables import Sections
from vaswani.folders.run import Run, Translations
from vaswani.folders.search_options import BEAM_OPTIONS, flag


def translation_outputs(translations: Translations) -> RecordedOutputs:
    """Return the files that one decoding makes, written together or not at all."""
    folder = translations.folder
    files = (translations.tokens, translations.text, translations.log)
    return RecordedOutputs(
        folder,
        [path.name for path in files],
        record=translations.record_file,
        work=folder / f".{translations.subset}.part",
        shown=translations.record_file,
        lock=folder / ".lock",
        busy=f"{folder} is being written",
    )


def check_replaceable(results: RecordedOutputs) -> None:
    """Raise UserError if the folder has files of these names from another source."""
    unknown = results.unknown_file()
    if unknown:
        raise UserError(
            f"{unknown} exists and was not made by 'vaswani generate', which would replace it: "
            "give another folder with --out, or move the file away"
        )


# ---- whether they are as a configuration says ---------------------------------------------------


def decoding(config: Sections) -> dict[str, Any]:
    """Return the part of a configuration about decoding: the search's options, and the data."""
    search = {name: config["generation"][name] for name in BEAM_OPTIONS}
    penalty = config["task"].get("length_penalty") or "fairseq"
    return {**search, "length_penalty": penalty, "data": str(config["task"]["data"])}


def decoding_options(run: Run, config: Sections) -> list[str]:
    """Return the options of 'vaswani generate' that decode as a configuration says."""
    trained = decoding(run.configuration())
    requested = decoding(config)
    words = []
    for name, value in requested.items():
        if value != trained[name]:
            words += [flag(name), str(value)]
    return words


def is_decoded(run: Run, checkpoint: Path, config: Sections, subset: str = "test") -> bool:
    """Return whether a run's translations are scored, and by this checkpoint as a configuration
    says.
    """
    translations = run.translations(subset)
    record = translations.record()
    if record is None or record.facts != translations.scores().get("translation"):
        return False
    digest = record.sha256.get(checkpoint.name)  # earlier versions have none
    if digest and checkpoint.is_file() and digest != sha256_of(checkpoint):
        return False
    # earlier records lack the first
    used = {"no_repeat_ngram_size": 0, **record.facts, **(record.options or {})}
    requested = {**decoding(config), "precision": "fp32"}
    same = all(used.get(name) == value for name, value in requested.items())
    return same and Path(record.checkpoint).name == checkpoint.name
