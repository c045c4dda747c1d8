"""Releases of insights, made by hand: plausible hierarchies, hostile ones, and the record that they belong to."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount
from tasks.decoding.run_context import RunContext
from tasks.mechanisms.tokens.integer_table import calibrate
from tasks.release.record import ReleaseRecord
from tasks.systems import registry
from tasks.systems.base import System
from tasks.values.plan import Plan, PlanInputs
from tasks.values.results import (
    MIXED,
    SIZE_DEVIATION,
    SMALLEST_CLUSTER,
    UNNAMED,
    Generated,
    Insight,
    Origin,
    ReleaseKind,
    Topic,
)
from tests.support import substitute
from tests.unit.tasks.publishing.builders import a_record, a_request

LEAST, MOST = 12, 5000
DEVIATION = "3.872983"
THEMES: dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "Writing and editing": (
        ("Cover letters", "People ask for cover letters and shorter versions of them.", ("job", "letter", "tone")),
        ("Proofreading essays", "Essays are checked for grammar and flow.", ("essay", "grammar", "student")),
        ("Stories for children", "Short stories with animals, to be read aloud.", ("story", "children", "animals")),
        ("Marketing copy", "Slogans and product pages for small shops.", ("slogan", "product", "shop")),
    ),
    "Programming": (
        ("Errors in Python", "Tracebacks are explained and mended.", ("python", "error", "pandas", "traceback")),
        ("SQL queries", "Joins and windows are written from a description.", ("sql", "join", "query")),
        ("Web pages", "Layouts in CSS that do not do what they should.", ("css", "html", "layout", "button")),
        ("Regular expressions", "Patterns that match dates and addresses.", ("regex", "pattern", "date")),
    ),
    "Health and food": (
        ("Recipes from what is there", "Dinner out of a few ingredients.", ("recipe", "dinner", "rice", "beans")),
        ("Training plans", "Weekly plans for running and strength.", ("running", "plan", "week", "strength")),
        ("Sleep", "How to fall asleep and stay asleep.", ("sleep", "evening", "habit")),
    ),
    "Learning": (
        ("School mathematics", "Equations and proofs step by step.", ("equation", "proof", "step")),
        ("Languages", "Vocabulary, and why a phrase is said like that.", ("spanish", "phrase", "vocabulary")),
        ("History", "Causes of wars, in the length of a paragraph.", ("war", "empire", "century")),
    ),
}
NASTY = '</script><script>document.title="run"</script><img src=x onerror=\'document.title="run"\'>&amp;<!--'
HEBREW, ARABIC = "שאלות על בישול", "أسئلة عن الطبخ"
PARAMETERS: dict[str, Any] = {"clusters": {"count": MOST}}


def plausible() -> tuple[Insight, ...]:
    """Four groups with fourteen clusters below them."""
    groups = list(enumerate(THEMES.items(), 1))
    clusters = [(group, *each) for group, (_, below) in groups for each in below]
    placed = [
        Insight(number, group, 0, Topic(name, text), keywords, 412 - 27 * (number - len(groups)))
        for number, (group, name, text, keywords) in enumerate(clusters, len(groups) + 1)
    ]
    return with_clusters((*(_above(number, name, placed) for number, (name, _) in groups), *placed))


def _above(number: int, name: str, below: Sequence[Insight]) -> Insight:
    own = [node for node in below if node.parent == number]
    words = tuple(node.keywords[0] for node in own)
    size = sum(node.size or 0 for node in own)
    return Insight(number, None, 1, Topic(name, f"{name}: {len(own)} topics."), words, size)


def many(clusters: int, groups: int) -> tuple[Insight, ...]:
    """Groups on one level with clusters below them; of 0 groups, clusters alone."""
    placed = [
        Insight(
            groups + number,
            1 + number % groups if groups else None,
            0,
            Topic(f"Topic {number}", f"People ask about subject {number} in some words of their own, again and again."),
            tuple(f"word{number * 7 + place}" for place in range(6)),
            LEAST + (number * 7919) % 977,
        )
        for number in range(1, clusters + 1)
    ]
    return with_clusters((*(_above(number, f"Group {number}", placed) for number in range(1, groups + 1)), *placed))


def hostile() -> tuple[Insight, ...]:
    """Markup, scripts from right to left, signs that steer, long words, nothing at all, and sizes below zero."""
    return with_clusters((
        Insight(1, None, 2, Topic(NASTY, NASTY), (NASTY, "a\u202eb", "x" * 300), -7),
        Insight(2, 1, 1, Topic("", ""), (), -31),
        Insight(3, 1, 1, Topic(HEBREW, f"{ARABIC} \u2066and back\u2069 \u2028\u2029"), (HEBREW, ARABIC), 24),
        Insight(4, 2, 0, Topic("W" * 200, "long " * 400), tuple(f"keyword {n}" for n in range(50)), -31),
        Insight(5, 3, 0, Topic("\U0001f600 `code` **bold** {{ 7 * 7 }}", "\\u003c ${1} {% raw %}"), ("=1+1",), 0),
        Insight(6, 3, 0, Topic("\t \n", "line\nline"), ("a", "a"), 24),
    ))  # fmt: skip


def unmeasured() -> tuple[Insight, ...]:
    """A group of two without sizes."""
    return with_clusters((
        Insight(1, None, 1, Topic("Both", "Two."), ("a",), None),
        Insight(2, 1, 0, Topic("One", "The first."), ("a", "b"), None),
        Insight(3, 1, 0, Topic("Other", "The second."), (), None),
    ))  # fmt: skip


def supported(times: int = 1) -> tuple[Insight, ...]:
    """Topics with support: a group, one whose topics share nothing, and one without a name; sizes times a number."""
    origins: tuple[Origin, ...] = ("selected", "built_in")
    clusters = (
        Insight(4, 1, 0, Topic("Films", "Films."), ("films", "actors"), 165, (41, 20), origins),
        Insight(
            5, 1, 0, Topic("films, songs", "Keywords: films, songs."), ("films", "songs"), 90, (31, 22), origins, 2
        ),
        Insight(6, 2, 0, Topic("Questions about taxes", "Taxes."), ("tax",), 200, (25,), ("request",)),
        Insight(7, 2, 0, Topic("code", "Keywords: code."), ("code",), 88, (60,), ("selected",)),
        Insight(8, 3, 0, Topic(UNNAMED, "No keyword has enough support."), (), 412, (), (), 4),
    )
    groups = (
        Insight(1, None, 1, Topic("films", "Two topics."), ("films", "songs"), 255, (72, 22), origins),
        Insight(2, None, 1, Topic(MIXED, "Two topics."), ("code", "tax"), 288, (60, 25), ("selected", "request")),
        Insight(3, None, 1, Topic(UNNAMED, "One topic."), (), 412, (), ()),
    )
    larger = [
        replace(node, size=times * (node.size or 0), support=tuple(times * count for count in node.support or ()))
        for node in (*groups, *clusters)
    ]
    return with_clusters(larger)


def clusters_below(insights: Sequence[Insight]) -> list[int]:
    """Return for each node the number of clusters that its size is a sum of, computed from those of level 0.

    The noise of clusters is drawn independently, so a sum of n sizes has sqrt(n) times the standard deviation of one.

    Args:
        insights: a hierarchy numbered from 1, parents before their children.
    """
    below = [0 if node.level else node.clusters for node in insights]
    for node in reversed(insights):
        if node.parent is not None:
            below[node.parent - 1] += below[node.number - 1]
    return below


def with_clusters(nodes: Sequence[Insight]) -> tuple[Insight, ...]:
    """The nodes with the numbers of clusters that groups have by those below them."""
    return tuple(replace(node, clusters=count) for node, count in zip(nodes, clusters_below(nodes), strict=True))


class AnyInsights(BaseModel):
    """`parameters:` of the system below."""

    clusters: dict[str, int]


class ByHand(System):
    """A system that makes insights out of one mechanism of a price that is known."""

    name = "by_hand"
    kinds: tuple[str, ...] = (ReleaseKind.INSIGHTS,)
    parameters: type[BaseModel] = AnyInsights

    def plan(self, ask: PlanInputs) -> Plan:
        assert ask.amount is not None
        event = calibrate(ask.amount.rho, 48, 7, "1").event(48)
        facts = {"k": str(MOST), SIZE_DEVIATION: DEVIATION, SMALLEST_CLUSTER: str(LEAST)}
        invocation = InvocationPlan(event, (Amount(event.loss.rho, event.loss.delta),))
        return Plan((invocation,), tuple(range(ask.blocks)), 0, facts, 1, 1, 1)

    def generate(self, plan: Plan, parameters: BaseModel, context: RunContext) -> Generated:
        raise NotImplementedError


def known(patch: Any) -> None:
    """Let almoner know the system `by_hand`; `patch` is pytest's monkeypatch."""
    substitute(patch, registry.SYSTEMS, ByHand.name, ByHand())


def insights_request(**changes: Any) -> dict[str, Any]:
    """A request for insights; the system must be known."""
    given = {
        "kind": ReleaseKind.INSIGHTS,
        "mechanism": ByHand.name,
        "parameters": PARAMETERS,
        "evaluation": ["length", "distinct"],
    }
    return a_request(**given | changes)


def insights_record(request: dict[str, Any] | None = None, **changes: Any) -> ReleaseRecord:
    """Its record."""
    asked = insights_request() if request is None else request
    released = {"clusters_released": "20", "clusters_kept": "14", "keywords_released": "180"}
    return a_record(asked, **{"released": released, **changes})


def described(nodes: Sequence[Insight]) -> Iterator[str]:
    """The texts of a release."""
    return (node.topic.description for node in nodes)
