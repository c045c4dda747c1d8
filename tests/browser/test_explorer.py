"""The explorer as a browser shows it: on a phone, on a desk, in the dark, on paper, by keyboard, to a screen reader."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tasks.reporting.html_explorer import explorer_html
from tasks.values.results import Insight
from tests.browser.chromium import Tab
from tests.browser.test_report_page import DESK, PHONE, as_hex
from tests.insights_rows import hostile, insights_record, known, many, plausible, supported, unmeasured
from tests.support import PATIENCE
from tests.unit.tasks.release.test_question_rows import record_of, rows_of
from tests.unit.tasks.reporting.test_html_report import contrast

pytestmark = pytest.mark.browser
TABLET = 820
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
        "ArrowRight": 39, "ArrowDown": 40, "*": 106}  # fmt: skip
EVERY: dict[str, tuple[Insight, ...]] = {
    "plausible": plausible(), "none": (), "one": many(1, 0), "sixty": many(60, 8), "many": many(4000, 60),
    "flat": many(4000, 0), "hostile": hostile(), "unmeasured": unmeasured(),
    "supported": supported(),
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("explorer")
    with pytest.MonkeyPatch.context() as patch:
        known(patch)
        record = insights_record()
    for name, nodes in EVERY.items():
        (folder / f"{name}.html").write_text(explorer_html(record, nodes))
    counted = record_of()
    (folder / "counted.html").write_text(explorer_html(counted, rows_of(counted)))
    return {name: folder / f"{name}.html" for name in (*EVERY, "counted")}


def press(tab: Tab, *keys: str) -> None:
    """Keys as a keyboard sends them, one after another."""
    for key in keys:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = KEYS.get(key, ord(key[0].upper()))
        down = {"key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        tab.send("Input.dispatchKeyEvent", type="keyDown", **down)
        tab.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def do(tab: Tab, statement: str) -> None:
    """Something that is done on the page, whatever comes of it."""
    tab.ask(f"{statement}; 0")


def until(tab: Tab, expression: str, wanted: Any) -> None:
    """Wait until an expression has a value: the page answers after a moment."""
    last = time.monotonic() + PATIENCE
    while (found := tab.ask(expression)) != wanted:
        assert time.monotonic() < last, found
        time.sleep(0.02)


def focused(tab: Tab) -> str:
    """What has the focus, as it is read aloud."""
    said = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText.trim()"
    return str(tab.ask(f"document.activeElement.id || ({said})"))


def find(tab: Tab, query: str) -> None:
    do(tab, "document.querySelector('#query').focus()")
    do(tab, "document.querySelector('#query').select()")
    tab.send("Input.insertText", text=query)
    until(tab, "document.querySelector('#found').textContent !== ''", True)


def spoken(tab: Tab) -> list[dict[str, Any]]:
    """What a screen reader is told, element by element: role, name and properties."""
    tab.send("Accessibility.enable")
    nodes = [node for node in tab.send("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]
    tab.send("Accessibility.disable")
    return [
        {"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")}
        | {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
        for node in nodes
    ]


def problems(tab: Tab) -> list[Any]:
    names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
    return [event for event in tab.events if event["method"] in names]


# --- what it looks like --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plausible", "none", "one", "hostile", "unmeasured", "supported", "flat", "counted"])
def test_it_fits_its_window_and_says_nothing_to_the_console(tab: Tab, pages: dict[str, Path], name: str) -> None:
    for width in (PHONE, TABLET, DESK):
        tab.open(pages[name], width)
        do(tab, "document.querySelector('#map button')?.click()")
        assert tab.ask("document.documentElement.scrollWidth") <= width
        asked = [e["params"]["request"]["url"] for e in tab.events if e["method"] == "Network.requestWillBeSent"]
        assert asked == [pages[name].as_uri()]
        assert problems(tab) == []


def test_details_say_how_many_chose_each_keyword_and_which_are_the_programs(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["supported"], DESK)
    find(tab, "actors")
    press(tab, "Enter")
    lines = "[...document.querySelectorAll('#detail .words li')].map(line => line.innerText)"
    until(tab, lines, ["films: 41 of 165", "actors: 20 of 165, the program's own"])


def test_counted_answers_have_their_margins_and_begin_at_zero(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["counted"], DESK)
    margin = record_of().facts["margin of error of a count, 95 %"]
    find(tab, "kettle")
    press(tab, "Enter")
    until(tab, "document.querySelector('#detail-kind').textContent", "Answer")
    line = f"312 ±{margin} units; margin of error 95 %, of the noise alone."
    until(tab, "document.querySelector('#detail-body p').innerText.split(' In ')[0]", line)
    do(tab, "document.querySelectorAll('#tree li')[0].querySelector('.name').click()")
    until(tab, "document.querySelector('#detail-kind').textContent", "Question")
    assert "-7" not in tab.ask("document.querySelector('#tree').innerText").replace("\u2212", "-")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_what_is_chosen_is_seen_without_scrolling(tab: Tab, pages: dict[str, Path], width: int) -> None:
    tab.open(pages["plausible"], width)
    do(tab, "document.querySelectorAll('#tree li')[1].querySelector('.name').click()")
    box = "document.querySelector('#detail h3').getBoundingClientRect()"
    assert tab.ask("document.querySelector('#detail h3').innerText") == "Cover letters"
    assert 0 < tab.ask(f"{box}.top") < tab.ask(f"{box}.bottom") <= 800


@pytest.mark.parametrize("dark", [False, True])
def test_colours_can_be_read(tab: Tab, pages: dict[str, Path], dark: bool) -> None:
    tab.open(pages["plausible"], DESK, dark=dark)
    do(tab, "document.querySelector('#map button').click()")
    do(tab, "document.querySelectorAll('#map button')[1].click()")
    paper = as_hex(tab.ask("getComputedStyle(document.body).backgroundColor"))
    assert (contrast(paper, "#ffffff") > 10) == dark
    cell, chosen = "document.querySelector('.cell')", "document.querySelector('[aria-selected=true] > .row')"
    tinted = {one: as_hex(tab.ask(f"getComputedStyle({one}).backgroundColor")) for one in (cell, chosen)}
    for where, behind in (
        (f"{cell}.querySelector('.name')", tinted[cell]),
        (f"{cell}.querySelector('.about')", tinted[cell]),
        (f"{chosen}.querySelector('.size')", tinted[chosen]),
        ("document.querySelector('#tree .size')", paper),
        ("document.querySelector('#detail-body .soft')", paper),
        ("document.querySelector('#path button')", paper),
    ):
        assert contrast(as_hex(tab.ask(f"getComputedStyle({where}).color")), behind) >= 4.5, where
    edge = as_hex(tab.ask("getComputedStyle(document.querySelector('.cell[aria-current]')).borderTopColor"))
    assert contrast(edge, tinted[cell]) >= 3


def test_what_is_chosen_is_told_by_more_than_colour(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelector('#map button').click()")
    do(tab, "document.querySelectorAll('#map button')[1].click()")
    widths = tab.ask("[...document.querySelectorAll('.cell')].map(e => parseInt(getComputedStyle(e).borderTopWidth))")
    assert sorted(widths) == [1, 1, 1, 3]
    assert "inset" in tab.ask("getComputedStyle(document.querySelector('[aria-selected=true] > .row')).boxShadow")


# --- the map -------------------------------------------------------------------------------------------------------


def areas(tab: Tab) -> list[list[float]]:
    box = "e => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }"
    found: list[list[float]] = tab.ask(f"[...document.querySelectorAll('.cell')].map({box})")
    return found


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_areas_are_as_sizes_and_do_not_overlap(tab: Tab, pages: dict[str, Path], width: int) -> None:
    tab.open(pages["sixty"], width)
    boxes = areas(tab)
    sizes = sorted((node.size or 0 for node in EVERY["sixty"] if node.level), reverse=True)
    units = [wide * high / size for (_, _, wide, high), size in zip(boxes, sizes, strict=True)]
    assert max(units) == pytest.approx(min(units), rel=0.02)
    for number, (left, top, wide, high) in enumerate(boxes):
        for a, b, c, d in boxes[number + 1 :]:
            across = min(left + wide, a + c) - max(left, a)
            along = min(top + high, b + d) - max(top, b)
            assert across < 0.1 or along < 0.1


def test_what_has_no_size_is_not_drawn_and_is_told(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["hostile"], DESK)
    assert areas(tab)[1:] == []
    assert tab.ask("document.querySelector('#map-note').innerText") == (
        "Not drawn: 1 topic with a noisy size of zero or below."
    )
    tab.open(pages["unmeasured"], DESK)
    assert areas(tab) == []
    assert "whose size was not measured" in tab.ask("document.querySelector('#map-note').innerText")


def test_a_group_opens_and_the_path_leads_back(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelectorAll('#map button')[1].click()")
    assert tab.ask("[...document.querySelectorAll('.cell .name')].map(e => e.innerText)") == [
        "Errors in Python", "SQL queries", "Web pages", "Regular expressions",
    ]  # fmt: skip
    do(tab, "document.querySelector('#path button').click()")
    assert len(areas(tab)) == 4
    assert tab.ask("document.querySelector('#path').innerText") == "All insights"


def test_the_map_follows_its_window(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["sixty"], DESK)
    before = tab.ask("document.querySelector('#map').clientWidth")
    tab.send("Emulation.setDeviceMetricsOverride", width=1000, height=800, deviceScaleFactor=1, mobile=False)
    right = "Math.round(Math.max(...[...document.querySelectorAll('.cell')].map(e => e.offsetLeft + e.offsetWidth)))"
    until(tab, f"{right} === document.querySelector('#map').clientWidth", True)
    assert tab.ask("document.querySelector('#map').clientWidth") != before


# --- by keyboard ---------------------------------------------------------------------------------------------------


def test_the_tab_key_leads_through_few_stops(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["sixty"], DESK)
    do(tab, "document.querySelector('#query').focus()")
    press(tab, "Tab")
    assert focused(tab).startswith("Group 5, about")
    press(tab, "Tab")
    assert tab.ask("document.activeElement.getAttribute('role')") == "treeitem"
    press(tab, "Tab")
    assert tab.ask("document.querySelector('#app').contains(document.activeElement)") is False


def test_the_tree_is_walked_with_arrows(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelector('#tree [tabindex=\"0\"]').focus()")
    assert focused(tab) == "Writing and editing, about 1,378 units"
    for key, name in (
        ("ArrowDown", "Cover letters"), ("End", "History"), ("ArrowUp", "Languages"), ("ArrowLeft", "Learning"),
        ("ArrowLeft", "Learning"), ("ArrowDown", "Learning"), ("ArrowUp", "Sleep"), ("Home", "Writing and editing"),
        ("ArrowRight", "Cover letters"), ("s", "Stories for children"), ("s", "SQL queries"),
        ("ArrowLeft", "Programming"),
        ("ArrowLeft", "Programming"), ("ArrowDown", "Health and food"), ("ArrowUp", "Programming"),
        ("ArrowRight", "Programming"), ("ArrowRight", "Errors in Python"),
    ):  # fmt: skip
        press(tab, key)
        assert focused(tab).startswith(f"{name}, about"), key
        assert tab.ask("document.querySelectorAll('#tree [tabindex=\"0\"]').length") == 1
    assert tab.ask("getComputedStyle(document.activeElement.firstChild).outlineStyle") == "solid"
    press(tab, "Enter")
    assert tab.ask("document.querySelector('#detail h3').innerText") == "Errors in Python"
    assert tab.ask("document.activeElement.getAttribute('aria-selected')") == "true"
    assert tab.ask("document.querySelectorAll('[aria-selected=true]').length") == 1
    press(tab, "Home", "ArrowLeft", "*")
    assert tab.ask("document.querySelectorAll('#tree > li[aria-expanded=true]').length") == 4


def test_the_map_is_walked_with_arrows(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelector('#map [tabindex=\"0\"]').focus()")
    press(tab, "ArrowRight")
    assert focused(tab).startswith("Programming, about 946 units, 4 topics inside")
    press(tab, "Enter")
    assert focused(tab).startswith("Errors in Python, about 277 units")
    press(tab, "End")
    assert focused(tab).startswith("Regular expressions, about 196")
    press(tab, "Home", "Enter")
    assert tab.ask("document.querySelector('#detail h3').innerText") == "Errors in Python"
    assert focused(tab).startswith("Errors in Python")
    press(tab, "Escape")
    assert tab.ask("document.querySelector('#path').innerText") == "All insights"
    assert tab.ask("document.querySelector('#map').contains(document.activeElement)") is True


def test_details_are_closed_and_the_focus_goes_back(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], PHONE)
    do(tab, "document.querySelector('#tree [tabindex=\"0\"]').focus()")
    press(tab, "ArrowDown", "Enter")
    do(tab, "document.querySelector('#close').focus()")
    press(tab, "Escape")
    assert focused(tab).startswith("Cover letters")
    assert tab.ask("getComputedStyle(document.querySelector('#detail')).display") == "none"
    assert tab.ask("document.querySelectorAll('[aria-selected=true], .cell[aria-current]').length") == 0


# --- search --------------------------------------------------------------------------------------------------------


def test_words_are_found_wherever_they_stand(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    for query, name in (
        ("regular EXP", "Regular expressions"), ("pandas", "Errors in Python"), ("wars paragraph", "History"),
        ("\u00e9ssay gr\u00e4mmar", "Proofreading essays"),
    ):  # fmt: skip
        find(tab, query)
        until(tab, "[...document.querySelectorAll('#results .name')].map(e => e.innerText)", [name])
        assert tab.ask("document.querySelector('#found').textContent") == "1 of 18 insights found."
    press(tab, "ArrowDown")
    assert focused(tab).startswith("Proofreading essays")
    press(tab, "Enter")
    assert tab.ask("document.querySelector('#detail h3').innerText") == "Proofreading essays"
    press(tab, "Escape")
    assert focused(tab) == "query"
    assert tab.ask("document.querySelector('#tree').checkVisibility()") is True
    assert tab.ask("document.querySelector('#found').textContent") == ""


def test_nothing_found_is_told(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    find(tab, "zebra")
    assert tab.ask("document.querySelector('#found').textContent") == "0 of 18 insights found."
    press(tab, "ArrowDown", "Enter")
    assert focused(tab) == "query"


def test_on_a_phone_what_is_found_follows_the_search(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], PHONE)
    find(tab, "pandas")
    assert tab.ask("document.querySelector('#results button').getBoundingClientRect().bottom") < 800
    press(tab, "Escape")
    until(tab, "document.querySelectorAll('.cell').length", 4)
    assert min(high for _, _, _, high in areas(tab)) > 0


def test_hostile_words_are_found_and_shown_as_they_are(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["hostile"], DESK)
    title = tab.ask("document.title")
    find(tab, "</script>")
    until(tab, "document.querySelectorAll('#results button').length", 1)
    press(tab, "Enter")
    assert "</script><script>" in tab.ask("document.querySelector('#detail h3').innerText")
    assert tab.ask("document.title") == title
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert tab.ask("document.scripts.length") == 2


# --- to a screen reader --------------------------------------------------------------------------------------------


def test_a_screen_reader_is_told_everything(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelector('#map button').click()")
    told = spoken(tab)
    [tree] = [one for one in told if one["role"] == "tree"]
    assert tree["name"] == "Tree"
    items = [one for one in told if one["role"] == "treeitem"]
    assert len(items) == 18
    levels = {one["name"]: one["level"] for one in items}
    assert levels["Writing and editing, about 1,378 units"] == 1
    assert levels["Cover letters, about 385 units"] == 2
    assert [one["selected"] for one in items].count(True) == 1
    assert [one.get("expanded") for one in items].count(True) == 4
    for role in ("button", "treeitem", "searchbox", "link", "group", "region", "navigation", "search", "heading"):
        named = [one["name"] for one in told if one["role"] == role]
        assert role in ("group", "search") or (named and all(named)), role
    assert [one["live"] for one in told if one["role"] == "status"] == ["polite"]
    places = tab.ask(
        "[...document.querySelectorAll('[role=treeitem]')].map(e => [e.ariaPosInSet, e.ariaSetSize].map(Number))"
    )
    assert places[:6] == [[1, 4], [1, 4], [2, 4], [3, 4], [4, 4], [2, 4]]


def test_headings_have_no_gaps(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK)
    do(tab, "document.querySelector('#map button').click()")
    levels = tab.ask(
        "[...document.querySelectorAll('h1,h2,h3,h4')].filter(e => e.checkVisibility()).map(e => +e.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


# --- safety, paper, no script, very many ---------------------------------------------------------------------------


def test_no_other_script_and_no_markup_of_strings(tab: Tab, pages: dict[str, Path], tmp_path: Path) -> None:
    """The second wall: were a text ever let through as markup, the page's own policy stops it."""
    broken = tmp_path / "broken.html"
    evil = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    broken.write_text(pages["plausible"].read_text().replace('<main id="insights">', f'<main id="insights">{evil}'))
    tab.open(broken, DESK)
    assert tab.ask("document.title") != "run"
    assert tab.ask("document.querySelectorAll('.cell').length") == 4, "its own script runs"
    said = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (e) { return e.name; } })()"
    assert tab.ask(said) == "TypeError"


