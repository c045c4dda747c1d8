"""`almoner insights`: changes from one release of insights to another."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import fact_list, table
from models_db.errors import UsageError
from models_db.values.untrusted_text import escape_controls

if TYPE_CHECKING:  # they compute, and most commands do not
    from flows.reports.compare_insights import InsightsRelease, ReleaseComparison
    from tasks.systems.insights.compare import Shares, SizedTopic, TopicChange

app = typer.Typer(no_args_is_help=True, help="Compare releases of insights.")


class ComparedRelease(TypedDict):
    """Facts of a release that a comparison rests on."""

    place: str
    dataset: str
    release: int
    unit: str
    artifact_sha256: str
    topics: int
    size_deviation: float | None
    smallest_cluster: int | None
    population: int | None


class ComparedTopic(TypedDict):
    """A topic of one of the releases."""

    id: int
    level: int
    name: str
    keywords: list[str]
    size: int | None
    size_deviation: float | None


class SharesData(TypedDict):
    """Shares of the declared units."""

    old: float | None
    new: float | None
    old_deviation: float | None
    new_deviation: float | None


class TopicChangeData(TypedDict):
    """A topic that both releases have; what the noise of counts does not allow is null."""

    level: int
    old: ComparedTopic
    new: ComparedTopic
    likeness: float
    difference: int | None
    difference_deviation: float | None
    z: float | None
    p_value: float | None
    redrawn_p_value: float | None
    verdict: str | None
    shares: SharesData | None


class ComparisonData(TypedDict):
    """Two releases of insights side by side; figures have six significant digits."""

    old: ComparedRelease
    new: ComparedRelease
    levels: list[int]
    redrawn_spread: float | None
    changes: list[TopicChangeData]
    new_topics: list[ComparedTopic]
    gone_topics: list[ComparedTopic]
    cautions: list[str]


LONGEST_NAME = 60
NOT_STATED, NOT_MEASURED = "noise not stated", "size not measured"

A_RELEASE = "A bundle (DIR or s3://...), or the number of a published request"
Old = Annotated[str | None, typer.Argument(metavar="OLD", help=f"{A_RELEASE}: the earlier release.")]
New = Annotated[str | None, typer.Argument(metavar="NEW", help=f"{A_RELEASE}: the later release.")]


@command(app, "compare")
def compare_releases(
    context: CommandContext,
    old: Old = None,
    new: New = None,
    last: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="In place of OLD and NEW: the two newest releases of this dataset."),
    ] = None,
) -> CommandResult[ComparisonData]:
    """Compare two published releases of insights: topics that grew, shrank, are new or gone, with the noise of both.

    Reads released rows alone and charges nothing: post-processing. Each side's record, rows and approvals are checked
    first; `almoner verify-release` checks the rest. docs/insights-compare.md says what a verdict means.

    Example: almoner insights compare 3 out/chats-release-7
    """
    from flows.reports.compare_insights import compare_insights, last_two

    if last is not None and old is None and new is None:
        places = last_two(context.home, last)
    elif last is None and old and new:
        places = (old, new)
    else:
        raise UsageError(
            "A comparison needs two releases, or a dataset whose two newest ones it compares.",
            "Type `almoner insights compare OLD NEW`, or `almoner insights compare --last DATASET`.",
            code="ReleasesUnclear",
        )
    comparison = compare_insights(context.home, *places)
    return CommandResult(cast(ComparisonData, comparison.to_json()), list(_comparison_page(comparison)))


def _comparison_page(comparison: "ReleaseComparison") -> Iterator[RenderableType]:
    result = comparison.result
    yield fact_list({"old": _release_line(comparison.old), "new": _release_line(comparison.new)})
    for level in reversed(result.levels):
        changes = [change for change in result.changes if change.old.insight.level == level]
        yield _changes_table(changes, _level_title(level))
        for title, topics in (("new", result.new), ("gone", result.gone)):
            if rows := [_topic_row(topic) for topic in topics if topic.insight.level == level]:
                yield table(("topic", "size", "keywords"), rows, title=f"{_level_title(level)}: {title}")
    if comparison.old.deviation or comparison.new.deviation:
        yield "± is the margin of error: 95 %, from the noise alone."
    yield from map(escape_controls, comparison.cautions)


def _release_line(release: "InsightsRelease") -> str:
    clusters = sum(node.level == 0 for node in release.insights)
    facts = [f"{release.record.dataset.name} release {release.record.release}", f"{clusters} clusters"]
    facts.append(_noise_words(release.deviation))
    if release.request.population is not None:
        facts.append(f"{release.request.population} units declared")
    return "; ".join(facts)


def _noise_words(deviation: float | None) -> str:
    if deviation is None:
        return NOT_STATED
    return f"standard deviation of the noise of a size {deviation:.3g}" if deviation else "exact sizes"


def _level_title(level: int) -> str:
    return f"Level {level}: groups" if level else "Level 0: clusters"


def _changes_table(changes: Sequence["TopicChange"], title: str) -> RenderableType:
    with_shares = any(change.shares for change in changes)
    columns = ("topic", "old size", "new size", "difference", "z", "verdict", "likeness")
    rows = [
        (*_change_row(change), *((_share_words(change.shares),) if with_shares else ()))
        for change in sorted(changes, key=_order)
    ]
    return table((*columns, "share of declared units") if with_shares else columns, rows, title=title)


def _order(change: "TopicChange") -> tuple[bool, bool, float]:
    """Verdicts first, then the largest differences in units of noise."""
    told = change.verdict is not None and change.verdict.is_change
    size = abs(change.difference or 0) if change.z is None else abs(change.z)
    return not told, change.verdict is None, -size


def _change_row(change: "TopicChange") -> tuple[object, ...]:
    names = list(dict.fromkeys(_name(topic) for topic in (change.old, change.new)))
    if change.difference is None:
        verdict = NOT_MEASURED
    else:
        verdict = NOT_STATED if change.verdict is None else str(change.verdict)
    return (
        " -> ".join(names),
        _size_words(change.old.insight.size, change.old.deviation),
        _size_words(change.new.insight.size, change.new.deviation),
        "" if change.difference is None else _with_noise(f"{change.difference:+,}", change.deviation),
        "" if change.z is None else f"{change.z:+.1f}",
        verdict,
        f"{change.likeness:.2f}",
    )


def _topic_row(topic: "SizedTopic") -> tuple[object, ...]:
    size = _size_words(topic.insight.size, topic.deviation)
    return _name(topic), size, _cut(", ".join(topic.insight.keywords))


def _size_words(size: int | None, deviation: float | None) -> str:
    return NOT_MEASURED if size is None else _with_noise(f"{size:,}", deviation)


def _with_noise(figure: str, deviation: float | None) -> str:
    if not deviation:
        return figure
    from tasks.values.results import margin_of_error

    return f"{figure} ±{margin_of_error(Decimal(deviation)):,}"


def _share_words(shares: "Shares | None") -> str:
    if shares is None:
        return ""
    from tasks.values.results import NORMAL_95

    sides = ((shares.old, shares.old_deviation), (shares.new, shares.new_deviation))
    return " -> ".join(
        f"{share:.2%}" if not deviation else f"{share:.2%} ±{float(NORMAL_95) * deviation:.2%}"
        for share, deviation in sides
    )


def _name(topic: "SizedTopic") -> str:
    return _cut(topic.insight.topic.name) or f"(topic {topic.insight.number} without a name)"


def _cut(text: str) -> str:
    """Return a text of a model or corpus on one line of at most LONGEST_NAME characters."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_NAME else f"{line[: LONGEST_NAME - 1]}…"
