"""The explorer: well formed, self-contained, the same for the same release, and nothing in it but text."""

import json
import re
from base64 import b64encode
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest

from tasks.mechanisms.core.uncharged import uncharged
from tasks.release.record import ReleaseRecord
from tasks.reporting.html_explorer import explorer_html, size_words
from tasks.systems.insights.wording import keyword_notes
from tasks.values.results import UNNAMED, Insight, Topic
from tests.insights_rows import (
    NASTY,
    hostile,
    insights_record,
    insights_request,
    known,
    many,
    plausible,
    supported,
    unmeasured,
)
from tests.unit.tasks.publishing.builders import a_request, invocation
from tests.unit.tasks.reporting.test_html_report import Tree

EVERY = {
    "plausible": plausible(), "none": (), "one": many(1, 0), "sixty": many(60, 8), "hostile": hostile(),
    "unmeasured": unmeasured(), "supported": supported(),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch)


@pytest.fixture(params=EVERY)
def nodes(request: pytest.FixtureRequest) -> tuple[Insight, ...]:
    return EVERY[request.param]


class Page(Tree):
    """A page with a script, read strictly; the text has neither that nor its data."""

    def handle_data(self, data: str) -> None:
        if "script" not in self._open:
            super().handle_data(data)


def between(html: str, start: str, end: str) -> str:
    return html.partition(start)[2].partition(end)[0]


def data_of(html: str) -> Any:
    return json.loads(between(html, '<script id="data" type="application/json">', "</script>"))


def unclaimed() -> ReleaseRecord:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]}
    asked = insights_request(plan=plan) | {"governed": False, "epsilon": None, "delta": None}
    return insights_record(a_request(**asked), lifetime=None, second_opinion=None)


def test_it_is_well_formed_and_the_same_every_time(nodes: tuple[Insight, ...]) -> None:
    html = explorer_html(insights_record(), nodes)
    assert html == explorer_html(insights_record(), nodes)
    tree = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert tree.every("html") == [{"lang": "en"}]
    ids = [attrs["id"] for _, attrs in tree.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in tree.tags:
        for name in ("aria-labelledby", "aria-describedby", "for"):
            assert set((attrs.get(name) or "").split()) <= set(ids)


def test_it_loads_nothing_and_runs_one_script(nodes: tuple[Insight, ...]) -> None:
    html = explorer_html(insights_record(), nodes)
    tree = Page(html)
    forbidden = {"iframe", "object", "embed", "img", "link", "form", "base", "svg"}
    assert not {tag for tag, _ in tree.tags} & forbidden
    assert tree.every("script") == [{"id": "data", "type": "application/json"}, {}]
    for tag, attrs in tree.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "style", "action") for name in attrs)
        assert "href" not in attrs or (tag, (attrs["href"] or "")[0]) == ("a", "#")
    style = between(html, "<style>", "</style>")
    assert "url(" not in style
    assert "@import" not in style
    assert re.findall(r"(?:https?:)?//[a-z]", html.replace("// -", "")) == []


