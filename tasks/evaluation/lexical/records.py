"""Share of released texts that are records: they parse, and are valid under the request's schema."""

from collections.abc import Callable

from tasks.common.files import parse_object
from tasks.evaluation.core.intervals import wilson
from tasks.evaluation.core.subject import EvaluationInput
from tasks.values.results import MetricResult, MetricValue, rounded


def records(subject: EvaluationInput) -> MetricResult:
    """Counts and shares of texts that parse and that are valid, with 95 % intervals.

    `raw` is the number of texts before any check, `complete` how many ended before the token limit. Without a schema
    validity is null; without texts every share is.
    """
    raw = len(subject.texts)
    parsed_records = [record for text in subject.texts if (record := parse_object(text.text)) is not None]
    is_valid = _validity(subject)
    valid = None if is_valid is None else sum(map(is_valid, parsed_records))
    values: dict[str, MetricValue] = {
        "raw": raw,
        "complete": sum(text.complete for text in subject.texts),
        "parsed": len(parsed_records),
        **_share("parsed", len(parsed_records), raw),
        "valid": valid,
        **_share("valid", valid, raw),
    }
    validity = "no schema" if valid is None else f"{valid} valid under the schema"
    return MetricResult(
        name="records",
        exposure="public",
        values=values,
        source="parse rate, schema validity and number raw as in Bhusal et al., private ICL, table 4 (WikiMoviesJSON),"
        " after Amin et al. 2024; intervals: Wilson, JASA 22, 1927",
        method="a text parses if it is one JSON object (RFC 8259, no key twice), and is valid if JSON Schema 2020-12"
        " says so; shares of all raw texts, 95 % score intervals",
        line=f"{raw} raw, {len(parsed_records)} parse, {validity}",
    )


def _validity(subject: EvaluationInput) -> Callable[[object], bool] | None:
    if subject.schema is None:
        return None
    from jsonschema import Draft202012Validator  # slow to import, and few releases have a schema

    return Draft202012Validator(dict(subject.schema)).is_valid


def _share(name: str, hits: int | None, of: int) -> dict[str, MetricValue]:
    """Return the share and the ends of its interval, as decimals of four places; null if there is none."""
    figures = (f"{name}_share", f"{name}_low", f"{name}_high")
    if hits is None or not of:
        return dict.fromkeys(figures)
    return {figure: rounded(value, 4) for figure, value in zip(figures, (hits / of, *wilson(hits, of)), strict=True)}
