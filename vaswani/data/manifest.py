"""The archives of the public corpora: ``configs/data/archives/NAME.yaml``, each stated once.

parts:
  europarl-v7:
    sources:                          # primary, then mirrors
      - {url: https://…/a.tgz, bytes: 657632379, sha256: 0224…}
    members:                          # names inside, without folders: source, target
      en-de: [europarl-v7.de-en.en, europarl-v7.de-en.de]
    sacrebleu: wmt14/full             # a test set sacreBLEU has too
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import unquote, urlsplit

from vaswani.common.errors import UserError, nearest
from vaswani.experiment.find import config_folders, read_yaml

#: valid names of a part (also used for its text) and an archive: no path, nothing hidden
_NAME = re.compile(r"\w[\w.+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Source:
    """One URL of an archive, with its size in bytes and SHA-256 if known."""

    url: str
    bytes: Optional[int] = None
    sha256: Optional[str] = None

    @property
    def name(self) -> str:
        """The file's name."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


@dataclass(frozen=True)
class Part:
    """A corpus or test set: where its archive is, and which files inside are its two sides."""

    name: str
    sources: Tuple[Source, ...]
    #: by pair, such as ``en-de``: the names of source and target inside, without folders
    members: Dict[str, List[str]]
    #: sacreBLEU's name for it
    sacrebleu: Optional[str] = None

    def files(self, langs: Tuple[str, str]) -> Tuple[str, str]:
        """The names inside for one pair, in the requested direction.

        Raises:
            UserError: the part has no such pair.
        """
        names = self.members.get("-".join(langs))
        if names is None:
            held = ", ".join(self.members)
            raise UserError(f"part '{self.name}' has no pair {'-'.join(langs)}; it has: {held}")
        return names[0], names[1]


def find_manifest(name: str) -> Path:
    """The file of a manifest: a path, or a name in ``configs/data/archives``.

    Raises:
        UserError: there is none.
    """
    if Path(name).is_file():
        return Path(name)
    for folder in config_folders("data"):
        path = folder / "archives" / f"{name}.yaml"
        if path.is_file():
            return path
    raise UserError(f"there is no manifest of archives '{name}' in configs/data/archives")


def read_manifest(name: str) -> Dict[str, Part]:
    """The parts of a manifest, by name.

    Raises:
        UserError: there is no such manifest, or an entry is invalid.
    """
    path = find_manifest(name)
    parts = read_yaml(path).get("parts")
    if not isinstance(parts, dict) or not parts:
        raise UserError(f"{path}: expected 'parts:', found none")
    return {str(key): part_from(str(key), entry, path) for key, entry in parts.items()}


def part_from(name: str, entry: Any, path: Path) -> Part:
    """A checked entry."""
    where = f"{path}, part '{name}'"
    if not isinstance(entry, dict) or set(entry) - {"sources", "members", "sacrebleu"}:
        raise UserError(f"{where}: it should say 'sources', 'members' and perhaps 'sacrebleu'")
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{where}: files are named after it, so only letters, digits, _ . - are allowed"
        )
    sources = [source_from(item, where) for item in entry.get("sources") or []]
    if not sources:
        raise UserError(f"{where}: 'sources' is missing: the archive's URLs")
    members = entry.get("members")
    if not isinstance(members, dict) or not all(
        isinstance(names, list) and len(names) == 2 for names in members.values()
    ):
        raise UserError(f"{where}: 'members' should give two names for each pair")
    for names in members.values():
        plain = all(isinstance(one, str) and one and "/" not in one for one in names)
        if not plain or names[0] == names[1]:
            raise UserError(f"{where}: {names!r} are not two file names without folders")
    return Part(name, tuple(sources), members, entry.get("sacrebleu"))


def source_from(item: Any, where: str) -> Source:
    """A checked source."""
    if not isinstance(item, dict) or set(item) - {"url", "bytes", "sha256"} or "url" not in item:
        raise UserError(f"{where}: a source should say 'url' and perhaps 'bytes' and 'sha256'")
    source = Source(**item)
    if urlsplit(str(source.url)).scheme not in ("http", "https") or not source.name:
        raise UserError(f"{where}: '{source.url}' is not the URL of a file (http or https)")
    if not _NAME.fullmatch(source.name):
        raise UserError(f"{where}: '{source.name}' cannot be used as a file name")
    if source.bytes is not None and (not isinstance(source.bytes, int) or source.bytes < 1):
        raise UserError(f"{where}: bytes of {source.name} is {source.bytes!r}, not a size")
    if source.sha256 is not None and not _SHA256.fullmatch(str(source.sha256)):
        raise UserError(f"{where}: sha256 of {source.name} is not 64 hexadecimal digits")
    return source


def choose(manifest: Dict[str, Part], names: List[str], where: str) -> List[Part]:
    """The named parts, in order.

    Raises:
        UserError: one is not in the manifest.
    """
    for name in names:
        if name not in manifest:
            raise UserError(
                f"{where}: there is no part '{name}'{nearest(name, list(manifest))} in the "
                f"manifest; it has: {', '.join(manifest)}"
            )
    return [manifest[name] for name in names]
