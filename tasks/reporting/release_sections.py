"""Report sections from a release alone: its record, its measurements, its texts and the decisions on it.

These are the files of a bundle, so every reader of one can compute the same facts, and the same page, again. The claim
is told in plain language: sentences that need no mathematics, with the promises of the card (`claim_part`).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat
from statistics import median
from typing import Final

from tasks.common.published_values import figure, format_small
from tasks.evaluation.policy_bounds import BoundCheck, bound_checks, overridden_bounds
from tasks.planning.secret_assignment import while_secret
from tasks.release import card_text
from tasks.release import claim as claims
from tasks.release.claim import describe_guesses, describe_replace_one, release_weaknesses
from tasks.release.description import wording_of
from tasks.release.record import Lifetime, ReleaseRecord, SecondOpinion, UnprotectedFigures
from tasks.release.signatures.approvals import SignedDecision
from tasks.reporting.report_parts import (
    AudienceFact,
    Claim,
    Decision,
    Figure,
    Lengths,
    Measured,
    Mechanism,
    NoClaim,
    Node,
    Parameter,
    PolicyRequirement,
    Release,
    Sample,
    TextOnPage,
    TextPage,
)
from tasks.systems.insights.wording import count_deviation_of, keywords_with_notes
from tasks.text.doubts import find_doubts
from tasks.text.words import words
from tasks.values.results import Insight, MetricResult

SAMPLES: Final = 6
TEXTS_PER_PAGE: Final = 100
SAMPLE_WORDS: Final = 160
BINS: Final = 12
_ROUND: Final = tuple(digit * 10**power for power in range(12) for digit in (1, 2, 5))


@dataclass(frozen=True)
class Text:
    """A line of `texts.jsonl`, numbered from 1."""

    number: int
    text: str
    label: str | None = None
    insight: Insight | None = None


def texts_of(rows: Iterable[tuple[str, str | None]], insights: Iterable[Insight] = ()) -> list[Text]:
    """Return texts and their labels, numbered as in the file; in a release of insights, with their nodes."""
    nodes = chain(insights, repeat(None))
    return [Text(number, text, label, next(nodes)) for number, (text, label) in enumerate(rows, 1)]


def release_facts(
    record: ReleaseRecord,
    metrics: Sequence[MetricResult],
    texts: Sequence[Text],
    ended: str | None = None,
    decisions: Iterable[SignedDecision] = (),
) -> Iterator[AudienceFact]:
    """Return all facts in the files of a release; metrics keep their own exposure.

    Args:
        ended: the sentence on the end of what it claims while its assignment is secret; None while that lasts.
    """
    yield AudienceFact("public", _release(record, texts))
    yield AudienceFact("public", claim_part(record, ended))
    yield from (AudienceFact("public", part) for part in (*_mechanisms(record), *_parameters(record)))
    yield from demand_facts(record, metrics)
    yield from map(metric_fact, metrics)
    yield from (AudienceFact("public", sample) for sample in samples(texts, record))
    if texts:
        yield AudienceFact("public", lengths(texts))
    yield from (AudienceFact("public", _decision(one)) for one in decisions)


def metric_fact(result: MetricResult) -> AudienceFact:
    """Return the fact of a metric, with the metric's own exposure."""
    metric_figures = tuple(figures(result.name, result.values))
    section = Measured(result.name, result.exposure, result.line, metric_figures, result.source, result.method)
    return AudienceFact(result.exposure, section)


def demand_facts(record: ReleaseRecord, metrics: Sequence[MetricResult]) -> Iterator[AudienceFact]:
    """Return the policy's bounds with the measured values, each with the exposure of its figure."""
    measured = {metric.name: metric for metric in metrics}
    required = record.policy.rules_for(record.dataset.name).required
    for check in bound_checks(required, measured):
        exposure = measured[check.metric].exposure if check.metric in measured else "public"
        yield AudienceFact(exposure, _demand(check))


