"""Downloads archives: primary URL, then mirrors; resumes where it broke off; checks before use.

A file under its own name in the folder is complete; ``.NAME.part`` is still incomplete.
"""

import sys
import time
from pathlib import Path

import requests
import urllib3

from vaswani.common.artifact import writing
from vaswani.common.errors import UserError
from vaswani.common.files import locked, move, sha256_of
from vaswani.common.progress import bar
from vaswani.data.archives import Part, Source

#: tries per URL, seconds before the second one (doubled each time), seconds without an answer
TRIES, PAUSE, TIMEOUT = 5, 1.0, 60.0
BLOCK = 1 << 20
FAILURES = (requests.RequestException, urllib3.exceptions.HTTPError)


def fetch(part: Part, folder: Path) -> Path:
    """The archive of a part in ``folder``, checked; downloaded unless it is there.

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
        path, aside = folder / source.name, folder / f".{source.name}.part"
        lock = folder / f".{source.name}.lock"
        busy = locked(lock, f"{path} is being downloaded")
        try:
            with writing(path, "--archives"), busy:
                receive_all(source, aside)
                check(source, aside)
                move(aside, path)
                return path
        except FAILURES as error:
            reasons.append(f"{source.url}: {error}")
        except WrongFile as error:
            aside.unlink()
            reasons.append(f"{source.url}: {error}")
    hint = " (or give --test-sets sacrebleu)" if part.sacrebleu else ""
    raise UserError(
        f"{part.name} could not be downloaded ({'; '.join(reasons)}): run the same command again "
        f"to continue, or put {part.sources[0].name} into {folder} by hand{hint}"
    )


class WrongFile(UserError):
    """A file is not the one that the manifest describes."""


def check(source: Source, path: Path) -> None:
    """Raises WrongFile if a file has another size or SHA-256 than the manifest says."""
    size, digest = path.stat().st_size, sha256_of(path)
    if source.bytes not in (None, size) or source.sha256 not in (None, digest):
        raise WrongFile(
            f"{path} has {size:,} bytes and SHA-256 {digest} instead of {source.bytes or 0:,} and "
            f"{source.sha256}: remove it to have it downloaded"
        )


def receive_all(source: Source, aside: Path) -> None:
    """Download ``aside`` completely, over several connections if need be."""
    for attempt in range(1, TRIES + 1):
        try:
            receive(source, aside)
            return
        except FAILURES as error:
            reply = getattr(error, "response", None)
            if attempt == TRIES or (reply is not None and reply.status_code < 500):
                raise
            print(f"{source.name}: {error}; trying again", file=sys.stderr)
            time.sleep(PAUSE * 2 ** (attempt - 1))


def receive(source: Source, aside: Path) -> None:
    """One connection: the rest of the file if the server can, else the whole file again."""
    at = aside.stat().st_size if aside.is_file() else 0
    if at and at == source.bytes:  # an earlier command ended before its check
        return
    # identity: the archive's own bytes, not recompressed by the server
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={at}-"} if at else {})}
    with requests.get(source.url, headers=headers, stream=True, timeout=TIMEOUT) as reply:
        if reply.status_code == 416:
            aside.unlink()
            raise requests.ConnectionError("nothing follows the part that is here: from the start")
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
