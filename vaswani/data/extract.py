"""Extracts texts from archives: tar (compressed or not), zip, gz inside; test sets from SGML.

Only the wanted files are written, under our own names. The whole archive is refused if it has a
link, a device, a name that leads out of its folder, a wanted name twice, or far more content than
compressed text can have: the corpora have none of these.
"""

import bz2
import contextlib
import gzip
import lzma
import re
import shutil
import stat
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
#: text compresses 3 to 10 times; what expands to more than this, times its size, is not text
MOST_TIMES = 100
#: bytes: what any archive may expand to, a test set (read in one piece), a header
ALWAYS_FINE, LONGEST_TEST_SET, LONGEST_HEADER = 64 << 20, 256 << 20, 1 << 20
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
        BadArchive: the archive is damaged, unsafe, or lacks a side.
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
        BadArchive: the archive is damaged, unsafe, or lacks one of the files.
    """
    names_read: Set[str] = set()
    try:
        for name, stream in members(archive, wanted):
            if name in names_read:
                raise unsafe_member(archive, name, "is there twice")
            names_read.add(name)
            yield name, b""
            yield from ((name, block) for block in blocks(archive, name, stream))
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the system; without a number it is from bz2, about the data
        raise BadArchive(archive, f"is {kind_of_damage(archive, error)}") from None
    except UnicodeDecodeError as error:
        raise BadArchive(archive, f"holds a test set that is not UTF-8 ({error})") from None
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
    """The wanted files of an archive, by their names without folders; every name is checked."""
    most = max(ALWAYS_FINE, MOST_TIMES * archive.stat().st_size)
    if zipfile.is_zipfile(archive):
        yield from zip_members(archive, wanted, most)
        return
    # "r|": read once from start to end, since seeking in a compressed file reads it again.
    # Decompressed here: tarfile would not check the checksum.
    how: Dict[str, Any] = {"mode": "r|", "bufsize": BLOCK, "tarinfo": Header}
    with opened(archive) as stream, tarfile.open(fileobj=stream, **how) as tar:
        while (member := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # it would keep a million of them
            check_name(archive, member.name)
            if not (member.isfile() or member.isdir()):
                raise unsafe_member(archive, member.name, "is a link or a device")
            if member.offset_data + member.size > most:
                raise unsafe_member(archive, member.name, too_large(archive, member.size))
            name = PurePosixPath(member.name).name
            content = tar.extractfile(member) if name in wanted else None
            if content is not None:
                yield name, content
        for _ in range(0, most, BLOCK):  # read on to the checksum at the end
            if not stream.read(BLOCK):
                break


def opened(archive: Path) -> IO[bytes]:
    """An archive, decompressed if its first bytes say that it is compressed as a whole."""
    with open(archive, "rb") as stream:
        head = stream.read(6)
    for magic, opener in OPENERS.items():
        if head.startswith(magic):
            return opener(archive, "rb")
    return open(archive, "rb")


def zip_members(archive: Path, wanted: Sequence[str], most: int) -> Iterator[Tuple[str, IO[bytes]]]:
    """The same for a zip, which lists its names at its end."""
    with zipfile.ZipFile(archive) as packed:
        for item in packed.infolist():
            check_name(archive, item.filename)
            kind = item.external_attr >> 16
            if stat.S_IFMT(kind) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise unsafe_member(archive, item.filename, "is a link or a device")
        for item in packed.infolist():
            name = PurePosixPath(item.filename).name
            if name in wanted and not item.is_dir():
                if item.flag_bits & 1:
                    raise unsafe_member(archive, item.filename, "is encrypted")
                if item.file_size > most:
                    raise unsafe_member(archive, item.filename, too_large(archive, item.file_size))
                with packed.open(item) as stream:
                    yield name, stream


class Header(tarfile.TarInfo):
    """A tar header; refused if it would read much into memory before it can be checked."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> "Header":
        """As tarfile's, which reads long names and the like at once."""
        header = super().frombuf(buf, encoding, errors)
        if not header.isfile() and header.size > LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {header.size:,} bytes")
        return header


def check_name(archive: Path, name: str) -> None:
    """Raises UserError for a name that leads out of the archive's folder."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise unsafe_member(archive, name, "leads out of the archive's folder")


def unsafe_member(archive: Path, name: str, what: str) -> BadArchive:
    """The error about an unsafe member."""
    return BadArchive(archive, f"is refused: '{name}' in it {what}, which none of the corpora has")


def too_large(archive: Path, size: int) -> str:
    """The message about a file that is too large to be text."""
    packed = archive.stat().st_size
    return f"would expand to {size:,} bytes (over {MOST_TIMES} times the archive's {packed:,})"


def blocks(archive: Path, name: str, stream: IO[bytes]) -> Iterator[bytes]:
    """One file of an archive: a .gz decompressed, the segments of an .sgm, others as they are."""
    if name.endswith(".sgm"):
        content = stream.read(LONGEST_TEST_SET + 1)
        if len(content) > LONGEST_TEST_SET:
            raise unsafe_member(archive, name, f"is a test set of over {LONGEST_TEST_SET:,} bytes")
        yield "".join(line + "\n" for line in segments(content.decode("utf-8-sig"))).encode()
        return
    packed = name.endswith(".gz")
    source: Any = gzip.GzipFile(fileobj=stream) if packed else stream
    most, written = max(ALWAYS_FINE, MOST_TIMES * archive.stat().st_size), 0
    while block := source.read(BLOCK):
        written += len(block)
        if written > most:
            raise unsafe_member(archive, name, too_large(archive, written))
        yield block


def segments(sgml: str) -> Iterator[str]:
    """The sentences of a test set in WMT's SGML, with every run of spaces reduced to one.

    Entities such as ``&amp;`` stay as they are: sacreBLEU leaves them in its copies too.
    """
    for segment in _SEGMENT.findall(sgml):
        yield " ".join(segment.split())


def from_sacrebleu(part: Part, langs: Tuple[str, str], out: Path) -> None:
    """Write a test set from sacreBLEU (which downloads it and checks its MD5).

    Raises:
        UserError: sacreBLEU has no such set, or could not get it.
    """
    if part.sacrebleu is None:
        raise UserError(f"sacreBLEU has no part '{part.name}': take it from the archives")
    instead = "run the same command again, or take the test sets from the archives"
    sides = files_of(part.sacrebleu, "-".join(langs), instead)
    for lang, side in zip(langs, sides, strict=True):
        shutil.copyfile(side, out / f"{part.name}.{lang}")


def write_parts(
    parts: Dict[str, Path], known: Sequence[Part], langs: Tuple[str, str], out: Path
) -> None:
    """Extract every part from its archive (``parts``: by name), or get it from sacreBLEU."""
    for part in known:
        if part.name in parts:
            extract(part, parts[part.name], langs, out)
        else:
            from_sacrebleu(part, langs, out)
