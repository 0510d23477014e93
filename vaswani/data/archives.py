"""The archives of the public corpora, and the texts in them.

``configs/data/archives/NAME.yaml`` states each once:

    parts:
      europarl-v7:
        sources:                          # primary, then mirrors
          - {url: https://…/a.tgz, bytes: 657632379, sha256: 0224…}
        members:                          # names inside, without folders: source, target
          en-de: [europarl-v7.de-en.en, europarl-v7.de-en.de]

They are downloaded from the primary URL, or from a mirror; what broke off is continued. A file
under its own name is complete; ``.NAME.part`` is still incomplete.

Archives are tar (compressed or not) or zip. Only the wanted files are written: a .gz decompressed,
the segments of an .sgm.
"""

import gzip
import re
import shutil
import stat
import sys
import tarfile
import time
import zipfile
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import requests
import urllib3

from vaswani.common.errors import UserError, nearest
from vaswani.common.files import locked, move, sha256_of, writing
from vaswani.common.progress import bar
from vaswani.common.yaml_tables import read_yaml
from vaswani.data.text import DAMAGED
from vaswani_transformer.io.typed import read_record

_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
#: zipfile raises RuntimeError for what is encrypted or compressed in a way that it cannot read;
#: UnicodeDecodeError is a test set's, in another encoding than UTF-8
BROKEN = (*DAMAGED, tarfile.TarError, zipfile.BadZipFile, RuntimeError, UnicodeDecodeError)
_SHA256 = re.compile("[0-9a-f]{64}")
BLOCK = 1 << 20
#: tries per URL, seconds before the second one (doubled each time), seconds without an answer
TRIES, PAUSE, TIMEOUT = 5, 1.0, 60.0
FAILURES = (requests.RequestException, urllib3.exceptions.HTTPError)


@dataclass(frozen=True)
class Source:
    """One URL of an archive, with its size in bytes and SHA-256 if known."""

    url: str
    bytes: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a value that no archive can have."""
        address = urlsplit(self.url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"url is {self.url!r}, but has to begin with https:// or http://")
        check_file_name(self.name, f"url {self.url!r} ends in")
        if self.sha256 is not None and not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"sha256 is {self.sha256!r}, not 64 of the digits 0-9 and a-f")

    @property
    def name(self) -> str:
        """The file's name."""
        return unquote(urlsplit(self.url).path).rpartition("/")[2]


@dataclass(frozen=True)
class Part:
    """A corpus or test set: where its archive is, and which files inside are its two sides."""

    name: str
    sources: tuple[Source, ...]
    #: by pair, such as ``en-de``: the names of source and target inside, without folders
    members: dict[str, list[str]]

    def __post_init__(self) -> None:
        """Raise ValueError unless it has sources, two sides, and names of files in one folder."""
        check_file_name(self.name, "a part is named")
        if not self.sources:
            raise ValueError("sources is empty: give at least one url")
        for pair, names in self.members.items():
            if len(set(names)) != 2 or len(names) != 2:
                raise ValueError(
                    f"members of {pair} are {', '.join(names) or 'none'}: give two files, of "
                    "source and target"
                )
            for name in names:
                check_file_name(name, f"members of {pair} has")

    def files(self, langs: tuple[str, str]) -> list[str]:
        """Return the names of one pair's files; raise UserError if the part lacks the pair."""
        pair = "-".join(langs)
        if pair not in self.members:
            raise UserError(
                f"part '{self.name}' of the manifest has the languages {', '.join(self.members)}, "
                f"not {pair}: give languages that it has"
            )
        return self.members[pair]


@dataclass(frozen=True)
class PartTable:
    """What a manifest says of a part."""

    sources: list[dict[str, Any]]
    members: dict[str, list[str]]


@dataclass(frozen=True)
class Manifest:
    """What a manifest says: its parts, by name."""

    parts: dict[str, Any]


