"""A miniature WMT14: archives with the real names and layout, and a local server for them.

The server can be made to misbehave: with ``server.faults["a.tgz"] = ["cut 500"]`` each request uses
up one entry (``cut N``: the connection ends after N bytes; a number: that HTTP status).
"""

import gzip
import hashlib
import http.server
import io
import random
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from vaswani.common.find import find_config

WORDS = {
    "en": "house garden cat dog river king letter train book song winter morning bread stone",
    "de": "Haus Garten Katze Hund Fluss König Brief Zug Buch Lied Winter Morgen Brot Stein",
    "fr": "maison jardin chat chien fleuve roi lettre train livre chant hiver matin pain pierre",
}
SENTENCE = {
    "en": "The well-known {} sees the {}, isn’t it?",
    "de": "Der bekannte {} sieht „den“ {}, nicht wahr?",
    "fr": "Le célèbre {} voit le {}, n’est-ce pas ?",
}
FOLDER = {
    "europarl-v7": "training/",
    "commoncrawl": "",
    "news-commentary-v9": "training/",
    "news-commentary-v11": "training-parallel-nc-v11/",
    "news-commentary-v12": "training/",
    "un": "un/",
    "giga-fren": "",
    "newstest2013": "dev/",
    "newstest2014": "test-full/",
}


def sentences(lang: str, count: int, seed: int) -> list[str]:
    """Return ``count`` sentences; the same seed gives translations of each other."""
    dice = random.Random(seed)
    words = WORDS[lang].split()
    rows = [dice.choices(range(len(words)), k=3) for _ in range(count)]
    return [
        SENTENCE[lang].format(words[a], words[b] + f" {words[c]}" * (a % 4)) for a, b, c in rows
    ]


def sgml(lines: list[str]) -> bytes:
    """Return a test set as WMT publishes it."""
    segments = "".join(f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines, 1))
    return f'<srcset setid="t"><doc docid="a">\n<p>\n{segments}</p></doc></srcset>\n'.encode()


def content(part: str, name: str, lang: str, count: int) -> bytes:
    """Return the content of one file inside an archive."""
    seed = sum(map(ord, part))
    if name.endswith(".sgm"):
        return sgml(sentences(lang, 20, seed))
    text = "".join(line + "\n" for line in sentences(lang, count, seed)).encode("utf-8")
    return gzip.compress(text, mtime=0) if name.endswith(".gz") else text


def pack(path: Path, files: dict[str, bytes]) -> None:
    """Write files as a .tgz, .tar or .zip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in files.items():
                packed.writestr(name, data)
        return
    with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def offer(www: Path, count: int = 120) -> None:
    """Write a small version of every archive in the project's manifest, as ``www/PATH``."""
    table = yaml.safe_load(find_config("wmt14", "data/archives").read_text(encoding="utf-8"))
    for part, entry in table["parts"].items():
        files = {}
        for pair, names in entry["members"].items():
            for lang, name in zip(pair.split("-"), names, strict=True):
                files[FOLDER[part] + name] = content(part, name, lang, count)
        for source in entry["sources"]:
            pack(www / urlsplit(source["url"]).path.lstrip("/"), files)


def manifest(www: Path, base: str, target: Path) -> Path:
    """Write the project's manifest with the server's addresses, and return its path.

    A source that has a size or a hash gets those of the server's file.
    """
    table = yaml.safe_load(find_config("wmt14", "data/archives").read_text(encoding="utf-8"))
    for entry in table["parts"].values():
        for source in entry["sources"]:
            path = urlsplit(source["url"]).path
            data = (www / path.lstrip("/")).read_bytes()
            source["url"] = base + path
            if "sha256" in source:
                source["sha256"] = hashlib.sha256(data).hexdigest()
            if "bytes" in source:
                source["bytes"] = len(data)
    target.write_text(yaml.safe_dump(table), encoding="utf-8")
    return target


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; ``requested`` lists the requests (name, Range), which use up ``faults``."""

    def __init__(self, www: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.www = www
        self.requested: list[tuple[str, str | None]] = []
        self.faults: dict[str, list[str]] = {}
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def __exit__(self, *problem: Any) -> None:
        """Stop serving, and close the server."""
        self.shutdown()
        super().__exit__(*problem)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """GET of files, whole or from a given byte on."""

    server: Server

    def do_GET(self) -> None:  # noqa: N802  (the name is http.server's)
        name = self.path.rpartition("/")[2]
        wanted = self.headers.get("Range")
        self.server.requested.append((name, wanted))
        faults = self.server.faults.get(name)
        fault = faults.pop(0) if faults else ""
        path = self.server.www / self.path.lstrip("/")
        if fault.isdigit() or not path.is_file():
            self.send_error(int(fault) if fault.isdigit() else 404)
            return
        data = path.read_bytes()
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and start >= len(data):
            self.send_error(416)
            return
        if wanted:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            data = data[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault:
            data = data[: int(fault.removeprefix("cut "))]
            self.close_connection = True
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Suppress the log of requests."""
