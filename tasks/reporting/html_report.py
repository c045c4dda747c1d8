"""Release report as one HTML page: no network, no script, no time of day; all text from people or models is escaped."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tasks.common.number_format import format_number
from tasks.release.sections import Section, sections_to_json
from tasks.reporting import charts
from tasks.reporting.audience_filter import AudienceFact, Version, contents
from tasks.text.doubts import NOT_CHECKED, describe_doubts

if TYPE_CHECKING:
    from jinja2 import Environment


def report_html(facts: Iterable[AudienceFact], version: Version = "public") -> str:
    """Return the page of a version; a function of `facts` alone, the same to the byte on every machine.

    Args:
        facts: of the release and, except for the public version, of the ledger; the version filters them.
    """
    return page(contents(version, facts))


def page(report: Mapping[str, Any]) -> str:
    """Return the page of a report's JSON."""
    return environment("tasks.reporting").get_template("page.html").render(report=report, charts=_charts(report))


def sections_html(title: str, sections: Iterable[Section]) -> str:
    """Return sections below a title as a fragment of HTML without scripts, which loads nothing from elsewhere."""
    template = environment("tasks.reporting").get_template("fragment.html")
    return template.render(title=title, sections=sections_to_json(sections))


def _charts(report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "budget": charts.budget_bar(report["budget"]) if report["budget"] else None,
        "guess": charts.guess_scale(report["claim"]) if report["claim"] else None,
        "lengths": charts.histogram(report["lengths"]) if report["lengths"] else None,
        "tradeoffs": charts.tradeoffs(report["tradeoff"]),
        "map": charts.scatter(report["map"], _numbers_in_full(report)) if report["map"] else None,
        "attacks": charts.forest(report["attacks"]),
    }


def _numbers_in_full(report: Mapping[str, Any]) -> frozenset[int]:
    return frozenset(text["number"] for page in report["text_pages"] for text in page["texts"])


@cache
def environment(*packages: str) -> "Environment":
    """Return the Jinja environment with the templates of `packages`; every inserted value is escaped as text."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    jinja_environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_text,
    )
    jinja_environment.globals |= {"describe_doubts": describe_doubts, "NOT_CHECKED": NOT_CHECKED}
    jinja_environment.filters |= {"spelt": format_number, "breakable": _breakable}
    return jinja_environment


def _breakable(name: str) -> Markup:
    """Return a name that may wrap after its dots and underscores, so that it fits a phone."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", escape_text(name)))


def escape_text(value: Any) -> Any:
    """Return text with control characters spelt out: those that change the reading order or are invisible."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(map(_spell_out_control, value))
    return value


def _spell_out_control(sign: str) -> str:
    is_control = unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if not is_control or sign in "\n\t\u200c\u200d":  # joiners belong to words of several scripts
        return sign
    return "\n" if sign == "\r" else sign.encode("unicode_escape", "surrogatepass").decode()
