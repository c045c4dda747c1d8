"""A headless Chromium, asked over the DevTools protocol: what a page looks like to a browser, without any driver."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from tests.support import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--remote-debugging-port=0",
)  # fmt: skip


def executable() -> str:
    """A Chromium of this machine.

    It is no Python package, so neither `make test` nor CI promises one: without it these tests are skipped and say why.
    ALMONER_REQUIRE_BROWSER=1 lets them fail instead.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        reason = f"no browser: none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)"
        if os.environ.get("ALMONER_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Tab:
    """One page of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, count(1)
        self.events: list[dict[str, Any]] = []

    def send(self, method: str, **parameters: Any) -> Any:
        """A command of the protocol, and its result; what happens meanwhile is kept in `events`."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            said = self._received()
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def open(self, page: Path | str, width: int, *, dark: bool = False, script: bool = True) -> None:
        """Show a file or an address in a window of some width and 800 pixels high."""
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1}
        self.send("Emulation.setDeviceMetricsOverride", mobile=False, **size)
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._received()

    def ask(self, expression: str) -> Any:
        """The value of an expression on the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"]["value"]

    def printed(self) -> bytes:
        """The page as a PDF, as its own rules for print want it."""
        found = self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(found["data"])

    def picture(self) -> bytes:
        """The whole page as a PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def _received(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE))
        if "method" in said:
            self.events.append(said)
        return said


@contextmanager
def running() -> Iterator[Tab]:
    """A browser of its own, with nothing in it, ended afterwards."""
    with tempfile.TemporaryDirectory(prefix="almoner-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [executable(), *QUIET, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_address(Path(profile), process), max_size=None) as browser:
                tab = Tab(browser)
                page = tab.send("Target.createTarget", url="about:blank")["targetId"]
            with connect(_address(Path(profile), process, f"devtools/page/{page}"), max_size=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
            process.wait(PATIENCE)


def _address(profile: Path, process: "subprocess.Popen[bytes]", path: str = "") -> str:
    """Where the browser listens; it writes its port, and the path of its own socket, when it is ready."""
    told, until = profile / "DevToolsActivePort", time.monotonic() + PATIENCE
    while not (told.exists() and told.read_text().count("\n")):
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < until, "the browser did not become ready"
        time.sleep(0.05)
    port, own = told.read_text().split("\n")[:2]
    return f"ws://127.0.0.1:{port}/{path or own.lstrip('/')}"
