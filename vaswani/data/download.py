"""Downloads archives: primary URL, then mirrors; resumes where it broke off; checks before use.

A file under its own name in the folder is complete and checked; ``.NAME.part`` is still incomplete.
If the manifest has no checksum, an archive is opened and read through instead; its own checksum is
then recorded in ``checksums.json`` there, and required from then on.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

from vaswani.common.artifact import writing
from vaswani.common.errors import UserError
from vaswani.common.files import atomic_write, locked, move, sha256_of
from vaswani.common.progress import bar
from vaswani.data import extract
from vaswani.data.manifest import RECORD, Part, Source

#: tries per URL, seconds before the second one (doubled each time), seconds without an answer
TRIES, PAUSE, TIMEOUT = 5, 1.0, 60.0
BLOCK = 1 << 20


class Unavailable(Exception):
    """The file cannot be had from this URL; the reason is a few words."""


def fetch(part: Part, folder: Path, langs: Tuple[str, str]) -> Path:
    """The archive of a part in ``folder``, checked; downloaded unless it is there.

    Raises:
        UserError: an existing file is wrong, or no URL gives the right one.
    """
    for source in part.sources:
        if (folder / source.name).is_file():
            check_existing(part, source, folder, langs)
            return folder / source.name
    reasons = []
    for source in part.sources:
        path = folder / source.name
        lock = folder / f".{source.name}.lock"
        try:
            with (
                writing(path, "--archives"),
                locked(lock, f"{path} is being downloaded", leave=False),
            ):
                return download(part, source, folder, langs)
        except Unavailable as reason:
            reasons.append(f"{source.url}: {reason}")
            print(f"{part.name}: {reasons[-1]}", file=sys.stderr)
    hint = " (or give --test-sets sacrebleu)" if part.sacrebleu else ""
    raise UserError(
        f"{part.name} could not be downloaded ({'; '.join(reasons)}): run the same command again "
        f"to continue, or put {part.sources[0].name} into {folder} by hand{hint}"
    )


def read_record(folder: Path) -> Dict[str, Dict[str, Any]]:
    """What is known about a folder's files: SHA-256, size and modification time when checked.

    Raises:
        UserError: the file of that name is something else, which would be overwritten.
    """
    path = folder / RECORD
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(one, dict) for one in known.values()):
        raise UserError(
            f"{path} is not the record of checksums that this command keeps there: move it "
            "elsewhere, or give another --archives"
        )
    return known


def record(path: Path, sha256: str) -> None:
    """Record the SHA-256 of a file that is correct, so that it need not be read again."""
    stat = path.stat()
    known = read_record(path.parent)
    message = {"sha256": sha256, "bytes": stat.st_size, "changed": stat.st_mtime_ns, "opened": True}
    known[path.name] = message
    if os.access(path.parent, os.W_OK):
        with atomic_write(path.parent / RECORD) as stream:
            json.dump(known, stream, indent=1, sort_keys=True)


def expected_of(source: Source, folder: Path) -> Optional[str]:
    """The SHA-256 a file should have: the published one, or that of a first download.

    The latter only counts if the archive was opened then; earlier versions recorded any file.
    """
    known = read_record(folder).get(source.name, {})
    return source.sha256 or (known.get("sha256") if known.get("opened") else None)


def mismatch_message(digest: str, expected: str, source: Source, folder: Path) -> str:
    """The message about a different SHA-256, with advice if the expected one was only recorded."""
    message = f"{digest} instead of {expected}"
    if source.sha256 is None:
        message += (
            f", that of its first download (if it was meant to change, remove "
            f"'{source.name}' from {folder / RECORD})"
        )
    return message


def check_existing(part: Part, source: Source, folder: Path, langs: Tuple[str, str]) -> None:
    """Check an existing file against the manifest or the record, or by opening it.

    Raises:
        UserError: it is a different file, or incomplete.
    """
    path = folder / source.name
    stat = path.stat()
    advice = f"remove {path} to have it downloaded"
    if source.bytes is not None and stat.st_size != source.bytes:
        raise UserError(f"{path} has {stat.st_size:,} bytes instead of {source.bytes:,}: {advice}")
    expected, known = expected_of(source, folder), read_record(folder).get(path.name, {})
    seen = {"sha256": expected, "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    if expected is not None and {key: known.get(key) for key in seen} == seen:
        return
    digest = sha256_of(path)
    if expected is None:
        extract.check(part, path, langs)
    elif digest != expected:
        message = mismatch_message(digest, expected, source, folder)
        raise UserError(f"{path} has SHA-256 {message}: {advice}")
    record(path, digest)


def download(part: Part, source: Source, folder: Path, langs: Tuple[str, str]) -> Path:
    """Download one archive into ``folder``, resuming where an earlier try stopped.

    Raises:
        Unavailable: the URL does not give the right file.
    """
    aside = folder / f".{source.name}.part"
    for path in (aside, version_file(aside)):
        if path.is_symlink():
            raise UserError(
                f"{path} is a symbolic link, whose file would be overwritten: remove it"
            )
    for again in (True, False):
        resumed = aside.is_file()
        receive_all(source, aside)
        digest = sha256_of(aside)
        expected = expected_of(source, folder)
        problem = None
        if expected is None:
            print(f"{source.name}: no checksum is published: read through once", file=sys.stderr)
            try:
                extract.check(part, aside, langs)
            except extract.BadArchive as error:
                problem = f"it {error.what}"
        elif digest != expected:
            problem = f"its SHA-256 is {mismatch_message(digest, expected, source, folder)}"
        if problem is None:
            break
        remove_partial(aside)
        if not (resumed and again):  # an old part may be what is wrong: try once more
            raise Unavailable(problem)
    path = folder / source.name
    move(aside, path)
    remove_partial(aside)
    record(path, digest)
    return path


def remove_partial(aside: Path) -> None:
    """Remove a partial file and its note."""
    aside.unlink(missing_ok=True)
    version_file(aside).unlink(missing_ok=True)


def version_file(aside: Path) -> Path:
    """Where the server's version of a partial file (its ETag or date) is kept."""
    return aside.with_name(aside.name + ".version")


