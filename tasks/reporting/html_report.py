"""The report as one page: no network, no script, no time of day; every text of people or models is shown as text."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from tasks.reporting import charts
from tasks.reporting.audience_filter import AudienceFact, Version, contents
from tasks.reporting.number_format import format_number

if TYPE_CHECKING:
    from jinja2 import Environment


def report_html(facts: Iterable[AudienceFact], version: Version = "public") -> str:
    """The page of a version; a function of `facts` alone, the same to the byte wherever it is made.

    Args:
        facts: of the release and, but for the public version, of the ledger; what the version may not tell is left out.
    """
    return page(contents(version, facts))


def page(said: Mapping[str, Any]) -> str:
    """The page of a report's JSON."""
    return environment("tasks.reporting").get_template("page.html").render(report=said, charts=_charts(said))


def _charts(said: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "budget": charts.budget_bar(said["budget"]) if said["budget"] else None,
        "guess": charts.guess_scale(said["claim"]) if said["claim"] else None,
        "lengths": charts.histogram(said["lengths"]) if said["lengths"] else None,
        "tradeoffs": charts.tradeoffs(said["tradeoff"]),
        "map": charts.scatter(said["map"]) if said["map"] else None,
        "attacks": charts.forest(said["attacks"]),
    }


@cache
def environment(*packages: str) -> "Environment":
    """How pages are made of the templates of `packages`: whatever is put into one is text, and shown as it is."""
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escape_text,
    )
    made.filters |= {"spelt": format_number, "breakable": _breakable}
    return made


def _breakable(name: str) -> Markup:
    """A name that may be broken after its dots and underscores, so that it fits a phone."""
    return Markup("<wbr>").join(re.split(r"(?<=[._])", escape_text(name)))


def escape_text(value: Any) -> Any:
    """Text without signs that steer: what turns the order of reading, or shows as nothing, is spelt out."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(map(_spelt, value))
    return value


def _spelt(sign: str) -> str:
    steers = unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    if not steers or sign in "\n\t\u200c\u200d":  # joiners belong to words of several scripts
        return sign
    return "\n" if sign == "\r" else sign.encode("unicode_escape", "surrogatepass").decode()
