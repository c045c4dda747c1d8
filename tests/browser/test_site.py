"""The documentation site as a browser shows it: on a phone and a desk, in light and dark, from this machine alone."""

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Tab
from tests.browser.test_dashboard import violations
from tests.browser.test_report_page import DESK, PHONE
from tests.site import built

CONCERNS = ("docs/theme", "docs/paths", "docs/index.md", "mkdocs.yml", "tests/site.py")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = (
    "index", "paths/analyst", "paths/steward", "paths/operator", "guides/first-release", "notebooks/insights",
    "requests", "python-reference", "decisions/README", "utility", "deploy",
)  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    """A server that writes no log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The built site at a free port of this machine."""
    folder: Path = tmp_path_factory.mktemp("site")
    assert built(folder).returncode == 0
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def waited(tab: Tab, promise: str) -> Any:
    """What a promise of the page comes to."""
    found = tab.send("Runtime.evaluate", expression=promise, returnByValue=True, awaitPromise=True)
    return found["result"]["value"]


def page_of(address: str, page: str) -> str:
    return f"{address}/{page.replace('README', 'index')}.html"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_and_axe_finds_nothing(tab: Tab, address: str, page: str, width: int, dark: bool) -> None:
    tab.open(page_of(address, page), width, dark=dark)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask("document.body.getAttribute('data-md-color-scheme')") == ("slate" if dark else "default")
    assert violations(tab) == []


def test_a_page_asks_this_machine_alone_and_the_console_is_silent(tab: Tab, address: str) -> None:
    for page in PAGES:
        tab.open(page_of(address, page), DESK)
        asked = {e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"}
        assert {url for url in asked if not url.startswith((address, "data:"))} == set()
        assert [e for e in tab.events if e["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")] == []


def test_what_would_be_loaded_from_elsewhere_is_refused(tab: Tab, address: str) -> None:
    """The second wall: were an address elsewhere ever on a page, the page's own policy stops it."""
    tab.open(page_of(address, "index"), DESK)
    tab.ask("window.refused = '', document.addEventListener('securitypolicyviolation', e => refused = e.blockedURI), 0")
    tab.ask("(new Image()).src = 'http://127.0.0.2:9/x.png'")
    seen = "new Promise(done => { const look = () => refused ? done(refused) : setTimeout(look, 20); look(); })"
    assert waited(tab, seen) == "http://127.0.0.2:9/x.png"


def test_search_answers(tab: Tab, address: str) -> None:
    """The worker that searches runs under the page's policy."""
    tab.open(page_of(address, "index"), DESK)
    typed = "document.querySelector('.md-search__input')"
    tab.ask(f"{typed}.focus(), {typed}.value = 'zCDP', {typed}.dispatchEvent(new Event('input', {{bubbles: true}})), 0")
    found = "new Promise(done => { const until = Date.now() + 20000; const look = () => { const all = "
    found += "document.querySelectorAll('.md-search-result__item').length; if (all || Date.now() > until) done(all); "
    found += "else setTimeout(look, 50); }; look(); })"
    assert waited(tab, found) > 0


STOP = """new Promise(done => { const until = Date.now() + 5000; const look = () => {
const stop = document.activeElement, label = stop.matches('.md-option') ? stop.nextElementSibling : stop;
const seen = getComputedStyle(label).outlineStyle !== 'none' && label.getBoundingClientRect().right > 0;
const what = stop.matches('.md-skip') ? 'skip' : stop.getAttribute('aria-label') || `${stop.tagName}.${stop.className}`;
if (seen || Date.now() > until) done({what, seen}); else setTimeout(look, 20); }; look(); })"""
"""The element that has the focus, and whether it is seen once what moves has come to rest."""


def pressed(tab: Tab, key: str, number: int, text: str = "") -> None:
    for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
        tab.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=number, text=text)


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_can_be_read_by_keyboard(tab: Tab, address: str, width: int) -> None:
    """The first stop leads to the text, each stop is seen, and what scrolls sideways is one."""
    tab.open(page_of(address, "guides/first-release"), width)
    stops = []
    for _ in range(60):
        pressed(tab, "Tab", 9)
        stops.append(waited(tab, STOP))
    assert stops[0]["what"] == "skip"
    assert [stop for stop in stops if not stop["seen"]] == []
    kinds = {stop["what"].partition(".")[0] for stop in stops}
    assert {"A", *(["Menu", "CODE"] if width == PHONE else [])} <= kinds


@pytest.mark.parametrize(("key", "number", "text"), [("Enter", 13, "\r"), (" ", 32, " ")])
def test_the_menu_of_a_phone_opens_by_keyboard(tab: Tab, address: str, key: str, number: int, text: str) -> None:
    tab.open(page_of(address, "guides/first-release"), PHONE)
    tab.ask("document.querySelector('[aria-label=Menu]').focus(), 0")
    pressed(tab, key, number, text)
    assert tab.ask("document.querySelector('#__drawer').checked")
    assert tab.ask("getComputedStyle(document.querySelector('.md-sidebar--primary')).visibility") == "visible"
