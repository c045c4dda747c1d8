"""Draft of a release in quarantine: texts, measurements, record and card, and the digests that a steward approves.

Derived files follow from the record, the measurements and the texts; each has one maker. Verification of a bundle makes
them again and compares every byte. To add one: its name in `bundle_format.DRAFT_FILES` (or in `drafted_files`, where
one kind alone has it), its maker here, its row in `card_text` and in docs/bundle.md.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from models_db.errors import EnvironmentProblem
from models_db.values.untrusted_text import without_surrogates
from tasks.common.files import (
    FileTable,
    FileUnfit,
    decode_json,
    encode_json,
    file_facts,
    measure,
    sync_folder,
    write_new,
)
from tasks.publishing.documents.card import card
from tasks.publishing.documents.croissant import croissant
from tasks.publishing.documents.dp_deployment_registry import deployment
from tasks.publishing.documents.nist_800_226 import checklist
from tasks.publishing.documents.parquet import parquet
from tasks.release.bundle_format import (
    CARD,
    CHECKLIST,
    CROISSANT,
    DEPLOYMENT,
    EVALUATION,
    EXPLORER,
    PARQUET,
    RECORD,
    REPORT,
    TEXTS,
    carried,
    drafted_files,
    insight_line,
    text_line,
)
from tasks.release.record import PublicContent, ReleaseRecord, refuse_internal
from tasks.release.signatures.attestation import artifact_changed
from tasks.reporting.html_explorer import explorer_html
from tasks.reporting.html_report import report_html
from tasks.reporting.release_sections import Text, release_facts, texts_of
from tasks.values.results import Insight, MetricResult, ReleaseKind

EVALUATION_FORMAT: Final = "almoner-evaluation/1"


def write_draft(
    folder: Path,
    record: ReleaseRecord,
    texts: Sequence[str],
    metrics: Sequence[MetricResult],
    labels: Sequence[str | None] = (),
    insights: Sequence[Insight] = (),
) -> FileTable:
    """Write a draft into the new folder `folder` (0700, files 0600; on disk when this returns).

    Args:
        labels: the label of every text, where the request declares labels.
        insights: for a release of insights, the nodes that the texts describe; the rows are made from these alone.

    Returns:
        {name: {"sha256", "bytes"}}; the digest of its canonical JSON is what the publish gate approves.

    Raises:
        UnpublishableMetric: an internal metric of governed data.
        DraftUnwritable: the folder exists already (each attempt has its own), or cannot be written.
    """
    refuse_internal(metrics, record)
    # A character that UTF-8 cannot encode must not void a paid release.
    labelled_texts = tuple(zip(map(without_surrogates, texts), labels or [None] * len(texts), strict=True))
    nodes = tuple(map(carried, insights))
    if record.kind == ReleaseKind.INSIGHTS:
        labelled_texts = tuple((node.topic.description, None) for node in nodes)
        rows = [insight_line(node) for node in nodes]
    else:
        rows = [text_line(record.kind, number, text, label) for number, (text, label) in enumerate(labelled_texts, 1)]
    data = {TEXTS: b"".join(rows), PARQUET: parquet(rows, record.kind, labelled=bool(record.labels))}
    contents = {
        **data,
        EVALUATION: encode_json({"format": EVALUATION_FORMAT, "metrics": [metric.to_json() for metric in metrics]}),
        RECORD: record.to_bytes(),
        **derived_files(PublicContent(record, tuple(metrics), _facts_of_all(data), labelled_texts, nodes)),
    }
    try:
        folder.mkdir(mode=0o700)
        for name, content in contents.items():
            write_new(folder / name, content, 0o600)
        sync_folder(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise EnvironmentProblem(
            f"The draft {folder} cannot be written: {error.strerror}.",
            "Check that the disk has room and that the folder does not exist; each attempt has a folder of its own.",
            {"folder": str(folder)},
            code="DraftUnwritable",
        ) from None
    return {name: measure(folder / name) for name in drafted_files(record.kind)}


def _facts_of_all(data: Mapping[str, bytes]) -> FileTable:
    return {name: file_facts(content) for name, content in data.items()}


def rehash(folder: Path, files: Mapping[str, Mapping[str, str | int]]) -> None:
    """Check that a draft matches `files` byte for byte.

    Raises:
        ArtifactChanged: a file is missing, changed, a link, or unexpected.
    """
    try:
        present = set(os.listdir(folder))
    except OSError:
        raise artifact_changed("the folder", "cannot be read") from None
    if differences := sorted(present ^ set(files)):
        raise artifact_changed(differences[0], "is missing or unexpected")
    for name, expected in sorted(files.items()):
        try:
            is_unchanged = measure(folder / name) == dict(expected)
        except FileUnfit as error:
            raise artifact_changed(name, error.reason) from None
        if not is_unchanged:
            raise artifact_changed(name, "has other content")


def read_metrics(data: bytes) -> list[MetricResult]:
    """Read `evaluation.json`.

    Raises:
        FileUnfit: it is not in almoner's format.
    """
    stored = decode_json(data, EVALUATION)
    if not isinstance(stored, dict) or set(stored) != {"format", "metrics"} or not isinstance(stored["metrics"], list):
        raise FileUnfit(EVALUATION, "has no list of metrics")
    if stored["format"] != EVALUATION_FORMAT:
        raise FileUnfit(EVALUATION, "has another format")
    try:
        return [MetricResult.from_json(metric) for metric in stored["metrics"]]
    except ValueError as error:
        raise FileUnfit(EVALUATION, f"is unfit: {error}") from None


MAKERS: Final[Mapping[str, Callable[[PublicContent], str]]] = {
    CARD: lambda release: card(release.record, release.metrics),
    CHECKLIST: checklist,
    CROISSANT: croissant,
    DEPLOYMENT: deployment,
    REPORT: lambda release: report_html(release_facts(release.record, release.metrics, _texts_of_release(release))),
    EXPLORER: lambda release: explorer_html(release.record, release.insights),
}


def derived_files(release: PublicContent) -> dict[str, bytes]:
    """Return names and contents of the generated files for the record's kind of release."""
    names = drafted_files(release.record.kind)
    return {name: make(release).encode() for name, make in MAKERS.items() if name in names}


def _texts_of_release(release: PublicContent) -> list[Text]:
    return texts_of(release.texts, release.insights)
