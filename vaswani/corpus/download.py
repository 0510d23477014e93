"""Archives by HTTP: primary, then mirrors; resumed where they broke off; checked before use.

A file under its own name in the folder is whole and was checked; ``.NAME.part`` is one on its way.
Where the manifest states no checksum, the first download's is recorded in ``checksums.json`` there
and held from then on.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from vaswani.corpus.manifest import Part, Source
from vaswani.corpus.stage import space_for
from vaswani.errors import UserError
from vaswani.files import atomic_write, sha256_of

RECORD = "checksums.json"
#: tries at one address, seconds before the second (doubled each time), seconds without an answer
TRIES, PAUSE, TIMEOUT = 5, 1.0, 60.0
BLOCK = 1 << 20


class Unavailable(Exception):
    """This address does not give the file; the reason is a few words."""


def fetch(part: Part, folder: Path) -> Path:
    """The archive of a part in ``folder``, checked; downloaded unless it is there.

    Raises:
        UserError: a file that is there is wrong, or no address gives the right one.
    """
    for source in part.sources:
        if (folder / source.name).is_file():
            check_there(folder / source.name, source, folder)
            return folder / source.name
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for source in part.sources:
        try:
            with space_for(folder / source.name):
                return download(source, folder)
        except Unavailable as reason:
            reasons.append(f"{source.url}: {reason}")
            print(f"{part.name}: {reasons[-1]}", file=sys.stderr)
    hint = " (or give --test-sets sacrebleu)" if part.sacrebleu else ""
    raise UserError(
        f"{part.name} could not be downloaded ({'; '.join(reasons)}): run the same command again "
        f"to go on, or put {part.sources[0].name} into {folder} by hand{hint}"
    )


def read_record(folder: Path) -> Dict[str, Any]:
    """What is known of the files in a folder: SHA-256, size and time of change when checked."""
    try:
        return dict(json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def record(path: Path, sha256: str) -> None:
    """Note the SHA-256 of a file, so that the same file need not be read again."""
    stat = path.stat()
    known = read_record(path.parent)
    known[path.name] = {"sha256": sha256, "bytes": stat.st_size, "changed": stat.st_mtime_ns}
    if os.access(path.parent, os.W_OK):
        with atomic_write(path.parent / RECORD) as stream:
            json.dump(known, stream, indent=1, sort_keys=True)


def check_there(path: Path, source: Source, folder: Path) -> None:
    """Check a file that is there against the manifest, or against what was recorded first.

    Raises:
        UserError: it is another file, or a part of it.
    """
    size = path.stat().st_size
    known = read_record(folder).get(path.name, {})
    expected = source.sha256 or known.get("sha256")
    advice = f"remove {path} to have it downloaded"
    if source.bytes is not None and size != source.bytes:
        raise UserError(f"{path} has {size:,} bytes instead of {source.bytes:,}: {advice}")
    seen = {"sha256": expected, "bytes": size, "changed": path.stat().st_mtime_ns}
    if expected is not None and known == seen:
        return
    found = sha256_of(path)
    if expected is not None and found != expected:
        raise UserError(f"{path} has SHA-256 {found} instead of {expected}: {advice}")
    record(path, found)


def download(source: Source, folder: Path) -> Path:
    """Download one archive into ``folder``, going on where an earlier try stopped.

    Raises:
        Unavailable: the address does not give the right file.
    """
    aside = folder / f".{source.name}.part"
    for again in (True, False):
        resumed = aside.is_file()
        receive_all(source, aside)
        found = sha256_of(aside)
        expected = source.sha256 or read_record(folder).get(source.name, {}).get("sha256")
        if expected is None or found == expected:
            break
        forget(aside)
        if not (resumed and again):  # a piece from an earlier day may be what is wrong: once anew
            raise Unavailable(f"its SHA-256 is {found} instead of {expected}")
    path = folder / source.name
    os.replace(aside, path)
    forget(aside)
    record(path, found)
    return path


def forget(aside: Path) -> None:
    """Remove a part and its note."""
    aside.unlink(missing_ok=True)
    note_of(aside).unlink(missing_ok=True)


def note_of(aside: Path) -> Path:
    """Where the server's name for the version of a part (its ETag or date) is kept."""
    return aside.with_name(aside.name + ".version")