def check_file_name(name: str, what: str) -> None:
    """Raise ValueError unless a name is that of a file directly in a folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"{what} {name!r}, which is not a file name: leave out folders")


def read_parts(manifest: Path, names: list[str]) -> list[Part]:
    """Return the named parts of a manifest, in order.

    Raises:
        UserError: the manifest does not have one, or one of its parts cannot be.
    """
    table = read_yaml(manifest)
    try:
        entries = read_record(Manifest, table, str(manifest)).parts
    except ValueError as error:
        raise UserError(str(error)) from None
    parts = {name: read_part(name, entry, manifest) for name, entry in entries.items()}
    check_archives_differ(parts, manifest)
    for name in names:
        if name not in parts:
            raise UserError(f"{manifest} has no part '{name}'{nearest(name, list(parts))}")
    return [parts[name] for name in names]


def read_part(name: str, table: object, manifest: Path) -> Part:
    """Return one part of a manifest; raise UserError if a value in it is missing or invalid."""
    where = f"{manifest}: part '{name}'"
    try:
        entry = read_record(PartTable, table, where)
        sources = [read_record(Source, source, f"{where}: source") for source in entry.sources]
        return Part(name, tuple(sources), entry.members)
    except ValueError as error:
        problem = str(error)
        raise UserError(problem if problem.startswith(where) else f"{where}: {problem}") from None


def check_archives_differ(parts: dict[str, Part], manifest: Path) -> None:
    """Raise UserError for two archives of the same name, which would replace each other."""
    archives: dict[str, tuple[str, Source]] = {}
    for part in parts.values():
        for source in part.sources:
            name, other = archives.setdefault(source.name, (part.name, source))
            is_same = source.url == other.url or source.sha256 == other.sha256 is not None
            if name != part.name and not is_same:
                raise UserError(
                    f"{manifest}: parts '{name}' and '{part.name}' both have an archive "
                    f"{source.name}, and both would be downloaded to one file: if they are the "
                    "same archive, give its sha256 in both parts; otherwise rename one of them"
                )


def extract(part: Part, archive: Path, langs: tuple[str, str], out: Path) -> None:
    """Write the two sides of a part as ``out/PART.LANG``, one sentence per line.

    Raises:
        UserError: the archive is damaged, or lacks a side.
    """
    missing = dict(zip(part.files(langs), langs, strict=True))
    problem = ""
    try:
        for name, stream in members(archive, missing):
            with open(out / f"{part.name}.{missing.pop(name)}", "wb") as target:
                copy(name, stream, target)
    except BROKEN as error:
        problem = f"is damaged, or not an archive ({error})"
    if problem:
        raise UserError(f"{archive} {problem}: remove it to have it downloaded again")
    if missing:
        raise UserError(
            f"{archive} has no file {', '.join(missing)}, which the manifest of archives lists "
            "(links and folders in an archive are not read): remove the archive to have it "
            "downloaded again, or correct the manifest"
        )


def members(archive: Path, names: Container[str]) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name, without folders, and the content of each wanted file of an archive.

    A folder or a link with a wanted name is skipped: a link may lead anywhere.

    Args:
        archive: tar or zip
        names: of the files; a name may be removed once it was yielded
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for item in packed.infolist():
                name = PurePosixPath(item.filename).name
                if name in names and not item.is_dir() and not is_zipped_link(item):
                    yield name, packed.open(item)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            name = PurePosixPath(member.name).name
            stream = tar.extractfile(member) if name in names and member.isfile() else None
            if stream:
                yield name, stream
        while tar.fileobj and tar.fileobj.read(BLOCK):  # on to the checksum at the end
            pass


def is_zipped_link(item: zipfile.ZipInfo) -> bool:
    """Return whether a member of a zip is a symbolic link: its content is a path."""
    return stat.S_ISLNK(item.external_attr >> 16)


def copy(name: str, stream: IO[bytes], target: IO[bytes]) -> None:
    """Write one file of an archive."""
    if name.endswith(".sgm"):
        lines = segments(stream.read().decode("utf-8-sig"))
        target.write("".join(line + "\n" for line in lines).encode())
    else:
        source: Any = gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream
        shutil.copyfileobj(source, target, BLOCK)


def segments(sgml: str) -> Iterator[str]:
    """Yield the sentences of a test set in WMT's SGML, with every run of spaces reduced to one.

    Entities such as ``&amp;`` stay as they are: sacreBLEU leaves them in its copies too.
    """
    for segment in _SEGMENT.findall(sgml):
        yield " ".join(segment.split())


# ---- downloads ---------------------------------------------------------------------------------


def fetch(part: Part, folder: Path) -> Path:
    """Return the archive of a part in ``folder``, checked; downloaded unless it is there.

    Raises:
        UserError: an existing file is wrong, or no URL gives the right one.
    """
    for source in part.sources:
        path = folder / source.name
        if path.is_file():
            check(source, path)
            return path
    reasons = []
    for source in part.sources:
        path = folder / source.name
        aside = folder / f".{source.name}.part"
        lock = folder / f".{source.name}.lock"
        busy = locked(lock, f"{path} is being downloaded")
        try:
            with writing(path), busy:
                receive_all(source, aside)
                check(source, aside)
                move(aside, path)
                return path
        except FAILURES as error:
            reasons.append(f"{source.url}: {error}")
        except WrongFile as error:
            aside.unlink()
            reasons.append(f"{source.url}: {error}")
    raise UserError(
        f"{part.name} could not be downloaded ({'; '.join(reasons)}): run the same command again "
        f"to continue, or put {part.sources[0].name} into {folder} by hand"
    )


class WrongFile(UserError):
    """A file is not the one that the manifest describes."""


def check(source: Source, path: Path) -> None:
    """Raise WrongFile if a file has another size or SHA-256 than the manifest says."""
    size = path.stat().st_size
    digest = sha256_of(path)
    if source.bytes not in (None, size) or source.sha256 not in (None, digest):
        raise WrongFile(
            f"{path} has {size:,} bytes and SHA-256 {digest} instead of {source.bytes or 0:,} and "
            f"{source.sha256}: remove the file to have it downloaded"
        )


def receive_all(source: Source, aside: Path) -> None:
    """Download a file into ``aside`` completely, over several connections if needed."""
    for attempt in range(1, TRIES + 1):
        try:
            receive(source, aside)
            return
        except FAILURES as error:
            reply = getattr(error, "response", None)
            if attempt == TRIES or (reply is not None and reply.status_code < 500):
                raise
            print(f"{source.name}: {error} (trying again)", file=sys.stderr)
            time.sleep(PAUSE * 2 ** (attempt - 1))


def receive(source: Source, aside: Path) -> None:
    """Download over one connection: the rest of the file if the server can, else the whole file."""
    at = aside.stat().st_size if aside.is_file() else 0
    if at and at == source.bytes:  # an earlier command ended before its check
        return
    # identity: the archive's own bytes, not recompressed by the server
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={at}-"} if at else {})}
    with requests.get(source.url, headers=headers, stream=True, timeout=TIMEOUT) as reply:
        if reply.status_code == 416:
            aside.unlink()
            raise requests.ConnectionError(
                "the server did not continue the partial download, so the whole file is needed "
                "again"
            )
        reply.raise_for_status()
        at = at if reply.status_code == 206 else 0
        length = reply.headers.get("Content-Length")
        whole = at + int(length) if length else None
        with (
            open(aside, "ab" if at else "wb") as stream,
            bar(total=whole, initial=at, desc=source.name, unit="B", unit_scale=True) as shown,
        ):
            for block in reply.raw.stream(BLOCK, decode_content=False):
                stream.write(block)
                shown.update(len(block))
    if whole not in (None, aside.stat().st_size):
        raise requests.ConnectionError("the connection ended early")
