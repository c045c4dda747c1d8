"""The page: well formed, self-contained, readable by everybody, and nothing in it but text where texts are shown."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest

from tasks.release.sections import WARNINGS, Warnings
from tasks.reporting.html_report import page, report_html
from tasks.reporting.release_sections import release_facts
from tasks.reporting.report_parts import AudienceFact, contents
from tests.unit.tasks.publishing.builders import BASELINE, a_record, a_request
from tests.unit.tasks.reporting.a_report import NASTY, TEXTS, the_facts, the_metrics, the_record

VOID = {"meta", "wbr", "br", "img", "input", "link", "hr", "rect", "line", "circle"}


class Tree(HTMLParser):
    """A page read strictly: every tag that is opened is closed, in its order.

    Attributes:
        tags: (tag, attributes), in order.
        text: everything that is shown, or read aloud.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def every(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for found, attrs in self.tags if found == tag]


@pytest.fixture(params=["public", "steward", "internal"])
def html(request: pytest.FixtureRequest) -> str:
    return report_html(the_facts(), request.param)


def test_it_is_well_formed_and_says_what_it_is(html):
    tree = Tree(html)
    assert html.startswith("<!DOCTYPE html>")
    assert tree.every("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in tree.every("meta")
    assert any(meta.get("name") == "viewport" for meta in tree.every("meta"))
    assert len(tree.every("title")) > 1  # the page's and those of its pictures


def test_it_loads_nothing_and_runs_nothing(html):
    """No script, no frame, no address: of the page's own places and of words in texts alone."""
    tree = Tree(html)
    assert {tag for tag, _ in tree.tags} & {
        "script",
        "iframe",
        "object",
        "embed",
        "img",
        "link",
        "form",
        "base",
    } == set()
    for tag, attrs in tree.tags:
        for name, value in attrs.items():
            assert not name.startswith("on")
            assert name not in ("src", "srcset", "style", "action", "xlink:href")
            if name == "href":
                assert (tag, (value or "")[0]) == ("a", "#")
    [policy] = [m["content"] for m in tree.every("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    style = html.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    outside = html.replace("https://example.org/x", "")  # of the text that tries to be more than one
    assert re.findall(r"(?:https?:)?//[a-z]", outside) == []


def test_whatever_stands_in_a_text_is_text(html):
    tree = Tree(html)
    assert "<script" not in html
    assert "<img" not in html
    shown = NASTY.replace("\u202e", r"\u202e")
    assert shown in tree.text
    assert "\u202e" not in html


@pytest.mark.parametrize("sign", ["\u202e", "\u2066", "\x1b", "\x00", "\u2028", "\u200b", "\ufeff", "\ud800"])
def test_signs_that_steer_are_spelt_out_wherever_they_stand(sign):
    said = report_html([*the_facts(), AudienceFact("ledger", Warnings(WARNINGS, (f"be{sign}ware",)))], "steward")
    assert sign not in said
    assert f"be{sign.encode('unicode_escape').decode()}ware" in said


def test_joiners_line_breaks_and_other_scripts_stay():
    for kept in ("می\u200cخواهم", "क्\u200dष", "two\nlines", "a\tb", "שלום", "日本"):
        assert kept in report_html([*the_facts(), AudienceFact("ledger", Warnings(WARNINGS, (kept,)))], "steward")


def test_headings_go_down_one_step_at_a_time(html):
    levels = [int(tag[1]) for tag, _ in Tree(html).tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_names_of_places_are_unique_and_whatever_refers_to_one_finds_it(html):
    tree = Tree(html)
    names = [attrs["id"] for _, attrs in tree.tags if "id" in attrs]
    assert len(names) == len(set(names))
    wanted = {(attrs["href"] or "")[1:] for attrs in tree.every("a")}
    for _, attrs in tree.tags:
        wanted |= set((attrs.get("aria-labelledby") or "").split())
    assert wanted <= set(names)


def test_every_table_has_a_caption_and_heads_with_a_scope(html):
    tree = Tree(html)
    tables = [n for n, (tag, _) in enumerate(tree.tags) if tag == "table"]
    assert tables
    assert all(tree.tags[n + 1][0] == "caption" for n in tables)
    assert all(attrs.get("scope") in ("col", "row", "rowgroup") for attrs in tree.every("th"))


def test_every_picture_has_a_title_and_a_description(html):
    tree = Tree(html)
    pictures = [n for n, (tag, _) in enumerate(tree.tags) if tag == "svg"]
    assert pictures
    for n in pictures:
        attrs = tree.tags[n][1]
        leads_to_texts = attrs["aria-labelledby"].startswith("map-") and 'href="#text-' in html
        assert attrs["role"] == ("group" if leads_to_texts else "img")
        named = (attrs["aria-labelledby"] or "").split()
        assert [(tag, found.get("id")) for tag, found in tree.tags[n + 1 : n + 3]] == [
            ("title", named[0]),
            ("desc", named[1]),
        ]


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every text and number of a report, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{at}.{key}")
    elif isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each, at)
    elif value is not None and not isinstance(value, bool):
        yield at, str(value)


def test_the_page_says_everything_that_the_json_says(html):
    version = next(v for v in ("public", "steward", "internal") if report_html(the_facts(), v) == html)
    said = contents(version, the_facts())
    shown = re.sub(r"\s+", "", Tree(html).text)
    marks = {"\u202e": r"\u202e"}
    missing = [
        (at, value)
        for at, value in leaves(said)
        if at
        not in (
            ".format",
            ".version",
            ".map.points",
            ".map.clusters.x",
            ".map.clusters.y",
            ".lengths.edges",
            ".decisions.override",
            ".sections.kind",
            ".sections.empty",
            ".sections.audience",
        )
        and re.sub(r"\s+", "", "".join(marks.get(sign, sign) for sign in value)) not in shown
    ]
    assert missing == []


def test_it_is_the_same_to_the_byte_every_time():
    assert report_html(the_facts(), "steward") == page(contents("steward", list(the_facts())))


@pytest.mark.parametrize("version", ["public", "steward", "internal"])
def test_a_bare_release_has_a_page_too(version):
    """No measurement, no bound, no text, nothing of the ledger."""
    bare = list(release_facts(a_record(), (), ()))
    text = Tree(report_html(bare, version)).text
    assert "Nothing was measured" in text
    assert ("Nobody has attacked a twin" in text) == (version != "public"), "a bundle does not know"
    assert "There are none." in text


def test_a_release_without_a_claim_says_so_first():
    baseline = {
        name: BASELINE[name] for name in BASELINE if name not in ("references", "top_k", "max_reference_tokens")
    }
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, parameters=baseline)
    record = a_record(request, lifetime=None, second_opinion=None)
    text = Tree(report_html(release_facts(record, (), TEXTS))).text
    assert "no claim" in text
    assert "No differential privacy is claimed for this release." in text
    assert "Who is protected" not in text


def test_a_bound_that_is_missed_is_seen_at_a_glance():
    text = " ".join(Tree(report_html(release_facts(the_record(), the_metrics(), TEXTS))).text.split())
    assert "1 of 3 missed" in text
    assert "length.empty is 1, allowed is at most 0" in text


STYLE = files("tasks.reporting").joinpath("templates/style.css").read_text()


def palettes() -> Iterator[dict[str, str]]:
    """The colours of each block that sets them: light, dark, print."""
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL):
        yield dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance and contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_can_be_read_in_every_colour_scheme():
    """4.5:1 for text on each paper it stands on, 3:1 for marks of a picture (WCAG 2.2, 1.4.3 and 1.4.11)."""
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    found = list(palettes())
    assert len(found) == 3
    for colours in found:
        for text in ("ink", "soft", "accent", "good", "bad", "care"):
            assert contrast(colours[text], colours["paper"]) >= 4.5, text
            assert contrast(colours[text], colours["card"]) >= 4.5, text
        for paper in ("care-paper", "bad-paper"):
            assert contrast(colours["ink"], colours[paper]) >= 4.5
        for mark in ("other", "accent", "held", "k0", "k1", "k2", "k3", "k4", "k5"):
            assert contrast(colours[mark], colours["paper"]) >= 3, mark
