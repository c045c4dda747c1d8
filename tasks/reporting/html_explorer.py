"""Insights explorer (`explorer.html`): the insights of a release as a map and a tree, without a network.

A function of the record and the rows alone, the same to the byte on every machine; it holds nothing that the other
files of the bundle do not hold. Words of people and models are shown as text: in the page they are escaped, and in the
data of its script nothing can end the script. The page's own content security policy allows one script and one style
sheet, each by its digest, no address, no frame, no form, no markup from strings.

Without a script the page is a list to unfold; that list is also printed.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from markupsafe import Markup

from tasks.common.published_values import rounded
from tasks.release.description import reading_of_insights, wording_of
from tasks.release.record import ReleaseRecord
from tasks.reporting.html_report import environment, escape_text
from tasks.reporting.release_sections import claim_part
from tasks.systems.insights.wording import count_deviation_of, deviation_of, keyword_notes
from tasks.values.results import UNNAMED, Insight, margin_of_error

_ENDS_A_SCRIPT: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True)
class Node:
    """An insight with those below it, for the page.

    Attributes:
        size: in words; None if it was not measured.
        noise: the standard deviation of its size, where it is known; of a counted answer nothing, as its size says it.
        keywords: each keyword with what is to be said of it, or with nothing.
    """

    insight: Insight
    below: tuple["Node", ...]
    size: str | None
    noise: str | None
    keywords: tuple[tuple[str, str], ...]


def explorer_html(record: ReleaseRecord, insights: Sequence[Insight]) -> str:
    """Return the page for these nodes, parents before their children, numbered from 1."""
    style, script = (
        _template_file("style.css", "tasks.reporting") + _template_file("explorer.css"),
        _template_file("explorer.js"),
    )
    wording, noisy, deviation = wording_of(record), record.claim is not None, deviation_of(record)
    counted = [wording.size_with_margin(node, record) for node in insights]
    margins = any(counted)
    noises = _margins(insights, deviation) if margins else _noises(insights, deviation)
    sizes = [words if words else _size_words(node, noisy=noisy) for node, words in zip(insights, counted, strict=True)]
    notes = [keyword_notes(insight, count_deviation_of(record)) for insight in insights]
    data = _script_safe_json(_data(insights, noises, notes, noisy=noisy, margins=margins, nouns=wording.nouns))
    return environment("tasks.reporting").get_template("explorer.html").render(
        record=record,
        clusters=f"{sum(node.level == 0 for node in insights):,}",
        groups=f"{sum(node.level > 0 for node in insights):,}",
        unnamed=unnamed_percent(insights),
        claim=claim_part(record),
        nouns=wording.nouns,
        about=wording.page,
        reading=[_marked(paragraph) for paragraph in reading_of_insights(record)],
        nodes=_nested(insights, sizes, [None] * len(insights) if margins else noises, notes),
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - a file of ours
        script=Markup(script),  # noqa: S704 - a file of ours
        data=Markup(data),  # noqa: S704 - no character in it can end the script, see `_script_safe_json`
    )  # fmt: skip


def unnamed_percent(insights: Sequence[Insight]) -> str | None:
    """Return what share of the people in all topics is in no named one, such as `about 39 %`; None where none is."""
    sizes = [(max(0, node.size or 0), node.topic.name) for node in insights if node.level == 0]
    people, nameless = sum(size for size, _ in sizes), sum(size for size, name in sizes if name == UNNAMED)
    return f"about {100 * nameless / people:.0f} %" if nameless else None


def size_words(size: int, *, noisy: bool) -> str:
    """Return a size in words: `about 1,204 units`."""
    figure = f"{size:,}".replace("-", "\N{MINUS SIGN}")
    return f"{'about ' if noisy else ''}{figure} {'unit' if size == 1 else 'units'}"


def _noises(insights: Sequence[Insight], deviation: Decimal | None) -> list[str | None]:
    """Return the standard deviation of each size: clusters have independent noise, so variances add up."""
    if deviation is None:
        return [None] * len(insights)
    return [None if node.size is None else rounded(deviation * Decimal(node.clusters).sqrt()) for node in insights]


def _margins(insights: Sequence[Insight], deviation: Decimal | None) -> list[str | None]:
    """Return the margin of error of each count, 95 %."""
    return [None if deviation is None else f"{margin_of_error(deviation, node.clusters):,}" for node in insights]


def _size_words(insight: Insight, *, noisy: bool) -> str | None:
    return None if insight.size is None else size_words(insight.size, noisy=noisy)


def _nested(
    insights: Sequence[Insight],
    sizes: Sequence[str | None],
    noises: Sequence[str | None],
    notes: Sequence[tuple[str, ...]],
) -> tuple[Node, ...]:
    """Return the top nodes, with all nodes below them."""
    below: dict[int | None, list[Node]] = {}
    columns = reversed(insights), reversed(sizes), reversed(noises), reversed(notes)
    for node, size, noise, note in zip(*columns, strict=True):
        keywords = tuple(zip(node.keywords, note, strict=True))
        html_node = Node(node, tuple(reversed(below.pop(node.number, []))), size, noise, keywords)
        below.setdefault(node.parent, []).append(html_node)
    return tuple(reversed(below.get(None, [])))


def _data(
    insights: Sequence[Insight],
    noises: Sequence[str | None],
    notes: Sequence[tuple[str, ...]],
    *,
    noisy: bool,
    margins: bool,
    nouns: tuple[str, str],
) -> Mapping[str, Any]:
    """Return the data of the script: a row per node, in order; a parent is a number from 1, or 0 at the top.

    With `margins` the noise of a row is its margin of error, and otherwise a standard deviation.
    """
    return {
        "noisy": noisy,
        "margins": margins,
        "nouns": list(nouns),
        "rows": [
            [
                node.parent or 0,
                node.level,
                escape_text(node.topic.name),
                escape_text(node.topic.description),
                [escape_text(keyword) for keyword in node.keywords],
                node.size,
                noise,
                list(note) if any(note) else [],
            ]
            for node, noise, note in zip(insights, noises, notes, strict=True)
        ],
    }


def _script_safe_json(data: Mapping[str, Any]) -> str:
    """Encode JSON for the inside of a script element: no character of it can end the element, or open another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return "".join(_ENDS_A_SCRIPT.get(sign, sign) for sign in text)


def _policy(style: str, script: str) -> str:
    """Return the content security policy of the page, which does not depend on its content."""
    return (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}';"
        " base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _marked(paragraph: str) -> list[tuple[str, bool]]:
    """Split a paragraph into parts, each with whether it is emphasised."""
    return [(part, bool(number % 2)) for number, part in enumerate(paragraph.split("**")) if part]


def _template_file(name: str, package: str = "tasks.reporting") -> str:
    return files(package).joinpath("templates", name).read_text("utf-8")
