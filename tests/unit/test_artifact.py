"""What a command makes is there whole or not at all, wherever it is stopped."""

import contextlib
import os
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import pytest

from vaswani.commands import attention, average
from vaswani.common.artifact import Artifact, keep
from vaswani.common.errors import UserError
from vaswani.common.files import read_json, write_json
from vaswani.data import stage
from vaswani.decoding.translations import Translations
from vaswani.model_folder.folder import EXPORTED, PACKED, write_folder

# ---- stopping before the n-th operation -------------------------------------------------------

CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Killed(BaseException):
    """The process is gone: it does nothing any more, not even clean up."""


class Stop:
    """Raises an error before the n-th operation on the disk; ``Killed`` at all later ones too."""

    def __init__(self) -> None:
        self.error: Optional[BaseException] = None
        self.left = 0

    def before(self, error: BaseException, step: int) -> None:
        """Stop before operation number ``step``, from 0."""
        self.error, self.left = error, step

    def reached(self) -> bool:
        """Whether it stopped; from now on it does not."""
        reached, self.error = self.left < 0, None
        return reached

    def __call__(self) -> None:
        if self.error is not None:
            self.left -= 1
            if self.left == -1 or self.left < 0 and isinstance(self.error, Killed):
                raise self.error


stop = Stop()


def audit(event: str, arguments: Any) -> None:
    """Python calls this before each operation, whichever function leads to it."""
    if event in CHANGES or event == "open" and arguments[2] & WRITING:
        stop()


@pytest.fixture(autouse=True)
def _stoppable(monkeypatch):
    """Flushing to disk has no event of its own (and takes its time)."""
    monkeypatch.setattr(os, "fsync", lambda handle: stop())
    if not hasattr(sys, "stoppable"):  # a hook cannot be removed
        sys.addaudithook(audit)
        sys.stoppable = True
    yield
    stop.error = None


# ---- every kind of artifact -------------------------------------------------------------------


def stage_folder(place: Path, text: str) -> None:
    """Of ``prepare``."""

    def make(out: Path) -> str:
        (out / "deep").mkdir(parents=True)
        (out / "train.en").write_text(text)
        (out / "deep" / "train.de").write_text(text)
        return text

    stage.run_stage(place / "tok", text, make)


def stage_file(place: Path, text: str) -> None:
    """Of ``prepare``."""
    stage.run_stage(place / "codes", text, lambda out: out.write_text(text))


def translations(place: Path, text: str) -> None:
    """As ``generate`` makes them."""
    results = Translations(place, "test")
    results.recover()
    if results.are_of(text):
        return
    with results.making() as part:
        for path in results.files:
            (part / path.name).write_text(text)
        results.finish({"key": text, "checkpoint": "last.pt", "data": "data-bin"})


def model_folder(place: Path, text: str, kind: Any = PACKED) -> None:
    """Of ``pack``."""

    def fill(part: Path) -> None:
        write_json(part / kind.table, {"format": kind.format, "origin": text})
        (part / "weights").write_text(text)

    write_folder(place / "model", fill, kind)


def export(place: Path, text: str) -> None:
    """Of ``export``."""
    model_folder(place, text, EXPORTED)


def attention_page(place: Path, text: str) -> None:
    """Of ``attention``."""
    found = SimpleNamespace(source=text, target=text, translated=False, unknown=[])
    attention.write(place / "page", attention.Options(model="m", source=text), found)


def an_average(place: Path, text: str) -> None:
    """Of ``average``."""
    import torch

    state = {"model": {"weight": torch.full((3,), float(len(text)))}, "averaged_updates": [1, 2]}
    average.write(state, [], place / "average.pt")


KINDS = [stage_folder, stage_file, translations, model_folder, export, attention_page, an_average]


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    """Pages are not drawn, and saving does not wait before it tries again."""

    def draw_layers(part: Path, found: Any, *_: Any) -> List[str]:
        (part / "encoder.png").write_text(found.source)
        return ["encoder.png"]

    monkeypatch.setattr("transformer_plugin.compat.saving.PAUSE", 0)
    monkeypatch.setattr("vaswani.attention_page.page.page", lambda found, by: found.source)
    monkeypatch.setattr("vaswani.attention_page.picture.draw_layers", draw_layers)
    monkeypatch.setattr(
        average, "is_average", lambda path: b"averaged_updates" in path.read_bytes()
    )


def contents(place: Path) -> Dict[str, bytes]:
    """Every file with its bytes, but for locks."""
    files = [path for path in place.rglob("*") if path.is_file() and path.suffix != ".lock"]
    return {str(path.relative_to(place)): path.read_bytes() for path in files}


class Disks(NamedTuple):
    """A folder to work in; what it holds before, and as made in an empty folder, after."""

    place: Path
    old: Path
    before: Dict[str, bytes]
    after: Dict[str, bytes]


