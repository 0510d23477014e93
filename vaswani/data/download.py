"""Downloads archives: primary URL, then mirrors; resumes where it broke off; checks before use.

A file under its own name in the folder is complete and checked; ``.NAME.part`` is still incomplete.
If the manifest has no checksum, an archive is opened and read through instead.
"""

import sys
import time
from pathlib import Path
from typing import Any, Iterator, Optional, Tuple

from vaswani.common.artifact import writing
from vaswani.common.errors import UserError
from vaswani.common.files import locked, move, sha256_of
from vaswani.common.progress import bar
from vaswani.data import extract
from vaswani.data.manifest import Part, Source

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
            check_existing(source, folder / source.name)
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


def check_existing(source: Source, path: Path) -> None:
    """Raises UserError if a file has another size or SHA-256 than the manifest says."""
    size, advice = path.stat().st_size, f"remove {path} to have it downloaded"
    if source.bytes is not None and size != source.bytes:
        raise UserError(f"{path} has {size:,} bytes instead of {source.bytes:,}: {advice}")
    if source.sha256 and (digest := sha256_of(path)) != source.sha256:
        raise UserError(f"{path} has SHA-256 {digest} instead of {source.sha256}: {advice}")


def download(part: Part, source: Source, folder: Path, langs: Tuple[str, str]) -> Path:
    """Download one archive into ``folder``, resuming where an earlier try stopped.

    Raises:
        Unavailable: the URL does not give the right file.
    """
    aside = folder / f".{source.name}.part"
    for again in (True, False):
        resumed = aside.is_file()
        receive_all(source, aside)
        problem = None
        if source.sha256 is None:
            print(f"{source.name}: no checksum is published: read through once", file=sys.stderr)
            try:
                extract.check(part, aside, langs)
            except extract.BadArchive as error:
                problem = f"it {error.what}"
        elif (digest := sha256_of(aside)) != source.sha256:
            problem = f"its SHA-256 is {digest} instead of {source.sha256}"
        if problem is None:
            break
        remove_partial(aside)
        if not (resumed and again):  # an old part may be what is wrong: try once more
            raise Unavailable(problem)
    path = folder / source.name
    move(aside, path)
    remove_partial(aside)
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