def samples(texts: Sequence[Text], record: ReleaseRecord | None = None) -> Iterator[Sample]:
    """Return some texts, evenly spread over the file; the choice follows from the number of texts alone.

    Args:
        record: the release's, where its texts are insights; counted answers are shown in larger number, as a table.
    """
    most = None if record is None else wording_of(record).most_shown
    count = min(SAMPLES if most is None else most, len(texts))
    for text in (texts[number * len(texts) // count] for number in range(count)):
        words_in_text = list(re.finditer(r"\S+", text.text))
        shown_text = (
            text.text if len(words_in_text) <= SAMPLE_WORDS else text.text[: words_in_text[SAMPLE_WORDS - 1].end()]
        )
        yield Sample(
            text.number,
            text.label,
            shown_text,
            max(0, len(words_in_text) - SAMPLE_WORDS),
            None if text.insight is None or record is None else _node(text.insight, record),
        )


def texts_with_doubts(texts: Sequence[Text], prompt: tuple[str, ...]) -> tuple[TextOnPage, ...]:
    """Return texts in full, each with its doubts; `prompt` as in `text_pages`. A topic's label is its name."""
    labels = (one.label if one.insight is None else one.insight.topic.name for one in texts)
    return tuple(
        TextOnPage(one.number, label, one.text, find_doubts(one.text, prompt))
        for one, label in zip(texts, labels, strict=True)
    )


def text_pages(texts: Sequence[Text], prompt: tuple[str, ...]) -> Iterator[TextPage]:
    """Return all texts with their doubts, TEXTS_PER_PAGE at a time.

    Args:
        prompt: the public passages that a text may have been copied from.
    """
    for start in range(0, len(texts), TEXTS_PER_PAGE):
        page = texts_with_doubts(texts[start : start + TEXTS_PER_PAGE], prompt)
        yield TextPage(page, sum(bool(one.doubts) for one in page))


def _node(insight: Insight, record: ReleaseRecord) -> Node:
    keywords = keywords_with_notes(insight, count_deviation_of(record))
    return Node(
        insight.topic.name, insight.level, insight.size, keywords, wording_of(record).size_with_margin(insight, record)
    )


def lengths(texts: Sequence[Text]) -> Lengths:
    """Return a histogram of words per text: at most a dozen bins of one round width, from 0."""
    counted = [len(words(text.text)) for text in texts]
    width = next(candidate for candidate in _ROUND if candidate * BINS > max(counted))
    bins = max(counted) // width + 1
    counts = [0] * bins
    for word_count in counted:
        counts[word_count // width] += 1
    edges = tuple(number * width for number in range(bins + 1))
    empty = sum(not text.text for text in texts)
    return Lengths(len(texts), empty, f"{median(counted):g}", max(counted), edges, tuple(counts))


def _release(record: ReleaseRecord, texts: Sequence[Text]) -> Release:
    return Release(
        number=record.release,
        dataset=record.dataset.name,
        governed=record.dataset.governed,
        kind=record.kind,
        mechanism=record.mechanism,
        model=record.model.name,
        licence=record.model.licence,
        prompt=record.prompt,
        texts=len(texts),
        labels=record.labels,
        requester=record.people.requester.name,
        runner=record.people.runner.name,
        request_sha256=record.request_sha256,
    )


def _mechanisms(record: ReleaseRecord) -> Iterator[Mechanism]:
    for event in record.events:
        parameters = tuple((name, str(value)) for name, value in sorted(event.parameters.items()))
        yield Mechanism(
            event.mechanism, event.count, event.loss.rho_text, format_small(event.loss.delta_text), parameters
        )


def _parameters(record: ReleaseRecord) -> Iterator[Parameter]:
    yield from (Parameter(name, value, False) for name, value in sorted(record.facts.items()))
    yield from (Parameter(name, value, True) for name, value in sorted(record.released.items()))


def _demand(check: BoundCheck) -> PolicyRequirement:
    value = None if check.value is None else str(check.value)
    return PolicyRequirement(check.metric, check.figure or "", value, check.allowed, check.met)


def _decision(signed_decision: SignedDecision) -> Decision:
    return Decision(
        signed_decision.gate,
        signed_decision.approver,
        signed_decision.decision,
        signed_decision.reason,
        True,
        overridden_bounds(signed_decision.reason),
    )


def figures(metric: str, values: Mapping[str, str | int | None]) -> Iterator[Figure]:
    """Return the figures by name, as stored, with the ends of their intervals."""
    stems = {name: stem for name in values if (stem := _stem(name, metric, values)) is not None}
    ends = {f"{stem}_{end}" for stem in stems.values() for end in ("low", "high")}
    for name, value in sorted(values.items()):
        if name in stems:
            yield Figure(name, value, values[f"{stems[name]}_low"], values[f"{stems[name]}_high"])
        elif name not in ends:
            yield Figure(name, value)


def _stem(name: str, metric: str, values: Mapping[str, str | int | None]) -> str | None:
    """Return the stem of the names of a figure's interval: of `x`, `x`; of `x_share`, also `x`."""
    if f"{name}_share" in values or name.endswith(("_low", "_high")):
        return None
    own = ("interval",) if name == metric else ()  # perplexity's
    return next((stem for stem in (name, name.removesuffix("_share"), *own) if _ends(stem) <= values.keys()), None)


def _ends(stem: str) -> set[str]:
    return {f"{stem}_low", f"{stem}_high"}


_SAYABLE: Final = Decimal(1_000_000)
RELATION: Final = "one unit more or less"


def claim_part(record: ReleaseRecord, ended: str | None = None) -> Claim | NoClaim:
    """Return the section on the release's promise, or on why there is none.

    Args:
        ended: the sentence on the end of what it claims while its assignment is secret; None while that lasts.
    """
    claim = record.claim
    if claim is None:
        return NoClaim((card_text.NO_CLAIM, card_text.PUBLIC_DATA))
    times, right = (None, None) if claim.charges_nothing else _bounds(claim)
    return Claim(
        protects=protects(record),
        sentences=(*_sentences(claim, times, right), *_extends(record)),
        epsilon=claim.epsilon,
        while_secret=while_secret(claim.secret_assignment, ended) if claim.secret_assignment else None,
        delta=format_small(claim.delta),
        rho=claim.rho,
        delta_fail=format_small(claim.delta_fail),
        relation=RELATION,
        replace_one=describe_replace_one(claim.replace_one),
        times=times,
        right=right,
        guesses=describe_guesses(Decimal(right)) if right else None,
        weaknesses=_weaknesses(record),
        conversion=claim.conversion,
        lifetime=_lifetime(record.lifetime, record.unprotected_figures) if record.lifetime else None,
        second_opinion=_opinion(record.second_opinion) if record.second_opinion else None,
        not_promised=limits(record),
    )


def _weaknesses(record: ReleaseRecord) -> tuple[str, ...]:
    claim = record.claim
    if claim is None or claim.charges_nothing:
        return ()
    return release_weaknesses(claim.epsilon, claim.delta, record.population)


def _extends(record: ReleaseRecord) -> list[str]:
    return [card_text.EXTENDS.format(release=record.parent)] if record.parent else []


def protects(record: ReleaseRecord) -> str:
    """Return the sentence on whose presence in the data is hidden."""
    name, unit = record.dataset.name, record.dataset.unit
    if unit == "record":
        return f"Each single record of {name}: whether it is in the data at all."
    return (
        f"Everybody in {name}, as identified by its field {unit}: all records with one {unit} count as one, however"
        " many they are, and whether they are in the data at all stays hidden."
    )


def limits(record: ReleaseRecord) -> tuple[tuple[str, str], ...]:
    """Return the card's points that are not protected, each as its emphasised words and the rest."""
    points = " ".join(card_text.limits_section(record.declared.texts_published).split()).split(" - ")[1:]
    return tuple(_headed(point) for point in points)


def _headed(point: str) -> tuple[str, str]:
    match = re.match(r"\*\*(.+?)\*\*(.*)", point)
    return (match[1], match[2]) if match else ("", point)


def _bounds(claim: claims.Claim) -> tuple[str, str]:
    factor, right = claim.guessing_bounds
    return (figure(factor) if factor < _SAYABLE else "more than a million"), figure(right)


_UNTOUCHED: Final = "No private text was used for it: without the dataset it would have come out the same way."
_FINDING: Final = (
    "Take somebody who knows every other record and reads all of this release. Any finding that they can make in it is"
    " at most {times} times as likely with one unit in the data as without it, and the other way round, up to an"
    " additional probability of {delta}."
)
_GUESSING: Final = (
    "Asked to guess at even odds whether a unit is in the data, they are right {guesses}; a coin toss gives 50 %. This"
    " is the ceiling for the worst case, not an estimate."
)
_EXCHANGING: Final = "If one unit is exchanged for another instead of added or removed, the same release has {figures}."


def _sentences(claim: claims.Claim, times: str | None, right: str | None) -> list[str]:
    if times is None or right is None:
        return [_UNTOUCHED]
    other = claim.replace_one
    return [
        _FINDING.format(times=times, delta=format_small(claim.delta)),
        _GUESSING.format(guesses=describe_guesses(Decimal(right))),
        _EXCHANGING.format(figures=describe_replace_one(other)),
        card_text.BEFOREHAND,
    ]


def _lifetime(lifetime: Lifetime, figures: UnprotectedFigures | None) -> str:
    together = " Several datasets share this budget." if lifetime.shared else ""
    condition = f" {card_text.unprotected_figures(figures.since, figures.people).replace('**', '')}" if figures else ""
    return (
        f"Everything ever run on the dataset, this release included, is together (epsilon {lifetime.epsilon}, delta"
        f" {format_small(lifetime.delta)})-differentially private; a ledger refuses any release that would exceed"
        f" that.{together}{condition}"
    )


def _opinion(opinion: SecondOpinion) -> str:
    return (
        f"{opinion.library} ({opinion.accountant} accountant), from the stored events alone: epsilon {opinion.epsilon}"
        f" at delta {format_small(opinion.delta)}. {card_text.OPINION}"
    )
