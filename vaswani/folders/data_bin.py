"""Binarised text, as ``vaswani prepare`` and fairseq-preprocess leave it, and fairseq reads it.

dict.LANG.txt                       the dictionaries
SPLIT.SRC-TGT.LANG.idx, .bin        the sentences of a set in one language, as numbers
"""

from dataclasses import dataclass
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import sha256_of

#: its folder's name in prepared text
DATA_BIN = "data-bin"
#: the sets of sentence pairs
SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class DataBin:
    """Binarised text, from ``vaswani prepare`` or fairseq-preprocess."""

    folder: Path

    @classmethod
    def at(cls, folder: Path) -> "DataBin":
        """Return the data-bin in a folder of prepared text, or the folder itself."""
        inside = folder / DATA_BIN
        return cls(inside if inside.is_dir() else folder)

    @property
    def name(self) -> str:
        """The name of the data: that of the folder around a folder ``data-bin``."""
        return self.folder.parent.name if self.folder.name == DATA_BIN else self.folder.name

    def dictionary(self, language: str) -> Path:
        """Return the dictionary of a language."""
        return self.folder / f"dict.{language}.txt"

    def dictionaries(self) -> list[Path]:
        """Return the dictionaries in the folder."""
        return sorted(self.folder.glob("dict.*.txt"))

    def pairs(self) -> list[tuple[str, str]]:
        """Return the language pairs (source, target) in the folder."""
        names = [path.name.split(".") for path in sorted(self.folder.glob("*.*-*.*.idx"))]
        pairs = [tuple(name[1].split("-")) for name in names if name[1].count("-") == 1]
        return [(source, target) for source, target in dict.fromkeys(pairs)]

    def subset_option(self) -> str:
        """Return `` --subset valid`` for ``vaswani generate`` without a test set, else nothing."""
        return "" if any(self.folder.glob("test.*.idx")) else " --subset valid"

    def side(self, split: str, pair: tuple[str, str], language: str) -> Path:
        """Return ``FOLDER/SPLIT.en-de.en``, whose ``.idx`` and ``.bin`` are one side of a set."""
        return self.folder / f"{split}.{'-'.join(pair)}.{language}"

    def prefix(self, split: str, source: str, target: str) -> Path:
        """Return ``FOLDER/SPLIT.en-de``, in the direction that was binarised.

        Raises:
            UserError: there is no such split.
        """
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            if (self.folder / f"{split}.{pair}.{source}.idx").is_file():
                return self.folder / f"{split}.{pair}"
        splits = sorted({path.name.split(".")[0] for path in self.folder.glob("*.idx")})
        advice = f": prepare it with --{split} too" if split in SPLITS else ""
        raise UserError(f"{self.folder} has no part '{split}', only {', '.join(splits)}{advice}")

    def fingerprint(self) -> dict[str, str]:
        """Return the data's fingerprint: SHA-256 of each dictionary, index and text, by name."""
        files = self.dictionaries()
        for kind in ("*.idx", "*.bin"):
            files += sorted(self.folder.glob(kind))
        return {path.name: sha256_of(path) for path in files}
