"""The folder that ``vaswani prepare`` makes.

    raw/PART.LANG        what archives hold, if the text is from archives
    text/SPLIT.LANG      sentences; of trees, also text/SPLIT.ptb
    tok/SPLIT.LANG       tokens
    codes                what was learned: BPE's merges, or sentencepiece.bpe.model
    bpe/SPLIT.LANG       subwords
    data-bin/            subwords as numbers, and dict.LANG.txt
    recipe.yaml          how all this was made
    .stages/NAME.json    what each of these was made from

fairseq-preprocess makes a data-bin alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import Table, read_json
from vaswani.common.outputs import RecordedOutputs, is_as_recorded
from vaswani.common.yaml_tables import read_yaml
from vaswani.folders.data_bin import DATA_BIN, DataBin
from vaswani.folders.recipe import BPE, SENTENCEPIECE, Name, Recipe
from vaswani_transformer.io import moses

#: the stages of ``vaswani prepare``, in order; each makes a file or folder of this name, except
#: ``codes``, whose file SentencePiece names otherwise
STAGES = ("raw", "text", "tok", "codes", "bpe", DATA_BIN)
RAW, TEXT, TOK, CODES, SUBWORDS, _ = STAGES
RECIPE_FILE = "recipe.yaml"
SUBWORD_FILES: dict[Name, str] = {BPE: CODES, SENTENCEPIECE: "sentencepiece.bpe.model"}
#: the folder of records
RECORDS = ".stages"


@dataclass(frozen=True)
class StageRecord:
    """What a stage of ``vaswani prepare`` left of itself: ``.stages/NAME.json``."""

    #: a hash of all that its output depends on; None: it is to be made again
    key: str | None = ""
    #: the key of the stage before it, by name
    made_from: dict[str, str] = field(default_factory=dict)
    #: of each set, its counts (``pairs.Report``); other numbers, by what they count
    report: Table = field(default_factory=dict)

    @classmethod
    def from_json(cls, table: Table) -> "StageRecord":
        """Return the record in a table of JSON; an empty record for an empty table."""
        return cls(table.get("key", ""), table.get("made_from") or {}, table.get("report") or {})


@dataclass(frozen=True)
class PreparedText:
    """A folder of prepared text: its recipe, its sentences, its subword model, its data-bin.

    The files are read anew each time; they may be missing.
    """

    folder: Path

    @classmethod
    def around(cls, data_bin: Path) -> "PreparedText":
        """Return the folder that a data-bin is in."""
        return cls(data_bin.parent)

    @classmethod
    def of(cls, data_bin: Path) -> "PreparedText":
        """Return the folder with the recipe and the subword model of a data-bin.

        The archives of fairseq's models have the codes beside the dictionaries.
        """
        around = cls.around(data_bin)
        return around if around.has_recipe else cls(data_bin)

    @property
    def recipe_file(self) -> Path:
        """The path of ``recipe.yaml``."""
        return self.folder / RECIPE_FILE

    @property
    def has_recipe(self) -> bool:
        """Whether ``vaswani prepare`` made this folder."""
        return self.recipe_file.is_file()

    def recipe(self) -> Recipe | None:
        """Return the recipe of the text; None if ``vaswani prepare`` did not make it.

        Raises:
            UserError: the file was edited, or is of a later version.
        """
        recipe = self.recipe_as_written()
        if recipe is None:
            return None
        self.check_as_made([self.recipe_file])
        if recipe.text_rules not in moses.JOINERS:
            raise UserError(
                f"{self.recipe_file}: text_rules is {recipe.text_rules!r}, but this version of "
                f"vaswani-transformer knows 1 to {moses.VERSION}: prepare the text again, or use "
                "the version that wrote it"
            )
        return recipe

    def recipe_as_written(self) -> Recipe | None:
        """Return the recipe in the folder, whoever wrote it; None if there is none.

        Raises:
            UserError: it is not YAML.
        """
        if not self.has_recipe:
            return None
        names = {item.name for item in fields(Recipe)}  # earlier versions had others
        table = read_yaml(self.recipe_file)
        keys = {key: value for key, value in table.items() if key in names}
        return Recipe(**{"source_lang": "", "target_lang": "", **keys})

    def text_rules(self) -> int:
        """Return the version of the rules for this text; the newest if it has no recipe."""
        recipe = self.recipe()
        return recipe.text_rules if recipe else moses.VERSION

    def has_trees(self) -> bool:
        """Return whether this is the text of ``vaswani prepare trees``."""
        recipe = self.recipe()
        return bool(recipe and recipe.trees)

    # ---- the files --------------------------------------------------------------------------

    def stage(self, name: str) -> Path:
        """Return the folder, or the file, that a stage makes."""
        return self.folder / name

    def sides(self, stage: str, split: str, languages: tuple[str, str]) -> tuple[Path, Path]:
        """Return the two files of a set, or of a part of an archive, after a stage."""
        return sides_in(self.stage(stage), split, languages)

    def sentences(self, split: str, language: str) -> Path:
        """Return the sentences of a set in one language."""
        return self.stage(TEXT) / f"{split}.{language}"

    def tokens(self, split: str, language: str) -> Path:
        """Return the tokens of a set in one language."""
        return self.stage(TOK) / f"{split}.{language}"

    def trees(self, split: str) -> Path:
        """Return the trees of a set, one a line."""
        return trees_in(self.stage(TEXT), split)

    def subword_file(self, kind: Name) -> Path:
        """Return the BPE codes, or SentencePiece's model."""
        return self.folder / SUBWORD_FILES[kind]

    def subword_model(self) -> tuple[Name, Path | None]:
        """Return the kind of subwords, and the learned file if it exists."""
        recipe = self.recipe()
        kind: Name = recipe.subword if recipe else BPE
        path = self.subword_file(kind)
        return kind, path if path.is_file() else None

    @property
    def data_bin(self) -> DataBin:
        """The text as fairseq reads it."""
        return DataBin(self.stage(DATA_BIN))

    @property
    def has_data_bin(self) -> bool:
        """Whether there is a data-bin, from whatever program."""
        return self.data_bin.folder.is_dir()

    # ---- the records ------------------------------------------------------------------------

    @property
    def records(self) -> Path:
        """The folder of records."""
        return self.folder / RECORDS

    @property
    def lock(self) -> Path:
        """The lock of the command that is preparing text here."""
        return self.records / "lock"

    def outputs(self, name: str) -> RecordedOutputs:
        """Return a file or folder in this one, recorded in ``.stages/NAME.json``."""
        record = self.records / f"{name}.json"
        work = self.records / "part" / name
        return RecordedOutputs(self.folder, [name], record, work, shown=self.stage(name))

    def record(self, name: str) -> StageRecord:
        """Return the record of a file or folder in this one; empty if there is none."""
        return StageRecord.from_json(self.outputs(name).table())

    def has_complete_data_bin(self) -> bool:
        """Return whether the data-bin matches its record, even if it was made from other text."""
        outputs = self.outputs(DATA_BIN)
        return outputs.are_made(outputs.table().get("key", ""))

    def check(self, files: Iterable[Path]) -> None:
        """Raise UserError unless ``vaswani prepare`` made the files together.

        A stop between its stages, or an edited file, leaves some that do not belong to the others:
        codes of one vocabulary with the dictionary of another. Text that was prepared otherwise, or
        by earlier versions, has no record of it.

        Args:
            files: those in this folder that are used; others are not read
        """
        self.check_as_made(files)
        for path in sorted(self.records.glob("*.json")):
            for stage, key in StageRecord.from_json(read_json(path)).made_from.items():
                if self.record(stage).key != key:
                    raise UserError(
                        f"{self.folder / stage} was made again, but {self.folder / path.stem} was "
                        "not: run 'vaswani prepare' again, which continues where it stopped"
                    )

    def check_as_made(self, files: Iterable[Path]) -> None:
        """Raise UserError for a file that was changed later; files without a record may be."""
        for file in files:
            name = file.relative_to(self.folder).parts[0]
            recorded = self.outputs(name).files().get(file)
            if recorded and not is_as_recorded(file, *recorded):
                raise UserError(
                    f"{file} has changed since 'vaswani prepare' wrote it: run 'vaswani prepare' "
                    "again to recreate it"
                )


def sides_in(folder: Path, split: str, languages: tuple[str, str]) -> tuple[Path, Path]:
    """Return the two files of a set in the folder of a stage, which may still be in the making."""
    source, target = languages
    return folder / f"{split}.{source}", folder / f"{split}.{target}"


def trees_in(folder: Path, split: str) -> Path:
    """Return the file of a set's whole trees in the folder of the stage ``text``."""
    return folder / f"{split}.ptb"
