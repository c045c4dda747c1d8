"""The dashboard as a browser shows it: axe finds nothing, in light and dark, on a phone and a desk."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files

import pytest
import uvicorn

from cli.web import views
from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from cli.web.responses import dataset_path
from flows.dashboard import dataset_pages
from flows.dashboard.burn_down import BurnDown, burn_down_of
from tasks.reporting.report_parts import contents
from tests.browser.chromium import Tab
from tests.browser.test_report_page import DESK, PHONE, as_hex
from tests.dashboard_homes import HOSTILE_NAMES, TOKEN, Home, plenty
from tests.support import PATIENCE
from tests.unit.tasks.reporting.a_report import the_facts
from tests.unit.tasks.reporting.test_html_report import contrast

pytestmark = pytest.mark.browser

CONCERNS = ("cli/web", "flows/dashboard")
LONG = dataset_path(HOSTILE_NAMES[5])
FULL = ("/", "/datasets/clinic", LONG, "/approvals", "/releases", "/releases/1", "/releases/8", "/releases/1/texts",
        "/releases/2/texts?find=write&doubtful=1", "/audit", "/nowhere")  # fmt: skip
EMPTY = ("/", "/approvals", "/releases", "/audit", "/audit?until=2020-01-01", "/?q=nothing")


@contextmanager
def serving(home: Home, asked: AccessOptions | None = None) -> Iterator[str]:
    """The dashboard at a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        made = access_policy(AccessOptions(port=port, token_variable=asked.token_variable if asked else None))
        server = uvicorn.Server(uvicorn.Config(application(home.home, made), access_log=False, log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def history(*_: object) -> tuple[BurnDown, ...]:
    """A past of four months, which no home of a test has."""
    today = datetime.now(UTC).date()
    spent = [(day(today, ago), 10**11 * share) for ago, share in ((118, 1), (90, 2), (60, 1), (33, 1), (12, 1), (2, 1))]
    return (burn_down_of(spent, 12 * 10**11, 1, day(today, 120), today),)


def day(today: date, ago: int) -> str:
    return (today - timedelta(days=ago)).isoformat()


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, serving(plenty(tmp_path_factory.mktemp("full"))) as found:
        patch.setattr(dataset_pages, "burn_downs", history)
        yield found


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(Home.made(tmp_path_factory.mktemp("empty"))) as found:
        yield found


def violations(tab: Tab) -> list[str]:
    """What axe objects to on the page, with where."""
    tab.send("Runtime.evaluate", expression=files("axe_core_python").joinpath("axe.min.js").read_text())
    asked = "axe.run().then(r => JSON.stringify(r.violations.map(v => [v.id, ...v.nodes.map(n => n.html)])))"
    found = tab.send("Runtime.evaluate", expression=asked, awaitPromise=True, returnByValue=True)
    said: list[str] = json.loads(found["result"]["value"])
    return said


def looked_at(tab: Tab, base: str, paths: Sequence[str], width: int, dark: bool) -> None:
    for path in paths:
        tab.open(base + path, width, dark=dark)
        assert tab.ask("document.documentElement.scrollWidth") <= width, path
        pushed = "[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert tab.ask(pushed) == 0, path
        assert tab.ask("document.title").endswith(" · almoner"), path
        assert violations(tab) == [], path
        asked = {e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"}
        assert {base + path} <= asked <= {base + path, base + "/style.css", base + "/favicon.svg"}, path
        said = [e for e in tab.events if e["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")]
        assert path == "/nowhere" or said == [], path


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (PHONE, True),
        (DESK, False),
        pytest.param(PHONE, False, marks=pytest.mark.slow),
        pytest.param(DESK, True, marks=pytest.mark.slow),
    ],
)
def test_everybody_can_read_every_page(tab: Tab, full: str, width: int, dark: bool) -> None:
    looked_at(tab, full, FULL, width, dark)


@pytest.mark.parametrize(("width", "dark"), [(PHONE, True), (DESK, False)])
def test_everybody_can_read_an_empty_one(tab: Tab, empty: str, width: int, dark: bool) -> None:
    looked_at(tab, empty, EMPTY, width, dark)


def test_a_report_has_its_style_and_can_do_nothing(tab: Tab, full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sandbox of its own, by a policy that names its style by digest."""
    monkeypatch.setattr(views, "load_report", lambda *_: contents("steward", the_facts()))
    tab.open(full + "/releases/1/report?version=steward", DESK)
    assert tab.ask("getComputedStyle(document.querySelector('.tiles')).display") == "grid"
    assert tab.ask("self.origin") == "null"
    said = [e for e in tab.events if e["method"] in ("Runtime.consoleAPICalled", "Log.entryAdded")]
    assert said == []


def test_what_is_wrong_would_be_found(tab: Tab, full: str) -> None:
    """axe runs, and the measure of width works: a page with faults is told from one without."""
    tab.open(full + "/", PHONE)
    fault = "<img src='/favicon.svg'><p style='color:#eee'>pale</p><input><div style='width:900px'>wide</div>"
    tab.ask(f"document.querySelector('main').insertAdjacentHTML('beforeend', {json.dumps(fault)}); 0")
    assert {one[0] for one in violations(tab)} >= {"image-alt", "label"}
    tab.ask("document.querySelector('main').lastChild.setAttribute('class', 'x'); 0")
    tab.ask("document.querySelector('main').style.minWidth = '900px'; 0")
    assert tab.ask("document.documentElement.scrollWidth") > PHONE


def test_a_script_in_a_page_would_not_run(tab: Tab, full: str) -> None:
    """The second wall: were a name ever let through as markup, the policy stops what it asks for."""
    tab.open(full + "/", DESK)
    evil = "<img src=x onerror=\"document.title='run'\"><iframe src='javascript:parent.document.title=1'></iframe>"
    tab.ask(f"document.querySelector('main').insertAdjacentHTML('beforeend', {json.dumps(evil)}); 0")
    tab.ask(
        "const s = document.createElement('script'); s.textContent = 'document.title=2'; document.body.append(s); 0"
    )
    tab.ask("new Promise(done => setTimeout(done, 300)); 0")
    assert tab.ask("document.title") == "Budgets · almoner"
    assert any(event["method"] == "Log.entryAdded" for event in tab.events), (
        "the browser says that it stopped something"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_it_follows_the_colours_of_the_reader(tab: Tab, full: str, dark: bool) -> None:
    tab.open(full + "/approvals", DESK, dark=dark)
    ink, paper = (as_hex(tab.ask(f"getComputedStyle(document.body).{name}")) for name in ("color", "backgroundColor"))
    assert contrast(ink, paper) >= 7
    assert (contrast(paper, "#ffffff") > 10) == dark


def test_words_in_the_chart_stay_inside_and_do_not_cover_each_other(tab: Tab, full: str) -> None:
    for width in (PHONE, DESK):
        tab.open(full + "/datasets/clinic", width)
        boxes = tab.ask(
            "[...document.querySelectorAll('figure svg text')].map(e => { const b = e.getBoundingClientRect();"
            " return [b.left, b.right, b.top, b.bottom]; })"
        )
        assert len(boxes) >= 7
        assert all(left >= 0 and right <= width for left, right, _, _ in boxes)
        for number, (left, right, top, bottom) in enumerate(boxes):
            for other, more, high, low in boxes[number + 1 :]:
                assert min(right, more) - max(left, other) <= 1 or min(bottom, low) - max(top, high) <= 3


def test_a_keyboard_leads_to_the_content(tab: Tab, full: str) -> None:
    tab.open(full + "/releases", DESK)
    for kind in ("keyDown", "keyUp"):
        tab.send("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
    assert tab.ask("document.activeElement.getAttribute('href')") == "#content"
    assert tab.ask("getComputedStyle(document.activeElement).left") != "-10000px"


def test_a_browser_logs_in(tab: Tab, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_TEST_TOKEN", TOKEN)
    with serving(
        Home.made(tmp_path_factory.mktemp("token")), AccessOptions(token_variable="ALMONER_TEST_TOKEN")
    ) as base:
        looked_at(tab, base, ["/login"], PHONE, dark=False)
        sent(tab, "not the token")
        assert tab.ask("document.querySelector('[role=alert]').innerText") == "That is not the token."
        assert violations(tab) == []
        sent(tab, TOKEN)
        assert tab.ask("document.title") == "Budgets · almoner"
        assert tab.ask("document.cookie") == "", "no script could read it"
        tab.open(base + "/audit", DESK)
        assert tab.ask("document.title") == "Audit log · almoner"


def sent(tab: Tab, token: str) -> None:
    """Fill in the form, send it, and wait for what comes."""
    tab.ask(f"document.querySelector('#token').value = {json.dumps(token)}; 0")
    tab.events.clear()
    tab.ask("setTimeout(() => document.querySelector('form').requestSubmit()); 0")
    until = time.monotonic() + PATIENCE
    while not any(event["method"] == "Page.loadEventFired" for event in tab.events):
        assert time.monotonic() < until
        time.sleep(0.02)
        tab.send("Page.enable")  # whatever is asked for brings what happened with it