def receive_all(source: Source, aside: Path) -> None:
    """Download ``aside`` completely, over several connections if need be."""
    import requests

    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            receive(source, aside)
            return
        except (requests.RequestException, ConnectionError, TimeoutError) as error:
            message = str(error).rpartition(":")[2].strip(" '\")]") or type(error).__name__
            if attempt + 1 == TRIES:
                raise Unavailable(message) from None
            now = aside.stat().st_size if aside.is_file() else 0
            print(f"{source.name}: {message}; continuing at {now:,} bytes", file=sys.stderr)


def receive(source: Source, aside: Path) -> None:
    """One connection: the rest of the file if the server can, else the whole file again.

    Raises:
        Unavailable: the server has no such file, or one of another size.
        requests.RequestException: the connection failed or broke off; try again.
    """
    import requests

    at = aside.stat().st_size if aside.is_file() else 0
    # identity: the archive's own bytes, not recompressed by the server
    headers = {"Accept-Encoding": "identity"}
    if at:
        headers["Range"] = f"bytes={at}-"
        if version_file(aside).is_file():
            headers["If-Range"] = version_file(aside).read_text(encoding="utf-8")
    with requests.get(source.url, headers=headers, stream=True, timeout=TIMEOUT) as reply:
        if reply.status_code == 416:  # nothing after our last byte: complete, or another file's
            total = reply.headers.get("Content-Range", "").rpartition("/")[2]  # "bytes */1234"
            if str(source.bytes or total) == str(at):
                return
            remove_partial(aside)
            raise requests.ConnectionError("the partial file was longer than the file")
        if reply.status_code >= 500 or reply.status_code == 429:
            raise requests.ConnectionError(f"the server answered {reply.status_code}")
        if reply.status_code not in (200, 206):
            raise Unavailable(f"the server answered {reply.status_code} {reply.reason}")
        partial = reply.status_code == 206
        if partial and not reply.headers.get("Content-Range", "").startswith(f"bytes {at}-"):
            remove_partial(aside)
            raise requests.ConnectionError("the server sent a range that was not requested")
        length = reply.headers.get("Content-Length")
        whole = None if length is None else int(length) + (at if partial else 0)
        if whole is not None and source.bytes is not None and whole != source.bytes:
            raise Unavailable(f"it has {whole:,} bytes instead of {source.bytes:,}")
        version = reply.headers.get("ETag") or reply.headers.get("Last-Modified")
        if version and not version.startswith("W/"):
            version_file(aside).write_text(version, encoding="utf-8")
        write(reply, aside, at if partial else 0, whole, source.name)
    size = aside.stat().st_size
    if (whole or source.bytes or size) > size:
        raise requests.ConnectionError("the connection ended early")
    if source.bytes is not None and size != source.bytes:
        remove_partial(aside)
        raise Unavailable(f"it has {size:,} bytes instead of {source.bytes:,}")


def write(reply: Any, aside: Path, at: int, whole: Optional[int], name: str) -> None:
    """Append what a server sends, from byte ``at`` on, showing a bar."""
    with (
        open(aside, "r+b" if at else "wb") as stream,
        bar(total=whole, initial=at, desc=name, unit="B", unit_scale=True) as shown,
    ):
        stream.seek(at)
        for block in blocks(reply):
            stream.write(block)
            shown.update(len(block))
        stream.truncate()


def blocks(reply: Any) -> Iterator[bytes]:
    """The bytes of a reply as sent; a broken connection becomes requests' own error."""
    import requests
    import urllib3

    try:
        yield from reply.raw.stream(BLOCK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.ConnectionError(str(error)) from None
