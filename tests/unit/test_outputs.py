"""What a command makes is there whole or not at all, wherever it is stopped."""

import contextlib
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import own_text
from vaswani.common.errors import UserError
from vaswani.common.files import output_file, write_json, writing
from vaswani.common.outputs import FileOutputs, FolderOutputs
from vaswani.decoding.earlier_translations import translation_outputs
from vaswani.folders.model_folder import PACKED, write_folder
from vaswani.folders.prepared_text import PreparedText
from vaswani.folders.run import Translations

# ---- a stop before the n-th operation on the disk ---------------------------------------------

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """The process is gone: it does nothing any more, not even clean up."""


class Stop:
    """Raises an error before operation ``left``, from 0; ``Killed`` at all later ones too."""

    error: Any = None
    left = 0

    def __call__(self) -> None:
        self.left -= 1
        again = self.left < -1 and isinstance(self.error, Killed)
        if self.error is not None and (self.left == -1 or again):
            raise self.error


stop = Stop()


def audit(event: str, arguments: Any) -> None:
    """Stop before an operation that changes files; Python calls this before each one."""
    if event in CHANGES or event == "open" and arguments[2] & WRITING:
        stop()


@contextlib.contextmanager
def stopped_before(step: int, error: BaseException) -> Iterator[None]:
    """Stop before operation number ``step``."""
    stop.error = error
    stop.left = step
    try:
        yield
    except (Killed, KeyboardInterrupt, OSError, UserError):
        pass
    finally:
        stop.error = None


@pytest.fixture(autouse=True)
def _stoppable(monkeypatch):
    """Replace flushing to disk, which has no event of its own (and takes time), by a stop."""
    monkeypatch.setattr(os, "fsync", lambda handle: stop())
    if not hasattr(sys, "stoppable"):  # a hook cannot be removed
        sys.addaudithook(audit)
        sys.stoppable = True


def contents(folder: Path) -> dict[str, Any]:
    """Return every file with its content; the records without times."""
    found: dict[str, Any] = own_text.contents(folder)
    for name in ("test.json", ".stages/tok.json"):
        if name in found:
            record = json.loads(found[name])
            record["files"] = {file: stamp[::2] for file, stamp in record["files"].items()}
            found[name] = record
    return found


# ---- every kind of output ---------------------------------------------------------------------


def stage_folder(place: Path, text: str) -> None:
    """Write a stage as ``prepare`` does."""

    outputs = PreparedText(place).outputs("tok")
    with outputs.write(text) as draft:
        if not draft.is_made:
            (draft.path / "tok" / "deep").mkdir(parents=True)
            (draft.path / "tok" / "train.en").write_text(text)
            (draft.path / "tok" / "deep" / "train.de").write_text(text)


def translations(place: Path, text: str) -> None:
    """Write translations as ``generate`` does."""
    results = translation_outputs(Translations(place, "test"))
    with results.write(text) as draft:
        if not draft.is_made:
            for path in results.paths[:-1]:
                (draft.path / path.name).write_text(text)


def model_folder(place: Path, text: str) -> None:
    """Write a model folder as ``pack`` does."""

    def fill(part: Path) -> None:
        write_json(part / PACKED.table, {"format": PACKED.format, "origin": text})
        (part / "weights").write_text(text)

    write_folder(place / "model", fill)


def page(place: Path, text: str) -> None:
    """Write a folder as ``attention`` and ``reproduce table1`` do."""
    with FolderOutputs(place / "page", "page.json", "vaswani attention").write() as draft:
        (draft.path / "page.html").write_text(text)
        draft.record["source"] = text


def average(place: Path, text: str) -> None:
    """Write one file as ``average`` does, which only replaces its like."""

    def check(path: Path) -> None:
        assert not path.exists() or path.read_text() in ("old", "newer")

    with FileOutputs(place / "average.pt", check).write() as draft:
        draft.path.write_text(text)


