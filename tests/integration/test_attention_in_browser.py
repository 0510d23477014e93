"""The page of ``vaswani attention`` in a real Chromium, driven by its chromedriver (WebDriver).

Both come with the operating system (Debian: ``chromium`` and ``chromium-driver``). The page's
numbers are checked without a browser in unit/test_attention_page.py.
"""

import http.client
import json
import re
import shutil
import socket
import subprocess
import time

import pytest

from tests.attentions import ODD, made
from vaswani.attention_page.maps import between
from vaswani.attention_page.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="NOT TESTED: no browser here (Debian: apt install chromium chromium-driver)",
)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
FLAGS += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
SOURCE = ["The", "ho@@", "use", "is", "big", "."]
TARGET = ["Das", "H@@", "au@@", "s", "ist", "gr@@", "oß", "."]
SHORT = made(SOURCE, TARGET)
PAGES = {
    "short": (SHORT, "words"),
    "odd": (made(ODD, ODD, unknown=["$x$"]), "words"),
}


class Browser:
    """A headless window, open until :meth:`quit`."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder, self.session = folder, ""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.driver = subprocess.Popen([DRIVER, f"--port={self.port}"], **quiet)

    def begin(self):
        for _ in range(600):
            try:
                self.ask("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        flags = [*FLAGS, f"--user-data-dir={self.folder / 'profile'}"]
        wanted = {"goog:chromeOptions": {"binary": CHROMIUM, "args": flags}}
        wanted["goog:loggingPrefs"] = {"browser": "ALL"}
        begun = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{begun['sessionId']}"

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, self.session + path, body and json.dumps(body))
        value = json.loads(connection.getresponse().read())["value"]
        connection.close()
        assert not (isinstance(value, dict) and "error" in value), value
        return value

    def open(self, address):
        self.ask("POST", "/url", {"url": "about:blank"})
        self.console()
        self.ask("POST", "/url", {"url": address})
        loaded = "return location.protocol == 'file:' && document.readyState == 'complete'"
        while not self.run(loaded):  # the driver returns before a large page is loaded
            time.sleep(0.05)

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def console(self):
        return self.ask("POST", "/se/log", {"type": "browser"})

    def quit(self):
        try:
            if self.session:
                self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("browser"))
    try:
        started.begin()
        yield started
    finally:
        started.quit()


@pytest.fixture
def show(browser, tmp_path):
    def open_page(name, hash=""):
        path = tmp_path / f"{name}.html"
        path.write_text(page(*PAGES[name]), encoding="utf-8")
        browser.open(path.as_uri() + hash)
        return browser

    return open_page


@pytest.mark.parametrize("name", PAGES)
def test_a_page_opens_without_an_error_or_a_request(show, name):
    window = show(name)
    assert window.text("#caption").startswith("Cross-attention, layer ")
    requests = window.run("return performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in requests if not name.startswith("data:")] == []
    assert window.run("return typeof hacked") == "undefined"
    assert window.console() == []


@pytest.mark.parametrize("by", ["words", "subwords"])
@pytest.mark.parametrize("head", [0, 3])
def test_a_chosen_word_shows_where_it_looks(show, by, head):
    window = show("short", f"#cross.1.{head}.{by}")
    rows, columns = (getattr(SHORT.sides[name], by) for name in ("target", "source"))
    maps = between(SHORT.weights["cross"][0], rows, columns)
    expected = 100 * (maps[head - 1] if head else maps.mean(0))[1]
    window.run("document.querySelector('#from button:nth-child(2)').click()")
    said = re.findall(r"“([^”]+)” ([\d.]+) %", window.text("#said"))
    best = sorted(range(len(columns)), key=lambda n: -expected[n])[:5]
    assert [word for word, _ in said] == [columns[n].text for n in best]
    shares = [float(share) for _, share in said]
    assert shares == pytest.approx([expected[n] for n in best], abs=0.6)
