"""The logs and translations of a record: one archive, whose bytes follow from their content.

``FOLDER/logs.tar.xz`` has every file of a record that is not read in the browser. Names are
sorted; times, owners and groups are zero. ``tar -xf logs.tar.xz`` unpacks it.
"""

import functools
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write
from vaswani.data.text import lines_in, read_lines
from vaswani.scoring.score_input import AlignedLines, align

ARCHIVE = "logs.tar.xz"
Files = dict[str, bytes]
"""The name of a file → its content."""


def record_file(folder: Path, name: str) -> bytes:
    """Return the content of a log of a record.

    Args:
        folder: the record's
        name: in its archive, such as ``ours_seed1.jsonl``

    Raises:
        UserError: there is no archive, it is damaged, or it has no file of this name.
    """
    files = record_files(folder)
    if name not in files:
        raise UserError(
            f"{folder / ARCHIVE} has no {name}: 'tar -tf {folder / ARCHIVE}' lists its files"
        )
    return files[name]


def record_lines(folder: Path, name: str) -> Iterator[str]:
    """Return the lines of a log of a record, without their ends.

    Raises:
        UserError: see :func:`record_file`; or it is not UTF-8.
    """
    return lines_in(io.BytesIO(record_file(folder, name)), folder / name)


def recorded_translations(folder: Path, name: str, references: Path) -> AlignedLines:
    """Return the translations of a record beside a file of references.

    Raises:
        UserError: see :func:`record_file`; or they have not as many lines.
    """
    lines = list(record_lines(folder, name))
    return align(lines, [list(read_lines(references))], (folder / name, references))


def record_files(folder: Path) -> Files:
    """Return all logs of a record; empty if it has no archive.

    Raises:
        UserError: the archive is damaged.
    """
    path = folder / ARCHIVE
    if not path.is_file():
        return {}
    stat = path.stat()
    return dict(unpack(path.absolute(), stat.st_mtime_ns, stat.st_size))


@functools.lru_cache(maxsize=4)  # a page reads each log of a record: of 5 MB at most
def unpack(path: Path, modified: int, size: int) -> Files:
    """Read the files of an archive, again only if its time or size has changed."""
    files = {}
    try:
        content = lzma.decompress(path.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                if stream is not None:
                    files[member.name] = stream.read()
    except (tarfile.TarError, lzma.LZMAError) as error:
        raise UserError(f"{path} is damaged ({error}): fetch it again") from None
    return files


def write_record_files(folder: Path, files: Files) -> None:
    """Write the archive of a record, unless it has exactly these files.

    Args:
        folder: the record's
        files: all logs of the record
    """
    if not files or files == record_files(folder):
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (
        atomic_write(folder / ARCHIVE, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w:xz", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name in sorted(files):
            member = tarfile.TarInfo(name)  # mode 0644; no time, owner or group
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
