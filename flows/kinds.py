"""The kinds of matter, each made of its question: a digest is computed from the content here, and trusted nowhere.

A further kind needs a function here and its sections; showing, confirming, signing and filing stay as they are.
"""

from pathlib import Path

from flows.matter import Matter
from flows.question import Question
from flows.sections import missed_by, publish_sections, spend_sections
from models_db.canonical import digest
from models_db.errors import Refused
from tasks.publishing.attestation import attestation_payload
from tasks.publishing.draft import read_metrics, rehash
from tasks.publishing.layout import EVALUATION, RECORD, FileTable, read_document
from tasks.publishing.record import ReleaseRecord
from tasks.publishing.rows import read_labelled

SAMPLES = 3


def at_spend(question: Question, viewer: str | None) -> Matter:
    """A request before any private text is read; `viewer` is the public key of whoever looks."""
    return Matter(
        number=question.number,
        gate="spend",
        dataset=question.dataset,
        state=question.state,
        subject_digest=digest(question.request),
        policy=question.policy,
        sections=spend_sections(question, viewer),
        stewards=question.stewards,
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
    samples = tuple(read_labelled(folder, SAMPLES))
    return Matter(
        number=question.number,
        gate="publish",
        dataset=question.dataset,
        state=question.state,
        subject_digest=digest(files),
        policy=question.policy,
        sections=publish_sections(question, viewer, record, metrics, samples, files),
        stewards=question.stewards,
        payload=attestation_payload(folder, files),
        outside=missed_by(question, metrics),
    )


class DraftForeign(Refused):
    """The produced files are another request's."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"The files are not those of request {number}.",
            "Nothing was signed. Have the question exported again: `almoner approve ID --gate publish --export FILE`.",
            {"request": number},
        )
