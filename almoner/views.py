"""Price, budget, review and report as a notebook and a terminal show them.

A repr holds public facts and what the ledger says, never a text of a release and never a figure that read private data
unprotected: notebooks are saved, and copied.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from models_db.values.untrusted_text import value_text
from tasks.release.sections import WARNINGS, FieldList, Samples, Section, Summary, Table, Warnings, sections_to_text

if TYPE_CHECKING:
    from flows.approvals.review import Review as GateReview
    from flows.datasets.budget import BudgetSummary
    from models_db.home import ProjectHome
    from models_db.values.canonical_json import Json
    from tasks.reporting.report_parts import AudienceFact, Version


class View(ABC):
    """Something that is shown as sections below a title."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The heading."""

    @abstractmethod
    def sections(self) -> Iterator[Section]:
        """Yield its sections in reading order."""

    def __repr__(self) -> str:
        return sections_to_text(self.title, self.sections())

    def _repr_html_(self) -> str:
        from tasks.reporting.html_report import sections_html  # jinja2 is for who looks at HTML

        return sections_html(self.title, self.sections())


class Price(View):
    """The price of a request.

    Attributes:
        facts: the price as `almoner release request --dry-run --json` prints it: `rho`, `budget`, `facts`, ...
    """

    def __init__(self, facts: "Mapping[str, Json]") -> None:
        self.facts = MappingProxyType(dict(facts))

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]

    @property
    def title(self) -> str:
        """The heading."""
        return "Price of a request"

    @property
    def rho(self) -> str:
        """The loss in zero-concentrated differential privacy, as exact decimal text."""
        return str(self.facts["rho"])

    @property
    def affordable(self) -> bool:
        """Whether the budget affords it."""
        budget = self.facts["budget"]
        return isinstance(budget, dict) and budget["affordable"] is True

    def sections(self) -> Iterator[Section]:
        """Yield its warnings, what it means, and its charge; `facts` has the details."""
        from flows.approvals.price_sections import price_sections

        sections = tuple(price_sections(self.facts))
        yield from (section for section in sections if not section.detail)
        hidden = "; ".join(section.title for section in sections if section.detail)
        yield Summary("More", (f"Left out: {hidden}. `facts` has them.",))


@dataclass(frozen=True, repr=False)
class Budget(View):
    """The lifetime budget of a dataset, as it is now."""

    summary: "BudgetSummary"

    @property
    def title(self) -> str:
        """The heading."""
        return f"Lifetime budget of {self.facts['dataset']}"

    @property
    def facts(self) -> "Mapping[str, Json]":
        """The budget as `almoner budget show --json` prints it; rho as exact decimal text."""
        return MappingProxyType(self.summary.facts)

    def sections(self) -> Iterator[Section]:
        """Yield its warnings, a sentence, the figures, and the requests that spent it."""
        yield from self.summary.sections()


@dataclass(frozen=True, repr=False)
class Review(View):
    """What a steward decides on. Its texts are not shown: a notebook keeps what it shows.

    Attributes:
        details: whether mechanisms, digests and all parameters are shown too.
    """

    content: "GateReview"
    details: bool = False

    @property
    def title(self) -> str:
        """The heading, which names the dataset."""
        return self.content.title

    def sections(self) -> Iterator[Section]:
        """Yield the sections of the review, and the digest to which an approval binds."""
        hidden = [] if self.details else [part.title for part in self.content.sections if part.detail]
        for section in self.content.sections:
            if isinstance(section, Samples):
                yield Summary("Texts", (f"{section.title}; not shown here: read `texts()` first.",))
            elif isinstance(section, Table) and section.released:
                yield Summary("Insights", (f"{section.title}; not shown here: read `topics()` first.",))
            elif section.title not in hidden:
                yield section
        if hidden:
            yield Summary("More", (f"Left out: {'; '.join(hidden)}. `review(details=True)` shows them.",))
        yield Summary("Digest", (f"An approval binds to sha256 {self.content.subject_digest}",))


@dataclass(frozen=True, repr=False)
class Report(View):
    """The report on a produced release.

    Attributes:
        version: its readers: `steward`, `public` or `internal`.
        facts: all facts; `content` has those of the version.
    """

    project: "ProjectHome"
    version: "Version"
    facts: "tuple[AudienceFact, ...]" = field(repr=False)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The report as `almoner report --json` prints it."""
        from tasks.reporting.report_parts import contents

        return contents(self.version, self.facts)

    def page(self) -> str:
        """Return the report as an HTML page. The steward's version holds unpublished texts: keep it as private."""
        from tasks.reporting.html_report import page

        return page(self.content)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the new file `path` (0600): JSON if its name ends in `.json`, else the page.

        Raises:
            ReportInHome: the path is in the home, where an erasure would not find the file.
            FileUnwritable: the file exists, or cannot be written.
        """
        from flows.reports.build import write_report

        return write_report(self.project, Path(path), self.content)

    @property
    def title(self) -> str:
        """The heading."""
        release = self._public["release"]
        return f"Release {release['number']} of {release['dataset']}"

    @cached_property
    def _public(self) -> dict[str, Any]:
        from tasks.reporting.report_parts import contents

        return contents("public", self.facts)

    def sections(self) -> Iterator[Section]:
        """Yield the facts that everybody may read, without the texts; `page` has the others."""
        report = self._public
        release, claim = report["release"], report["claim"] or report["no_claim"]
        yield Summary("Summary", tuple(claim["sentences"]))
        if claim.get("weaknesses"):
            yield Warnings(WARNINGS, tuple(claim["weaknesses"]))
        named = {"claim": ("epsilon", "delta", "rho"), "release": ("kind", "mechanism", "model", "texts")}
        rows = [(name, value_text(claim[name])) for name in named["claim"] if name in claim]
        rows += [(name, value_text(release[name])) for name in named["release"]]
        yield FieldList("Release", tuple(rows))
        if report["metrics"]:
            yield Table("Measurements", ("metric", "result"), tuple((m["name"], m["line"]) for m in report["metrics"]))
        if report["mechanisms"]:
            paid = tuple((m["name"], str(m["times"]), m["rho"]) for m in report["mechanisms"])
            yield Table("Charged mechanisms", ("mechanism", "times", "rho"), paid)