def test_its_policy_names_exactly_its_script_and_its_style() -> None:
    html = explorer_html(insights_record(), plausible())
    [policy] = [m["content"] for m in Page(html).every("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts["trusted-types"] == "'none'"
    assert parts["require-trusted-types-for"] == "'script'"
    for name, start, end in (("style", "<style>", "</style>"), ("script", "<script>", "</script>")):
        digest = b64encode(sha256(between(html, start, end).encode()).digest()).decode()
        assert parts[f"{name}-src"] == f"'sha256-{digest}'"


def test_its_data_is_the_rows_and_cannot_end_its_script(nodes: tuple[Insight, ...]) -> None:
    html = explorer_html(insights_record(), nodes)
    stored = between(html, '<script id="data" type="application/json">', "</script>")
    assert not set(stored) & set("<>&\u2028\u2029")
    rows = data_of(html)["rows"]
    assert [(row[0] or None, row[1], row[5]) for row in rows] == [(n.parent, n.level, n.size) for n in nodes]
    assert [len(row[4]) for row in rows] == [len(node.keywords) for node in nodes]
    if nodes == plausible():
        assert [(row[2], row[3], tuple(row[4])) for row in rows] == [
            (node.topic.name, node.topic.description, node.keywords) for node in nodes
        ]


def test_whatever_stands_in_a_row_is_text() -> None:
    html = explorer_html(insights_record(), hostile())
    assert "<img" not in html
    assert html.count("<script") == 2
    tree = Page(html)
    assert NASTY in tree.text
    assert data_of(html)["rows"][0][2] == NASTY
    for sign in "\u202e\u2066\u2069\u2028\u2029":
        assert sign not in html
    assert "a\\u202eb" in tree.text
    assert "{{ 7 * 7 }}" in tree.text


def test_a_name_of_the_dataset_is_text_too() -> None:
    record = insights_record()
    nasty = record.model_copy(update={"dataset": record.dataset.model_copy(update={"name": NASTY})})
    html = explorer_html(nasty, plausible())
    assert html.count("<script") == 2
    assert NASTY in Page(html).text


def test_without_a_script_every_word_is_there(nodes: tuple[Insight, ...]) -> None:
    said = " ".join(Page(explorer_html(insights_record(), nodes)).text.split())
    for node in nodes if nodes != hostile() else nodes[3:4]:
        for words in (node.topic.name, node.topic.description, *node.keywords):
            assert " ".join(words.split()) in said
        if node.size is not None:
            assert size_words(node.size, noisy=True) in said


def test_the_list_has_the_order_and_depth_of_the_hierarchy() -> None:
    html = between(explorer_html(insights_record(), plausible()), '<section id="all"', "</section>")
    names = re.findall(r'<summary><span dir="auto">(.*?)</span>', html)
    below = {node.number: [n.topic.name for n in plausible() if n.parent == node.number] for node in plausible()}
    assert names == [name for node in plausible() if node.level for name in (node.topic.name, *below[node.number])]
    assert html.count("<ul") == 5


def test_noise_of_a_group_is_that_of_its_clusters_together() -> None:
    rows = data_of(explorer_html(insights_record(), plausible()))["rows"]
    assert [row[6] for row in rows[:5]] == ["7.75", "7.75", "6.71", "6.71", "3.87"]
    assert [row[6] for row in data_of(explorer_html(insights_record(), unmeasured()))["rows"]] == [None] * 3
    three = data_of(explorer_html(insights_record(), hostile()))["rows"]
    assert [row[6] for row in three] == ["6.71", "3.87", "5.48", "3.87", "3.87", "3.87"]


def test_sizes_in_words() -> None:
    assert size_words(12345, noisy=True) == "about 12,345 units"
    assert size_words(-1200, noisy=True) == "about \u22121,200 units"
    assert size_words(1, noisy=False) == "1 unit"
    assert size_words(0, noisy=True) == "about 0 units"


def test_it_says_what_is_promised_and_what_a_size_is() -> None:
    said = Page(explorer_html(insights_record(), plausible())).text
    for words in (
        "Private: epsilon 4 at delta 1e-7 for each id.",
        "standard deviation of 3.87 units",
        "noisy size below 12 are left out",
        "at most 54.6 times as likely",
        "What it does not promise",
        "14 topics in 4 groups",
    ):
        assert words in said, words


def test_of_public_data_it_says_that_nothing_is_promised() -> None:
    html = explorer_html(unclaimed(), plausible())
    said = Page(html).text
    assert "No differential privacy is claimed for this release." in said
    assert "counts without noise" in said
    assert "about 385" not in said
    assert "385 units" in said
    assert data_of(html)["noisy"] is False
    assert "from released keywords alone" not in said


def test_of_nothing_it_says_so() -> None:
    html = explorer_html(insights_record(), ())
    assert "There are no insights" in Page(html).text
    assert 'id="all"' not in html


def test_a_long_list_is_made_of_its_rows_alone() -> None:
    """Four thousand are no more than a few megabytes, most of them words."""
    nodes = many(4000, 60)
    words = sum(len(node.topic.description) + len(" ".join(node.keywords)) for node in nodes)
    assert len(explorer_html(insights_record(), nodes)) < 10 * words


def test_no_name_is_a_name() -> None:
    html = explorer_html(insights_record(), (Insight(1, None, 0, Topic("", "x"), (), 20),))
    assert "(no name)" in Page(html).text


def test_every_keyword_has_its_support_beside_it_and_public_ones_are_marked() -> None:
    html = explorer_html(insights_record(), supported())
    films = data_of(html)["rows"][3]
    assert films[4] == ["films", "actors"]
    assert films[7] == ["41 of 165", "20 of 165, the program's own"]
    assert data_of(html)["rows"][5][7] == ["25 of 200, the request's own"]
    assert '<bdi>films</bdi> <span class="soft">(41 of 165)</span>' in html
    assert data_of(explorer_html(insights_record(), plausible()))["rows"][4][7] == []


def test_the_noise_of_a_count_grows_with_the_clusters_that_it_is_a_sum_of() -> None:
    group, *_, nameless = supported()
    assert keyword_notes(group, Decimal("2.1909")) == (
        "72 of 255 (\N{PLUS-MINUS SIGN}8)",
        "22 of 255 (\N{PLUS-MINUS SIGN}8), the program's own",
    )
    below = replace(group, support=(-3, 0), size=-7)
    assert keyword_notes(below, None)[0] == "\N{MINUS SIGN}3 of \N{MINUS SIGN}7"
    assert keyword_notes(nameless, Decimal(2)) == ()


def test_the_share_of_people_in_no_named_topic_stands_at_the_top() -> None:
    named, nameless = many(2, 0)
    nodes = (replace(named, size=61), replace(nameless, size=39, topic=Topic(UNNAMED, "No keyword.")))
    header = between(explorer_html(insights_record(), nodes), "<header>", "</header>")
    assert "About 39 % of the people in these topics are in no named one" in header
    assert "no named one" not in explorer_html(insights_record(), (named,))
