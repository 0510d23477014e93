"""Texts out of archives: tar (packed or not), zip, gz inside; test sets out of SGML.

Only the wanted files are written, under names of our own. An archive with a link, a device, or a
name that leads out of its folder is refused whole: the corpora have none.
"""

import gzip
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import IO, Dict, Iterator, Sequence, Tuple

from vaswani.corpus.manifest import Part
from vaswani.errors import UserError

_SEGMENT = re.compile(r"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)
BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


def extract(part: Part, archive: Path, langs: Tuple[str, str], out: Path) -> None:
    """Write the two sides of a part as ``out/PART.LANG``, one sentence per line.

    Raises:
        UserError: the archive is damaged, unsafe, or lacks a side.
    """
    files = part.files(langs)
    wanted = {n: out / f"{part.name}.{lang}" for n, lang in zip(files, langs, strict=True)}
    found = set()
    try:
        for name, stream in members(archive, list(wanted)):
            found.add(name)
            unpack(name, stream, wanted[name])
    except BROKEN as error:
        raise UserError(
            f"{archive} is damaged or cut short ({error}): remove it to have it downloaded again"
        ) from None
    except UnicodeDecodeError as error:
        raise UserError(f"{archive}: a test set in it is not UTF-8 ({error})") from None
    for name in files:
        if name not in found:
            raise UserError(f"{archive} has no file {name} inside: is it the right archive?")


def members(archive: Path, wanted: Sequence[str]) -> Iterator[Tuple[str, IO[bytes]]]:
    """The wanted files of an archive, by their names without folders; every name is checked."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for item in packed.infolist():
                check_name(archive, item.filename)
                kind = item.external_attr >> 16
                if stat.S_IFMT(kind) not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise refused(archive, item.filename, "is a link or a device")
            for item in packed.infolist():
                name = PurePosixPath(item.filename).name
                if name in wanted and not item.is_dir():
                    with packed.open(item) as stream:
                        yield name, stream
        return
    # "r|*": read once from front to end, since seeking in a packed file reads it again
    with tarfile.open(archive, "r|*") as packed_tar:
        for member in packed_tar:
            check_name(archive, member.name)
            if not (member.isfile() or member.isdir()):
                raise refused(archive, member.name, "is a link or a device")
            name = PurePosixPath(member.name).name
            content = packed_tar.extractfile(member) if name in wanted else None
            if content is not None:
                yield name, content


def check_name(archive: Path, name: str) -> None:
    """Raises UserError for a name that leads out of the archive's folder."""
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise refused(archive, name, "leads out of the archive's folder")


def refused(archive: Path, name: str, what: str) -> UserError:
    """The error about an unsafe member."""
    return UserError(
        f"{archive} is refused: '{name}' in it {what}, which the corpora have nowhere; remove it "
        "to have it downloaded again"
    )


def unpack(name: str, stream: IO[bytes], target: Path) -> None:
    """Write one file of an archive: a .gz unpacked, the segments of an .sgm, else as it is."""
    if name.endswith(".sgm"):
        with open(target, "w", encoding="utf-8", newline="\n") as output:
            for line in segments(stream.read().decode("utf-8-sig")):
                output.write(line + "\n")
        return
    with open(target, "wb") as raw:
        if name.endswith(".gz"):
            with gzip.GzipFile(fileobj=stream) as inner:
                shutil.copyfileobj(inner, raw, 1 << 20)
        else:
            shutil.copyfileobj(stream, raw, 1 << 20)


def segments(sgml: str) -> Iterator[str]:
    """The sentences of a test set in WMT's SGML, every run of spaces a single one.

    Entities such as ``&amp;`` stay as they are: sacreBLEU leaves them in its copies too.
    """
    for found in _SEGMENT.findall(sgml):
        yield " ".join(found.split())


def from_sacrebleu(part: Part, langs: Tuple[str, str], out: Path) -> None:
    """Write a test set as sacreBLEU keeps it (downloaded by it, and checked against its MD5).

    Raises:
        UserError: sacreBLEU has no such set, or could not get it.
    """
    import sacrebleu

    if part.sacrebleu is None:
        raise UserError(f"sacreBLEU has no part '{part.name}': take it from the archives")
    pair = "-".join(langs)
    try:
        sides = [
            sacrebleu.get_source_file(part.sacrebleu, pair),
            sacrebleu.get_reference_files(part.sacrebleu, pair)[0],
        ]
    except (Exception, SystemExit) as error:  # it exits where a download fails
        raise UserError(
            f"sacreBLEU could not give {part.sacrebleu} {pair} ({error}): run the same command "
            "again, or take the test sets from the archives"
        ) from None
    for lang, side in zip(langs, sides, strict=True):
        shutil.copyfile(side, out / f"{part.name}.{lang}")


def write_parts(
    parts: Dict[str, Path], known: Sequence[Part], langs: Tuple[str, str], out: Path
) -> None:
    """Extract every part from its archive (``parts``: by name), or take it from sacreBLEU."""
    for part in known:
        if part.name in parts:
            extract(part, parts[part.name], langs, out)
        else:
            from_sacrebleu(part, langs, out)
