"""Bundle in a folder, whose files are read on first use."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import digest
from tasks.common.files import FileTable, FileUnfit, measure, read_document
from tasks.mechanisms.core.post_processing import loss_paid_by_parent
from tasks.mechanisms.registry import recompute
from tasks.publishing.draft import read_metrics
from tasks.release.file_names import (
    APPROVALS,
    ATTESTATION,
    CHECKPOINT,
    EVALUATION,
    PARQUET,
    RECORD,
    REVOCATIONS,
    SUMS_SIGNATURE,
    TEXTS,
)
from tasks.release.format_versions import drafted_files, stated_kind, summed_files
from tasks.release.insight_rows import read_insights
from tasks.release.public_content import PublicContent
from tasks.release.record import ReleaseRecord
from tasks.release.signatures.approvals import SignedDecision, read_approvals
from tasks.release.signatures.attestation import read_envelope
from tasks.release.signatures.chain_checkpoint import Checkpoint
from tasks.release.signatures.revocation_list import Revocations
from tasks.release.signatures.seal import Seal
from tasks.release.text_rows import read_labelled
from tasks.values.insight import Insight
from tasks.values.metric_result import MetricResult
from tasks.values.release_kinds import ReleaseKind

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope


class OpenedBundle:
    """A bundle at `folder`; every property raises FileUnfit where its file cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def kind(self) -> str:
        """The kind of release that the record names, even in an invalid record; empty if there is no record."""
        try:
            return stated_kind(read_document(self.folder / RECORD))
        except FileUnfit:
            return ""

    @cached_property
    def record(self) -> ReleaseRecord:
        """The content of release.json."""
        return ReleaseRecord.from_bytes(read_document(self.folder / RECORD))

    @cached_property
    def metrics(self) -> list[MetricResult]:
        """The content of evaluation.json."""
        return read_metrics(read_document(self.folder / EVALUATION))

    @cached_property
    def seal(self) -> Seal:
        """The content of SHA256SUMS.sig."""
        return Seal.from_bytes(read_document(self.folder / SUMS_SIGNATURE))

    @cached_property
    def approvals(self) -> list[SignedDecision]:
        """The content of approvals.json."""
        return read_approvals(read_document(self.folder / APPROVALS))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The content of checkpoint.json."""
        return Checkpoint.from_bytes(read_document(self.folder / CHECKPOINT))

    @cached_property
    def attestation(self) -> "Envelope":
        """The content of attestation.json."""
        return read_envelope(read_document(self.folder / ATTESTATION))

    @cached_property
    def revocations(self) -> Revocations:
        """The content of revocations.json."""
        return Revocations.from_bytes(read_document(self.folder / REVOCATIONS))

    @cached_property
    def digests(self) -> FileTable:
        """Digests and sizes of the files as they are now."""
        return {name: measure(self.folder / name) for name in summed_files(self.kind)}

    @property
    def drafted(self) -> FileTable:
        """The files of the draft, as they are now."""
        return {name: self.digests[name] for name in drafted_files(self.kind)}

    @cached_property
    def disclosure(self) -> PublicContent:
        """The input of every generated file; raises UnpublishableMetric where a metric may not be published."""
        data = {name: facts for name, facts in self.drafted.items() if name in (TEXTS, PARQUET)}
        texts, insights = tuple(read_labelled(self.folder)), tuple(self.insights)
        return PublicContent(self.record, tuple(self.metrics), data, texts, insights)

    @cached_property
    def insights(self) -> list[Insight]:
        """The nodes of texts.jsonl; empty in a release of another kind."""
        return list(read_insights(self.folder)) if self.record.kind == ReleaseKind.INSIGHTS else []

    @property
    def artifact(self) -> str:
        """The digest that the publish gate approves."""
        return digest(self.drafted)

    @property
    def spent(self) -> Amount:
        """The sum of the losses of the record's events, each recomputed from its parameters."""
        return total_amount([recompute(event) for event in self.record.events])

    @property
    def vouched(self) -> Amount:
        """Loss that the claim rests on: `spent`, and the loss of the release that it extends."""
        return loss_paid_by_parent([replace(event, loss=recompute(event)) for event in self.record.events])
