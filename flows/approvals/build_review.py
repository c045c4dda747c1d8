"""The kinds of matter, each made of its question: a digest is computed from the content here, and trusted nowhere.

A further kind needs a function here and its sections; showing, confirming, signing and filing stay as they are.
"""

from collections.abc import Sequence
from pathlib import Path

from flows.approvals.request_review import RequestReviewInput
from flows.approvals.review import Review, Samples, Table
from flows.approvals.review_sections import missed_bounds, publish_sections, spend_sections
from models_db.errors import Refused
from models_db.values.canonical_json import digest
from models_db.values.gates import Gate
from tasks.common.files import FileTable, read_document
from tasks.publishing.draft import read_metrics, rehash
from tasks.release.file_names import EVALUATION, RECORD
from tasks.release.insight_rows import read_insights
from tasks.release.record import ReleaseRecord
from tasks.release.signatures.attestation import attestation_payload
from tasks.release.text_rows import read_labelled
from tasks.values.insight import Insight
from tasks.values.release_kinds import ReleaseKind

SAMPLES_SHOWN = 3
INSIGHTS_SHOWN = 60


def build_spend_review(inputs: RequestReviewInput, viewer: str | None) -> Review:
    """A request before any private text is read; `viewer` is the public key of whoever looks."""
    return Review(
        number=inputs.number,
        gate=Gate.SPEND,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(inputs.request),
        policy=inputs.policy,
        sections=spend_sections(inputs, viewer),
        stewards=inputs.stewards,
        refusal=inputs.budget.refusal(inputs.dataset),
    )


def build_publish_review(inputs: RequestReviewInput, folder: Path, files: FileTable, viewer: str | None) -> Review:
    """What a run produced, in `folder`, before anything leaves.

    Raises:
        ArtifactChanged: the folder is not, byte for byte, what `files` says.
        DraftOfAnotherRequest: it belongs to another request.
    """
    rehash(folder, files)  # what is shown is what the approval binds to
    record = ReleaseRecord.from_bytes(read_document(folder / RECORD))
    if (record.release, digest(record.request)) != (inputs.number, digest(inputs.request)):
        raise DraftOfAnotherRequest(inputs.number)
    metrics = tuple(read_metrics(read_document(folder / EVALUATION)))
    shown = (
        shown_insights(list(read_insights(folder))) if record.kind == ReleaseKind.INSIGHTS else shown_samples(folder)
    )
    return Review(
        number=inputs.number,
        gate=Gate.PUBLISH,
        dataset=inputs.dataset,
        state=inputs.state,
        subject_digest=digest(files),
        policy=inputs.policy,
        sections=publish_sections(inputs, viewer, record, metrics, shown, files),
        stewards=inputs.stewards,
        payload=attestation_payload(folder, files),
        missed_bounds=missed_bounds(inputs, metrics),
        refusal=inputs.budget.refusal(inputs.dataset),
    )


def shown_samples(folder: Path) -> Samples:
    """The first texts of a draft."""
    samples = tuple(read_labelled(folder, SAMPLES_SHOWN))
    return Samples("Samples", tuple(text for text, _ in samples), names=tuple(name for _, name in samples))


def shown_insights(nodes: Sequence[Insight]) -> Table:
    """The first insights of a draft, groups before their members, with everything but their descriptions."""
    rows = tuple(map(_insight_row, nodes[:INSIGHTS_SHOWN]))
    shown = f"the first {INSIGHTS_SHOWN} of {len(nodes)}" if len(nodes) > INSIGHTS_SHOWN else f"all {len(nodes)}"
    title = f"Insights: {shown}; descriptions are in explorer.html and texts.jsonl"
    return Table(title, ("id", "name", "size", "keywords"), rows, empty="There are none: no cluster was large enough.")


def _insight_row(node: Insight) -> tuple[str, ...]:
    size = "not measured" if node.size is None else str(node.size)
    return str(node.number), node.topic.name, size, ", ".join(node.keywords)


class DraftOfAnotherRequest(Refused):
    """The produced files are another request's."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"The files are not those of request {number}.",
            "Nothing was signed. Have the question exported again: `almoner approve ID --gate publish --export FILE`.",
            {"request": number},
        )
