"""Reports made by hand: a small release with everything that a report can hold, in every exposure."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from models_db.policies.policy import Policy
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json
from tasks.release.record import ReleaseRecord
from tasks.release.sections import WARNINGS, FieldList, Table, Warnings
from tasks.reporting import report_parts
from tasks.reporting.attack_sections import TwinAttacks
from tasks.reporting.release_sections import Text, release_facts, text_pages
from tasks.reporting.report_parts import AudienceFact
from tasks.values.results import MetricResult
from tests.unit.tasks.publishing.builders import a_record, a_request, metrics_of

NOTES = (
    """Doctor: How have you been since the last visit? Patient: The cough is better, but I am short of breath on the \
stairs. Doctor: Any fever at night? Patient: No. Doctor: We keep the inhaler, twice a day, and see you in March.""",
    "Follow-up after an ankle sprain. Swelling has gone down, full weight bearing, no instability. Exercises as shown.",
    "Patient: I sleep badly.\nDoctor: Since when?\nPatient: Since the move. I wake at four.",
    "Blood pressure 142/88 in three home readings; the dose stays as it is. Next laboratory in six weeks.",
    "Plan: rest, fluids, paracetamol if needed. Return if the fever lasts longer than three days.",
)
NASTY = '<script>alert("x")</script> </p> &amp; <img src=https://example.org/x> \u202edrow ylno'
TEXTS = tuple(
    Text(number, text, ("general", "follow-up")[number % 2])
    for number, text in enumerate((NASTY, *NOTES * 3, "", "word " * 400, *NOTES * 2), 1)
)
RULES = {
    "version": 1,
    "evaluation": {"required": {"length": {"texts": {"min": 2}, "empty": {"max": 0}}, "distinct": {}}},
}
POLICY = Policy.model_validate(RULES)
PERPLEXITY = MetricResult(
    name="perplexity",
    exposure="public",
    values={"perplexity": "21.417", "interval_low": "18.020", "interval_high": "25.911", "scored": 27, "unscored": 1},
    source="Jelinek and others, 1977",
    method="exp of the mean log-loss per token under the public model",
    line="perplexity 21.417 under the public model",
)
CHARGED = MetricResult(
    name="coverage",
    exposure="charged",
    values={"coverage": "0.81", "coverage_low": "0.74", "coverage_high": "0.88", "centres": 50},
    source="PRIVACY §7",
    method="a noisy histogram of nearest public centres, charged to the claim",
    line="81 % of the mass of the private corpus is near a released text",
)
INTERNAL = MetricResult(
    name="verbatim_overlap",
    exposure="internal",
    values={"texts": 28, "max_words": 31337, "mean_words": "271.82", "p95_words": "314.15"},
    source="Lee and others, ACL 2022",
    method="the longest run of words found in a private document",
    line="longest shared run 31337 words",
)


def attacked(name: str, line: str, **values: str | int | None) -> dict[str, Any]:
    """An attack's stored result."""
    return MetricResult(name, "public", values, "s", "m", line).to_json()


def membership(auc: str, low: str, high: str) -> dict[str, Any]:
    """Of the attack by similar texts."""
    return attacked("membership_embedding", f"AUC {auc} ({low} to {high})", auc=auc, auc_low=low, auc_high=high)


def replayed(low: str, held_out: str) -> dict[str, Any]:
    """Of the search for copies."""
    ends = {"near_copies_share_low": low, "near_copies_share_high": "0.99"}
    others = {"held_out_near_copies_share_low": "0.00", "held_out_near_copies_share_high": held_out}
    return attacked("replay", f"near copies from {low}, of others up to {held_out}", **ends, **others)


