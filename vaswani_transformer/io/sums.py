"""SHA256SUMS, the hashes of a folder's files. Needs no torch."""

import hashlib
from pathlib import Path

SUMS = "SHA256SUMS"
#: first bytes of the file that Git LFS leaves in place of a large file
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
BLOCK = 1 << 20


def read_sums(path: Path) -> dict[str, str]:
    """Read the hashes, by file name, from a file in ``sha256sum``'s format."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check_file(path: Path, expected: str | None, remedy: str) -> None:
    """Raise ValueError unless a file has the expected hash.

    Args:
        path: the file
        expected: its hash; None if ``SHA256SUMS`` does not list it
        remedy: what to do if the file is damaged

    Raises:
        ValueError: the hash differs. The message says whether the file is a Git LFS pointer, or
            differs in its line ends only.
        OSError: the file is missing.
    """
    if sha256_of(path) == expected:
        return
    content = path.read_bytes()
    if content.startswith(LFS_POINTER):
        raise ValueError(
            f"{path} is a Git LFS pointer, not the file itself: run 'git lfs pull' in its "
            "repository"
        )
    if hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest() == expected:
        raise ValueError(
            f"{path} has Windows line ends, which git writes if core.autocrlf is true: run 'git "
            "config core.autocrlf false', delete the folder and check it out again"
        )
    raise ValueError(
        f"{path} was altered or damaged (its hash is not the one in {SUMS}): copy the folder "
        f"again, or {remedy}"
    )
