"""A headless Chromium, driven by its own chromedriver over the WebDriver protocol.

Both come with the operating system (Debian: ``chromium`` and ``chromium-driver``); no Python
package is needed. See https://www.w3.org/TR/webdriver2/.
"""

import base64
import http.client
import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
    *("--no-first-run", "--no-default-browser-check", "--disable-quic", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Tab": "\ue004", "Left": "\ue012", "Right": "\ue014", "Home": "\ue011", "End": "\ue010"}

needs_browser = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="NOT TESTED: no browser here (Debian: apt install chromium chromium-driver)",
)


class Browser:
    """A Chromium window, open until :meth:`quit`.

    Args:
        folder: holds its profile and its log
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.driver = subprocess.Popen(
            [str(DRIVER), f"--port={self.port}", f"--log-path={folder / 'driver.log'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.path = ""
        try:
            self.wait()
            options = {
                "binary": CHROMIUM,
                "args": [*FLAGS, f"--user-data-dir={folder / 'profile'}"],
            }
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            body = {"capabilities": {"alwaysMatch": wanted}}
            self.path = f"/session/{self.ask('POST', '/session', body)['sessionId']}"
        except BaseException:
            self.quit()
            raise

    def wait(self) -> None:
        """Wait until the driver answers."""
        for _ in range(600):
            try:
                if self.ask("GET", "/status")["ready"]:
                    return
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("chromedriver does not answer")

    def ask(self, method: str, path: str, body: Optional[Dict[str, Any]] = None) -> Any:
        """Send one command of the protocol."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, self.path + path, None if body is None else json.dumps(body))
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message']}")
        return value

    def quit(self) -> None:
        """Close the window, and end the driver."""
        try:
            if self.path:
                self.ask("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(20)

    # ---- what a user does ----

    def open(self, page: Path, hash: str = "") -> None:
        """Open a file, with an empty console."""
        self.ask("POST", "/url", {"url": "about:blank"})
        self.console()
        self.ask("POST", "/url", {"url": page.resolve().as_uri() + hash})
        loaded = "return location.protocol == 'file:' && document.readyState == 'complete'"
        until = time.monotonic() + 60  # the driver returns before a large page is loaded
        while not self.run(loaded):
            if time.monotonic() > until:
                raise TimeoutError(f"{page} was not loaded in a minute")
            time.sleep(0.05)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script; returns its value."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def element(self, selector: str) -> Dict[str, str]:
        """The first element that matches a selector."""
        return self.ask("POST", "/element", {"using": "css selector", "value": selector})

    def press(self, *keys: str) -> None:
        """Press keys, given by their names in ``KEYS`` or as characters."""
        steps = []
        for key in keys:
            value = KEYS.get(key, key)
            steps += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self.actions({"type": "key", "id": "keys", "actions": steps})

    def point(self, selector: str, kind: str = "mouse", x: int = 0, y: int = 0) -> None:
        """Move the mouse to the middle of an element (and x, y further), or tap it."""
        place = {"type": "pointerMove", "origin": self.element(selector), "x": x, "y": y}
        steps: List[Dict[str, Any]] = [place]
        if kind == "touch":
            steps += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        parameters = {"pointerType": kind}
        self.actions({"type": "pointer", "id": kind, "parameters": parameters, "actions": steps})

    def actions(self, source: Dict[str, Any]) -> None:
        """Perform a sequence of inputs."""
        self.ask("POST", "/actions", {"actions": [source]})

    # ---- what a user sees ----

    def console(self) -> List[str]:
        """The console's messages since the last call."""
        return [entry["message"] for entry in self.ask("POST", "/se/log", {"type": "browser"})]

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        body = {"cmd": command, "params": parameters}
        return self.ask("POST", "/goog/cdp/execute", body)

    def screen(self, width: int, height: int, mobile: bool = False) -> None:
        """Set the size of the window, in the page's pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)

    def media(self, kind: str = "", scheme: str = "light") -> None:
        """Emulate ``print`` or the screen, and ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", media=kind, features=features)

    def screenshot(self, path: Path) -> None:
        """Save a picture of what the window shows."""
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.ask("POST", "/print", {}))