KINDS = [stage_folder, translations, model_folder, page, average]
FULL = OSError(errno.ENOSPC, "No space left on device")
CASES = [(kind, Killed(), first) for kind in KINDS for first in (False, True)]
CASES += [(kind, error, False) for kind in KINDS for error in (KeyboardInterrupt(), FULL)]


@pytest.mark.parametrize(("kind", "error", "first"), CASES)
def test_a_stop_at_any_operation_loses_nothing(kind, error, first, tmp_path):
    """The same command then ends as an uninterrupted one does."""
    old, new, place = (tmp_path / name for name in ("old", "new", "place"))
    old.mkdir()
    if not first:
        kind(old, "old")
    kind(new, "newer")
    for step in range(1000):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(old, place)
        with stopped_before(step, error):
            kind(place, "newer")
        if stop.left >= 0:
            break
        if not isinstance(error, Killed):  # what can still clean up, does
            assert contents(place) in (contents(old), contents(new)), step
        kind(place, "newer")
        assert contents(place) == contents(new), step
    assert step > 10


def test_what_is_made_under_a_key_is_not_made_again_unless_it_changed(tmp_path):
    outputs = PreparedText(tmp_path).outputs("tok")
    made = []
    for key, change in (("a", None), ("a", None), ("b", None), ("b", "mine"), ("b", None)):
        if change:
            (tmp_path / "tok").write_text(change)
        with outputs.write(key) as draft:
            if not draft.is_made:
                made.append(key)
                (draft.path / "tok").write_text(key)
    assert made == ["a", "b", "b"]
    assert (tmp_path / "tok").read_text() == "b"
    assert (tmp_path / "tok.kept-1").read_text() == "mine"


def test_the_current_folder_is_refused_as_an_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="current folder"):
        write_folder(Path("."), lambda part: None)


def test_a_file_that_came_into_the_way_while_a_model_was_made_is_kept(tmp_path):
    def fill(part: Path) -> None:
        (tmp_path / "model").write_text("mine")

    with pytest.raises(UserError):
        write_folder(tmp_path / "model", fill)
    assert contents(tmp_path) == {"model": b"mine"}


def test_two_commands_do_not_make_one_folder(tmp_path):
    def meanwhile(part: Path) -> None:
        write_json(part / PACKED.table, {"format": PACKED.format})
        pid = os.fork()
        if pid == 0:
            try:
                write_folder(tmp_path / "model", lambda part: None)
            except UserError as error:
                os._exit(7 if str(tmp_path / "model") in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    write_folder(tmp_path / "model", meanwhile)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# ---- where a command may write ----------------------------------------------------------------


def test_an_input_is_not_replaced_under_another_name(tmp_path):
    source = tmp_path / "text"
    source.write_text("mine")
    (tmp_path / "link").symlink_to(source)
    for output in (tmp_path / "link", tmp_path / ".." / tmp_path.name / "text"):
        with pytest.raises(UserError, match="text"):
            output_file(output, [source], lambda path: True)


def test_only_what_the_same_command_wrote_or_an_empty_file_is_replaced(tmp_path):
    for name, content in {"theirs": "notes", "ours": "{}", "empty": ""}.items():
        (tmp_path / name).write_text(content)
    for name in ("ours", "empty", "new"):
        assert output_file(tmp_path / name, [], lambda path: path.name == "ours")
    for name in ("theirs", ".", "theirs/below"):
        with pytest.raises(UserError, match="theirs" if name != "." else tmp_path.name):
            output_file(tmp_path / name, [], lambda path: path.name == "ours")


def test_a_full_disk_is_said_of_the_file(tmp_path):
    with pytest.raises(UserError, match=r"scores\.json"), writing(tmp_path / "scores.json"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_no_other_file_renames_flushes_or_locks():
    """The plugin's checkpoints aside, which import nothing of ``vaswani``."""
    product = Path(__file__).resolve().parents[2] / "vaswani"
    calls = re.compile(r"os\.(rename|replace|fsync)\(|\.rename\(|shutil\.(move|rmtree)|fcntl")
    found = {path.name for path in product.rglob("*.py") if calls.search(path.read_text("utf-8"))}
    assert found == {"files.py"}