def receive_all(source: Source, aside: Path) -> None:
    """Bring ``aside`` to its full size, over several connections if need be."""
    import requests

    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            receive(source, aside)
            return
        except (requests.RequestException, ConnectionError, TimeoutError) as error:
            said = str(error).rpartition(":")[2].strip(" '\")]") or type(error).__name__
            if attempt + 1 == TRIES:
                raise Unavailable(said) from None
            now = aside.stat().st_size if aside.is_file() else 0
            print(f"{source.name}: {said}; going on at {now:,} bytes", file=sys.stderr)


def receive(source: Source, aside: Path) -> None:
    """One connection: the rest of the file where the server can, else all of it anew.

    Raises:
        Unavailable: the server has no such file, or one of another size.
        requests.RequestException: the connection failed or broke; to be tried again.
    """
    import requests

    at = aside.stat().st_size if aside.is_file() else 0
    # identity: the archive's own bytes, not what a server's packing makes of them
    headers = {"Accept-Encoding": "identity"}
    if at:
        headers["Range"] = f"bytes={at}-"
        if note_of(aside).is_file():
            headers["If-Range"] = note_of(aside).read_text(encoding="utf-8")
    with requests.get(source.url, headers=headers, stream=True, timeout=TIMEOUT) as reply:
        if reply.status_code == 416:  # nothing after our last byte: whole, or another file's part
            if source.bytes == at:
                return
            forget(aside)
            raise requests.ConnectionError("the part was longer than the file")
        if reply.status_code >= 500 or reply.status_code == 429:
            raise requests.ConnectionError(f"the server answered {reply.status_code}")
        if reply.status_code not in (200, 206):
            raise Unavailable(f"the server answered {reply.status_code} {reply.reason}")
        partial = reply.status_code == 206
        if partial and not reply.headers.get("Content-Range", "").startswith(f"bytes {at}-"):
            forget(aside)
            raise requests.ConnectionError("the server sent another range than asked for")
        length = reply.headers.get("Content-Length")
        whole = None if length is None else int(length) + (at if partial else 0)
        if whole is not None and source.bytes is not None and whole != source.bytes:
            raise Unavailable(f"it has {whole:,} bytes instead of {source.bytes:,}")
        version = reply.headers.get("ETag") or reply.headers.get("Last-Modified")
        if version and not version.startswith("W/"):
            note_of(aside).write_text(version, encoding="utf-8")
        write(reply, aside, at if partial else 0, whole, source.name)
    size = aside.stat().st_size
    if (whole or source.bytes or size) > size:
        raise requests.ConnectionError("the connection ended early")
    if source.bytes is not None and size != source.bytes:
        forget(aside)
        raise Unavailable(f"it has {size:,} bytes instead of {source.bytes:,}")


def write(reply: Any, aside: Path, at: int, whole: Optional[int], name: str) -> None:
    """Append what a server sends, from byte ``at`` on, under a bar."""
    from tqdm import tqdm

    with (
        open(aside, "r+b" if at else "wb") as stream,
        tqdm(total=whole, initial=at, desc=name, unit="B", unit_scale=True, disable=None) as bar,
    ):
        stream.seek(at)
        for block in blocks(reply):
            stream.write(block)
            bar.update(len(block))
        stream.truncate()


def blocks(reply: Any) -> Iterator[bytes]:
    """The bytes of a reply as they are sent; a broken connection is requests' own error."""
    import requests
    import urllib3

    try:
        yield from reply.raw.stream(BLOCK, decode_content=False)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.ConnectionError(str(error)) from None