STORED: dict[str, Any] = {
    "format": "almoner-attacks/1",
    "code": "c0" * 32,
    "twin": {"name": "mts-dialog", "version": 1, "uid": "9a"},
    "members": 60,
    "nonmembers": 121,
    "canaries": 20,
    "finished": True,
    "runs": [
        {"name": "request", "texts": 28, "results": [membership("0.507", "0.470", "0.544"), replayed("0.00", "0.12")]},
        {
            "name": "non_private",
            "texts": 80,
            "results": [membership("0.981", "0.970", "0.990"), replayed("0.62", "0.05")],
        },
        {"name": "copy", "texts": 80, "results": [membership("1.000", "0.952", "1.000"), replayed("0.95", "0.04")]},
    ],
}
TWIN = TwinAttacks.of(STORED, "c0" * 32)
BUDGET = report_parts.Budget(
    delta_cap="1e-6",
    cap="1",
    before="0.215",
    release="0.266311880304",
    held="0.05",
    after="0.481313639024",
    before_percent="21.5",
    release_percent="26.7",
    held_percent="5",
    left_percent="46.8",
    used_percent="48.2",
    epsilon_cap="8",
    epsilon_before="3.4461",
    epsilon_after="5.3217",
    fails=None,
)


def the_record(**changes: Any) -> ReleaseRecord:
    """The record of release 1, under a policy with bounds."""
    return a_record(a_request(policy=digest(model_to_json(POLICY))), **{"policy": POLICY} | changes)


def the_metrics() -> list[MetricResult]:
    """One of every exposure, and those that the policy bounds."""
    public = metrics_of([text.text for text in TEXTS], "length", "distinct")
    return [*public, PERPLEXITY, CHARGED, INTERNAL]


@cache
def the_facts() -> tuple[AudienceFact, ...]:
    """Every place of a report has something, and every exposure too."""
    return tuple(_facts())


def _facts() -> Iterator[AudienceFact]:
    yield from release_facts(the_record(), the_metrics(), TEXTS)
    yield from (AudienceFact("ledger", page) for page in text_pages(TEXTS, (the_record().prompt,)))
    yield from TWIN.facts()
    yield from (AudienceFact("ledger", said) for said in of_the_ledger())
    yield from (AudienceFact("public", point) for point in the_points())
    for release, this, value in ((3, False, "0.6931"), (1, True, "0.5772")):
        point = report_parts.Point(release, this, "produced", "invisible_ink", "4", "mauve", "mauve", value, None, None)
        yield AudienceFact("internal", point)
    yield AudienceFact("public", the_map())


def of_the_ledger() -> Iterator[Any]:
    """What only stewards are told."""
    yield BUDGET
    yield Warnings(WARNINGS, ("You requested this release yourself.",))
    yield report_parts.Decision("spend", "sue", "approve", "agreed in the March board", True, None)
    yield report_parts.Decision("publish", "tom", "approve", "names nobody", True, None)
    yield FieldList("Policy of the request", (("approvals needed", "1 to spend, 2 to publish"),))
    yield Table("Difference to release 1", ("field", "then", "now"), (("epsilon", "2", "4"),))
    yield report_parts.Gate("produced", "ab" * 32, 1, 2, ('almoner approve 1 --gate publish --reason "..."',))


def the_points() -> Iterator[report_parts.Point]:
    """Three releases with two figures."""
    for release, epsilon, value in ((3, "1", 41.3), (5, "2", 30.2), (1, "4", 21.4)):
        own = release == 1
        state = "produced" if own else "published"
        ends = (f"{value * 0.85:.3f}", f"{value * 1.2:.3f}")
        yield report_parts.Point(
            release, own, state, "invisible_ink", epsilon, "perplexity", "perplexity", str(value), *ends
        )
        variety = f"{0.3 + release / 100:.4f}"
        yield report_parts.Point(
            release, own, state, "invisible_ink", epsilon, "distinct", "distinct_2", variety, None, None
        )


def the_map() -> report_parts.Map:
    """A spiral."""
    points = tuple((f"{n * math.cos(n) / 20:.4f}", f"{n * math.sin(n) / 20:.4f}") for n in range(len(TEXTS)))
    return report_parts.Map(
        "all-minilm-l6-v2 0.1",
        "37",
        len(TEXTS),
        points,
        tuple(text.label or "" for text in TEXTS),
        (
            report_parts.TextCluster(("garden", "roses", "spade"), 5, "0.1000", "0.2000"),
            report_parts.TextCluster(("kettle", "tea"), 3, "0.1100", "0.2100"),
        ),
    )
