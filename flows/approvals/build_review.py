"""Reviews of requests and proposals, built from their content: each digest is computed here and read nowhere.

A further kind of review needs a function here and its sections; showing, confirming, signing and filing do not change.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from flows.approvals.proposal_review import ProposalReviewInput, build_proposal_review
from flows.approvals.request_review import RequestReviewInput
from flows.approvals.review import Review
from flows.approvals.review_sections import missed_bounds, publish_sections, spend_sections
from flows.releases.release_texts import find_doubtful
from models_db.errors import Refused
from models_db.values.canonical_json import digest
from models_db.values.request_state import Gate
from tasks.common.files import FileTable, read_document
from tasks.publishing.draft import read_metrics, rehash
from tasks.release.bundle_format import EVALUATION, RECORD, TEXTS, read_insights, read_labelled
from tasks.release.description import wording_of
from tasks.release.prompt_passages import prompt_passages
from tasks.release.record import ReleaseRecord
from tasks.release.sections import Samples, Section, Table
from tasks.release.signatures.attestation import attestation_payload
from tasks.systems.insights.wording import count_deviation_of, keywords_with_notes
from tasks.text.doubts import describe_doubts
from tasks.values.results import Insight, ReleaseKind

Draft: TypeAlias = tuple[Path, FileTable]
"""The folder that a run produced, and the size and digest of each of its files."""

SAMPLES_SHOWN = 3
INSIGHTS_SHOWN = 60


def build_review(
    gate: Gate, inputs: RequestReviewInput | ProposalReviewInput, draft: Draft | None, viewer: str | None
) -> Review:
    """Build the review of a request or proposal at a gate, ready to be shown and signed.

    Args:
        viewer: the public key of the person who reads it.

    Raises:
        GateMismatch: the inputs or the draft do not belong to the gate.
    """
    match gate, inputs, draft:
        case Gate.SPEND, RequestReviewInput(), None:
            return build_spend_review(inputs, viewer)
        case Gate.PUBLISH, RequestReviewInput(), (folder, files):
            return build_publish_review(inputs, folder, files, viewer)
        case Gate.PROPOSAL, ProposalReviewInput(), None:
            return build_proposal_review(inputs, viewer)
    raise GateMismatch(gate)


def build_spend_review(inputs: RequestReviewInput, viewer: str | None) -> Review:
    """Build the review of a request before any private text is read; `viewer` is the reader's public key."""
    refusal = inputs.refusal
    return Review(
        number=inputs.number,
        gate=Gate.SPEND,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(inputs.request),
        policy=inputs.policy,
        sections=spend_sections(inputs, viewer, refusal),
        stewards=inputs.stewards,
        refusal=refusal,
    )


def build_publish_review(inputs: RequestReviewInput, folder: Path, files: FileTable, viewer: str | None) -> Review:
    """Build the review of the draft in `folder` before any of it is published.

    Raises:
        ArtifactChanged: the folder differs from the sizes and digests in `files`.
        DraftOfAnotherRequest: the draft belongs to another request.
    """
    rehash(folder, files)  # what is shown is what the approval binds to
    record = ReleaseRecord.from_bytes(read_document(folder / RECORD))
    if (record.release, digest(record.request)) != (inputs.number, digest(inputs.request)):
        raise Refused(
            f"The files are not those of request {inputs.number}.",
            "Nothing was signed. Export the review again: `almoner approve ID --gate publish --export FILE`.",
            {"request": inputs.number},
            code="DraftOfAnotherRequest",
        )
    metrics = tuple(read_metrics(read_document(folder / EVALUATION)))
    refusal = inputs.refusal
    shown: Section
    looked_for = None
    if record.kind == ReleaseKind.INSIGHTS:
        shown = shown_insights(list(read_insights(folder)), record)
    else:
        count, doubtful = find_doubtful(folder, str(files[TEXTS]["sha256"]), prompt_passages(inputs.request))
        shown, looked_for = shown_samples(folder), describe_doubts(len(doubtful), count)
    return Review(
        number=inputs.number,
        gate=Gate.PUBLISH,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(files),
        policy=inputs.policy,
        sections=publish_sections(inputs, viewer, refusal, record, metrics, shown, files, looked_for),
        stewards=inputs.stewards,
        payload=attestation_payload(folder, files),
        missed_bounds=missed_bounds(inputs, metrics),
        refusal=refusal,
    )


def shown_samples(folder: Path) -> Samples:
    """Return the first texts of a draft; the title says how many there are."""
    rows = read_labelled(folder)
    samples = tuple(islice(rows, SAMPLES_SHOWN))
    count = len(samples) + sum(1 for _ in rows)
    title = f"Texts: {f'the first {len(samples):,} of' if count > len(samples) else 'all'} {count:,}"
    return Samples(title, tuple(text for text, _ in samples), tuple(name for _, name in samples))


def shown_insights(nodes: Sequence[Insight], record: ReleaseRecord | None = None) -> Table:
    """Return the first insights of a draft, groups before their members, without their descriptions.

    Args:
        record: of the draft; without it, counts are shown without their noise.
    """
    rows = tuple(_insight_row(node, record) for node in nodes[:INSIGHTS_SHOWN])
    shown = f"the first {INSIGHTS_SHOWN} of {len(nodes)}" if len(nodes) > INSIGHTS_SHOWN else f"all {len(nodes)}"
    title = f"Insights: {shown}; descriptions are in explorer.html and texts.jsonl"
    columns = ("id", "name", "size", "keywords")
    return Table(title, columns, rows, empty="There are none: no cluster was large enough.", released=True)


def _insight_row(node: Insight, record: ReleaseRecord | None) -> tuple[str, ...]:
    size = "not measured" if node.size is None else str(node.size)
    counted = None if record is None else wording_of(record).size_with_margin(node, record)
    deviation = None if record is None else count_deviation_of(record)
    return str(node.number), node.topic.name, counted or size, "; ".join(keywords_with_notes(node, deviation))


class GateMismatch(ValueError):
    """The inputs of a review, or its draft, do not belong to its gate."""
