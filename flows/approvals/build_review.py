"""The kinds of matter, each made of its question: a digest is computed from the content here, and trusted nowhere.

A further kind needs a function here and its sections; showing, confirming, signing and filing stay as they are.
"""

from collections.abc import Sequence
from pathlib import Path

from flows.approvals.request_review import Question
from flows.approvals.review import Grid, Matter, Texts
from flows.approvals.review_sections import missed_by, publish_sections, spend_sections
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

SAMPLES = 3
INSIGHTS_SHOWN = 60


def at_spend(question: Question, viewer: str | None) -> Matter:
    """A request before any private text is read; `viewer` is the public key of whoever looks."""
    return Matter(
        number=question.number,
        gate=Gate.SPEND,
        dataset=question.dataset,
        state=question.state,
        subject_digest=digest(question.request),
        policy=question.policy,
        sections=spend_sections(question, viewer),
        stewards=question.stewards,
        refusal=question.budget.refusal(question.dataset),
    )


def at_publish(question: Question, folder: Path, files: FileTable, viewer: str | None) -> Matter:
    """What a run produced, in `folder`, before anything leaves.

    Raises:
        ArtifactChanged: the folder is not, byte for byte, what `files` says.
        DraftForeign: it belongs to another request.
    """
    rehash(folder, files)  # what is shown is what the approval binds to
    record = ReleaseRecord.from_bytes(read_document(folder / RECORD))
    if (record.release, digest(record.request)) != (question.number, digest(question.request)):
        raise DraftForeign(question.number)
    metrics = tuple(read_metrics(read_document(folder / EVALUATION)))
    shown = (
        insights_shown(list(read_insights(folder))) if record.kind == ReleaseKind.INSIGHTS else samples_shown(folder)
    )
    return Matter(
        number=question.number,
        gate=Gate.PUBLISH,
        dataset=question.dataset,
        state=question.state,
        subject_digest=digest(files),
        policy=question.policy,
        sections=publish_sections(question, viewer, record, metrics, shown, files),
        stewards=question.stewards,
        payload=attestation_payload(folder, files),
        outside=missed_by(question, metrics),
        refusal=question.budget.refusal(question.dataset),
    )


def samples_shown(folder: Path) -> Texts:
    """The first texts of a draft."""
    samples = tuple(read_labelled(folder, SAMPLES))
    return Texts("Samples", tuple(text for text, _ in samples), names=tuple(name for _, name in samples))


def insights_shown(nodes: Sequence[Insight]) -> Grid:
    """The first insights of a draft, groups before their members, with everything but their descriptions."""
    rows = tuple(map(_row, nodes[:INSIGHTS_SHOWN]))
    shown = f"the first {INSIGHTS_SHOWN} of {len(nodes)}" if len(nodes) > INSIGHTS_SHOWN else f"all {len(nodes)}"
    title = f"Insights: {shown}; descriptions are in explorer.html and texts.jsonl"
    return Grid(title, ("id", "name", "size", "keywords"), rows, empty="There are none: no cluster was large enough.")


def _row(node: Insight) -> tuple[str, ...]:
    size = "not measured" if node.size is None else str(node.size)
    return str(node.number), node.topic.name, size, ", ".join(node.keywords)


class DraftForeign(Refused):
    """The produced files are another request's."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"The files are not those of request {number}.",
            "Nothing was signed. Have the question exported again: `almoner approve ID --gate publish --export FILE`.",
            {"request": number},
        )
