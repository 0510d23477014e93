"""examples/service: what it answers and refuses; a short request is not behind a long one."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import packed
from vaswani import Translator

pytest.importorskip("fastapi", reason="fastapi is missing: the example of a service is NOT run")
pytest.importorskip("httpx", reason="httpx is missing: the example of a service is NOT run")

SERVICE = Path(__file__).resolve().parents[2] / "examples" / "service" / "service.py"
SENTENCES = ["the house", "", "a zebra sees the cat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("service") / "model"
    packed.pack(folder)
    return folder


@pytest.fixture
def service(model, monkeypatch) -> ModuleType:
    monkeypatch.setenv("MODEL", str(model))
    module = ModuleType("service")
    monkeypatch.setitem(sys.modules, "service", module)  # where pydantic looks for types
    exec(compile(SERVICE.read_text(encoding="utf-8"), str(SERVICE), "exec"), module.__dict__)
    return module


def answer_to(service: ModuleType, **request: object):
    from fastapi.testclient import TestClient

    return TestClient(service.app).post("/translate", json=request)


def test_each_sentence_has_its_translation_and_unknown_words(service, model):
    answer = answer_to(service, sentences=SENTENCES)
    expected = Translator.from_pretrained(model).translate(SENTENCES)
    assert answer.status_code == 200
    assert answer.json() == [
        {"text": one.text, "too_long": False, "unknown": one.unknown} for one in expected
    ]
    assert answer.json()[2]["unknown"] == ["zebra"]


def test_a_long_sentence_is_called_too_long_and_the_others_are_translated(service):
    long = "house " * (service.TOKENS_PER_SENTENCE + 1)
    first, second = answer_to(service, sentences=[long, "the house"]).json()
    assert first == {"text": "", "too_long": True, "unknown": []}
    assert second["text"] and not second["too_long"]


@pytest.mark.parametrize(
    "request_body, status",
    [
        ({"sentences": ["a"] * 101}, 422),
        ({"sentences": ["a"], "beam": 500}, 422),
        ({"sentences": ["a" * 20_001]}, 413),
        ({"sentences": ["a " * 100] * 60}, 413),
    ],
    ids=["too many sentences", "an unknown field", "too many characters", "too many tokens"],
)
def test_a_request_that_is_too_large_or_unknown_is_refused(service, request_body, status):
    assert answer_to(service, **request_body).status_code == status


def test_a_short_request_ends_before_a_long_one_that_came_first(service):
    import httpx

    ended = []

    async def ask(client, name, sentences):
        await client.post("/translate", json={"sentences": sentences})
        ended.append(name)

    async def both():
        transport = httpx.ASGITransport(app=service.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            long = asyncio.create_task(ask(client, "long", ["house " * 30] * 100))
            while not service.turns.locked():
                await asyncio.sleep(0)
            await asyncio.gather(long, ask(client, "short", ["the house"]))

    asyncio.run(both())
    assert ended == ["short", "long"]


def test_health_names_the_model(service, model):
    from fastapi.testclient import TestClient

    assert TestClient(service.app).get("/health").json() == {"status": "ok", "model": str(model)}


@pytest.mark.parametrize("folder", [None, "no/such/model"])
def test_a_wrong_model_is_a_sentence(folder, monkeypatch):
    if folder is None:
        monkeypatch.delenv("MODEL", raising=False)
    else:
        monkeypatch.setenv("MODEL", folder)
    done = subprocess.run([sys.executable, str(SERVICE)], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("service: ") and len(done.stderr.splitlines()) == 1