def test_a_changed_script_does_not_run(tab: Tab, pages: dict[str, Path], tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(
        pages["plausible"].read_text().replace('"use strict";\n', '"use strict";document.title="run";\n')
    )
    tab.open(changed, DESK)
    assert tab.ask("document.title") != "run"
    assert tab.ask("document.querySelector('#all').checkVisibility()") is True


@pytest.mark.parametrize("name", ["plausible", "hostile"])
def test_without_a_script_it_is_a_list_to_unfold(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name], PHONE, script=False)
    assert tab.ask("document.querySelector('#app').checkVisibility()") is False
    assert tab.ask("document.documentElement.scrollWidth") <= PHONE
    assert tab.ask("document.querySelectorAll('#all summary').length") == len(EVERY[name])
    do(tab, "[...document.querySelectorAll('details')].forEach(e => { e.open = true; })")
    said = " ".join(tab.ask("document.querySelector('#all').innerText").split())
    if name == "plausible":
        for node in EVERY[name]:
            assert f"{node.topic.name} about" in said
            assert node.topic.description in said
            assert " · ".join(node.keywords) in said


def test_on_paper_there_is_every_description(tab: Tab, pages: dict[str, Path]) -> None:
    tab.open(pages["plausible"], DESK, dark=True)
    pdf = tab.printed()
    assert 2 <= pdf.count(b"/Type /Page\n") <= 8
    tab.send("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert as_hex(tab.ask("getComputedStyle(document.body).backgroundColor")) == "#ffffff"
    assert tab.ask("document.querySelector('#app').checkVisibility()") is False
    heights = tab.ask("[...document.querySelectorAll('#all p')].map(e => e.getBoundingClientRect().height)")
    tab.send("Emulation.setEmulatedMedia", media="")
    assert len(heights) == 2 * 14 + 3 * 4, "a description, keywords, and of groups the noise of their size"
    assert min(heights) > 0


@pytest.mark.parametrize("name", ["many", "flat"])
def test_of_very_many_only_what_is_looked_at_is_made(tab: Tab, pages: dict[str, Path], name: str) -> None:
    tab.open(pages[name], DESK)
    roots = sum(node.parent is None for node in EVERY[name])
    assert tab.ask("document.querySelectorAll('[role=treeitem]').length") == roots
    assert 12 <= len(areas(tab)) <= 100
    find(tab, "SUBJECT people")
    until(tab, "document.querySelector('#found').textContent.startsWith('4,000 of')", True)
    assert tab.ask("document.querySelectorAll('#results li').length") == 100
    assert "the first 100 are listed" in tab.ask("document.querySelector('#found').textContent")
    find(tab, "topic 3999")
    until(tab, "document.querySelector('#results .name').innerText", "Topic 3999")
    press(tab, "Enter")
    assert tab.ask("document.querySelector('#detail h3').innerText") == "Topic 3999"
    press(tab, "Escape")
    chosen = "document.querySelector('[aria-selected=true] > .row').getBoundingClientRect()"
    assert tab.ask(f"{chosen}.height") > 0
    do(tab, "document.querySelector('#tree [tabindex=\"0\"]').focus()")
    press(tab, "Home", "End")
    assert tab.ask("document.activeElement.getAttribute('role')") == "treeitem"


def test_what_is_wrong_would_be_found(tab: Tab, pages: dict[str, Path], tmp_path: Path) -> None:
    """Names that are missing, and a page that is too wide, are seen to be: the measures work."""
    wide = tmp_path / "wide.html"
    extra = "<button></button><p>" + "x" * 300 + "</p>"
    wide.write_text(pages["plausible"].read_text().replace('<main id="insights">', f'<main id="insights">{extra}'))
    tab.open(wide, PHONE)
    assert tab.ask("document.documentElement.scrollWidth") > PHONE
    assert not all(one["name"] for one in spoken(tab) if one["role"] == "button")
