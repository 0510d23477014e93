"""The archives of the public corpora: ``configs/data/archives/NAME.yaml``, each stated once.

parts:
  europarl-v7:
    sources:                          # primary, then mirrors
      - {url: https://…/a.tgz, bytes: 657632379, sha256: 0224…}
    members:                          # names inside, without folders: source, target
      en-de: [europarl-v7.de-en.en, europarl-v7.de-en.de]
    sacrebleu: wmt14/full             # a test set sacreBLEU has too
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional, Tuple
from urllib.parse import unquote, urlsplit

from vaswani.common.errors import UserError, nearest
from vaswani.experiment.find import config_folders, read_yaml


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
        UserError: there is no such manifest.
    """
    parts = {}
    for key, entry in read_yaml(find_manifest(name))["parts"].items():
        sources = tuple(Source(**source) for source in entry["sources"])
        parts[key] = Part(key, sources, entry["members"], entry.get("sacrebleu"))
    return parts


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