@pytest.fixture(params=[True, False], ids=["replaced", "first"])
def disks(request, tmp_path) -> Callable[[Callable], Disks]:
    """For a kind; with an earlier version there, or none."""

    def made(kind: Callable) -> Disks:
        old, new = tmp_path / "old", tmp_path / "new"
        for place in (old, new):
            place.mkdir()
        if request.param:
            kind(old, "old")
        kind(new, "newer")
        return Disks(tmp_path / "work", old, contents(old), contents(new))

    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("error", [Killed(), KeyboardInterrupt(), OSError(5, "I/O error")])
def test_stopped_before_every_operation(kind, error, disks):
    """The same command then ends as an uninterrupted one does."""
    place, old, before, after = disks(kind)
    assert before != after
    for step in range(1000):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(old, place)
        stop.before(error, step)
        with contextlib.suppress(Killed, KeyboardInterrupt, OSError):
            kind(place, "newer")
        if not stop.reached():
            break
        if not isinstance(error, Killed):  # what can still clean up, does
            assert contents(place) in (before, after), step
        kind(place, "newer")
        assert contents(place) == after, step
    assert 10 < step < 1000


def stopped_when(state: Callable[[], Any], kind: Callable, old: Path, place: Path) -> None:
    """A folder in the first state in which a command, killed at some operation, left it so."""
    for step in range(1000):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(old, place)
        stop.before(Killed(), step)
        with pytest.raises(Killed):
            kind(place, "newer")
        stop.reached()
        if state():
            break


@pytest.mark.parametrize("kind", [stage_folder, stage_file, translations])
def test_what_is_done_is_skipped_after_a_stop(kind, disks):
    """Once it is complete, the same command only moves it."""
    place, old, _, after = disks(kind)
    stopped_when(lambda: list(place.rglob("complete")), kind, old, place)
    made = max(path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file())
    kind(place, "newer")
    assert contents(place) == after
    assert max(path.stat().st_mtime_ns for path in place.rglob("*") if path.is_file()) == made


# ---- what is in the way -----------------------------------------------------------------------


def test_what_came_into_the_way_after_a_stop_is_kept(tmp_path):
    """A file that the user put where a folder had been moved away."""
    place = tmp_path / "work"
    stage_folder(tmp_path / "old", "old")
    stopped_when(lambda: not (place / "tok").exists(), stage_folder, tmp_path / "old", place)
    (place / "tok").write_text("mine")
    stage_folder(place, "newer")
    assert (place / "tok.kept-1").read_text() == "mine"
    assert (place / "tok" / "train.en").read_text() == "newer"
    assert not (place / "tok.kept-2").exists()


def test_a_name_that_is_taken_is_not_kept_under(tmp_path, capsys):
    for number in (1, 2):
        (tmp_path / "a").write_text(str(number))
        assert keep(tmp_path / "a").name == f"a.kept-{number}"
    assert (tmp_path / "a.kept-1").read_text() == "1"
    assert "it is kept as" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [model_folder, export, attention_page, an_average])
def test_what_came_into_the_way_meanwhile_is_refused(kind, tmp_path, monkeypatch):
    """The last look is after the work, which took a while."""
    names = {"attention_page": "page", "an_average": "average.pt"}
    theirs = tmp_path / names.get(kind.__name__, "model")
    making = Artifact.making

    def slowly(artifact: Artifact) -> Any:
        theirs.write_text("mine")
        return making(artifact)

    monkeypatch.setattr(Artifact, "making", slowly)
    with pytest.raises(UserError):
        kind(tmp_path, "newer")
    assert contents(tmp_path) == {theirs.name: b"mine"}


def test_the_current_folder_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="cannot be the current folder"):
        write_folder(Path("."), lambda part: None)


def test_two_commands_do_not_make_one_folder(tmp_path):
    def meanwhile(part: Path) -> None:
        write_json(part / PACKED.table, {"format": PACKED.format})
        pid = os.fork()
        if pid == 0:
            try:
                write_folder(tmp_path / "model", lambda part: (part / "theirs").touch())
            except UserError as error:
                os._exit(7 if "is being made by another command" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

    write_folder(tmp_path / "model", meanwhile)
    assert read_json(tmp_path / "model" / PACKED.table)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_no_other_file_renames_flushes_or_locks():
    """The plugin's checkpoints aside, which import nothing of ``vaswani``."""
    product = Path(__file__).resolve().parents[2] / "vaswani"
    calls = re.compile(r"os\.(rename|replace|fsync)\(|\.rename\(|shutil\.(move|rmtree)|fcntl")
    found = {path.name for path in product.rglob("*.py") if calls.search(path.read_text("utf-8"))}
    assert found == {"files.py"}
