"""Extracts texts from archives: tar (compressed or not), zip, gz inside; test sets from SGML.

Only the wanted files are written, under our own names: ``PART.LANG``. A wanted name that is there
twice is refused.
"""

import bz2
import contextlib
import gzip
import lzma
import re
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Any, Callable, Dict, Iterator, Sequence, Set, Tuple

from vaswani.common.errors import UserError
from vaswani.data.manifest import Part
from vaswani.data.test_sets import files_of

_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    NotImplementedError,  # zipfile: an unknown compression method
)
BLOCK = 1 << 20
#: how compressed archives begin, and what opens them
OPENERS: Dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\0": lzma.open,
    b"BZh": bz2.open,
}


class BadArchive(UserError):
    """An archive that must not be used; ``what`` continues a sentence that begins with "it"."""

    def __init__(self, archive: Path, what: str) -> None:
        super().__init__(f"{archive} {what}: remove it to have it downloaded again")
        self.what = what


def extract(part: Part, archive: Path, langs: Tuple[str, str], out: Path) -> None:
    """Write the two sides of a part as ``out/PART.LANG``, one sentence per line.

    Raises:
        BadArchive: the archive is damaged, or lacks a side.
    """
    langs_of = dict(zip(part.files(langs), langs, strict=True))
    targets: Dict[str, IO[bytes]] = {}
    with contextlib.ExitStack() as stack:
        for name, block in contents(archive, list(langs_of)):
            if name not in targets:
                path = out / f"{part.name}.{langs_of[name]}"
                targets[name] = stack.enter_context(open(path, "wb"))
            targets[name].write(block)


def check(part: Part, archive: Path, langs: Tuple[str, str]) -> None:
    """Read an archive as ``extract`` does, without writing; it raises the same errors."""
    for _ in contents(archive, part.files(langs)):
        pass


def contents(archive: Path, wanted: Sequence[str]) -> Iterator[Tuple[str, bytes]]:
    """The wanted files of an archive, in blocks: a .gz decompressed, the segments of an .sgm.

    An empty file gives one empty block.

    Raises:
        BadArchive: the archive is damaged, or lacks one of the files.
    """
    names_read: Set[str] = set()
    try:
        for name, stream in members(archive, wanted):
            if name in names_read:
                raise BadArchive(archive, f"is refused: '{name}' in it is there twice")
            names_read.add(name)
            yield name, b""
            yield from ((name, block) for block in blocks(name, stream))
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the system; without a number it is from bz2, about the data
        raise BadArchive(archive, f"is {kind_of_damage(archive, error)}") from None
    for name in wanted:
        if name not in names_read:
            raise BadArchive(archive, f"has no file {name} inside, although the manifest names it")


def kind_of_damage(archive: Path, error: BaseException) -> str:
    """What to say about an archive that does not open."""
    with open(archive, "rb") as stream:
        head = stream.read(512).lstrip().lower()
    if head.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "a web page instead of an archive"
    return f"damaged or cut short ({error})"


def members(archive: Path, wanted: Sequence[str]) -> Iterator[Tuple[str, IO[bytes]]]:
    """The wanted files of an archive, by their names without folders."""
    if zipfile.is_zipfile(archive):
        yield from zip_members(archive, wanted)
        return
    # "r|": read once from start to end, since seeking in a compressed file reads it again.
    # Decompressed here: tarfile would not check the checksum.
    with opened(archive) as stream, tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK) as tar:
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # it would keep a million of them
            name = PurePosixPath(member.name).name
            content = tar.extractfile(member) if name in wanted and member.isfile() else None
            if content is not None:
                yield name, content
        while stream.read(BLOCK):  # on to the checksum at the end
            pass


def opened(archive: Path) -> IO[bytes]:
    """An archive, decompressed if its first bytes say that it is compressed as a whole."""
    with open(archive, "rb") as stream:
        head = stream.read(6)
    for magic, opener in OPENERS.items():
        if head.startswith(magic):
            return opener(archive, "rb")
    return open(archive, "rb")


def zip_members(archive: Path, wanted: Sequence[str]) -> Iterator[Tuple[str, IO[bytes]]]:
    """The same for a zip."""
    with zipfile.ZipFile(archive) as packed:
        for item in packed.infolist():
            name = PurePosixPath(item.filename).name
            if name in wanted and not item.is_dir():
                with packed.open(item) as stream:
                    yield name, stream


def blocks(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    """One file of an archive: a .gz decompressed, the segments of an .sgm, others as they are."""
    if name.endswith(".sgm"):
        content = stream.read().decode("utf-8-sig")
        yield "".join(line + "\n" for line in segments(content)).encode()
        return
    source: Any = gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream
    yield from iter(lambda: source.read(BLOCK), b"")


def segments(sgml: str) -> Iterator[str]:
    """The sentences of a test set in WMT's SGML, with every run of spaces reduced to one.

    Entities such as ``&amp;`` stay as they are: sacreBLEU leaves them in its copies too.
    """
    for segment in _SEGMENT.findall(sgml):
        yield " ".join(segment.split())


def write_part(part: Part, archive: Path | None, langs: tuple[str, str], out: Path) -> None:
    """Extract a part from its archive, or get it from sacreBLEU, which checks its MD5.

    Raises:
        UserError: the archive is damaged, or sacreBLEU could not get the test set.
    """
    if archive:
        extract(part, archive, langs, out)
        return
    instead = "run the same command again, or take the test sets from the archives"
    sides = files_of(str(part.sacrebleu), "-".join(langs), instead)
    for lang, side in zip(langs, sides, strict=True):
        shutil.copyfile(side, out / f"{part.name}.{lang}")
