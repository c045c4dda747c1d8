"""Offline approvals: a question exported to a file, signed on a steward's own machine, and imported again.

`ask.json` carries everything that is shown and the complete subject: the canonical request, and at the publish gate
the files themselves. No digest in it is read; the reader computes its own. At the publish gate it carries unpublished
texts: the file is as private as the quarantine folder (0600). `signed.json` carries one signed decision and nothing
private.
Both are closed formats in canonical JSON: an unknown field, another spelling or a strange size is refused.
"""

import tempfile
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationError

from flows.approvals.build_review import Draft, GateMismatch, build_review
from flows.approvals.proposal_review import ProposalReviewInput
from flows.approvals.review import Review
from flows.approvals.review_input import RequestReviewInput
from flows.workspace.yaml_files import file_unreadable, file_unwritable
from models_db.errors import UsageError
from models_db.services.gates import GateDecision
from models_db.values.request_state import Gate
from tasks.common.files import FileUnfit, decode_json, encode_json, measure, open_regular_file, read_document, write_new
from tasks.common.published_values import Digest, Name, Strict, read_as
from tasks.release.bundle_format import PARQUET, RECORD, drafted_files, stated_kind
from tasks.release.signatures import ed25519

MOST_REVIEW_BYTES = 64 << 20
MOST_APPROVAL_BYTES = 256 << 10

FileModel = TypeVar("FileModel", bound=Strict)


class OfflineReview(Strict):
    """`ask.json`: the review input, and at the publish gate the produced files by name."""

    format: Literal["almoner-ask/1"]
    gate: Annotated[Gate, Field(strict=False)]
    question: RequestReviewInput | ProposalReviewInput
    files: dict[str, str] | None
    packed: dict[str, str] | None
    """Binary files, in base64."""

    @property
    def contents(self) -> dict[str, bytes] | None:
        """Return all files by name; None for a review without files.

        Raises:
            ValueError: a binary file is not in base64.
        """
        if self.files is None or self.packed is None:
            return None
        packed = {name: b64decode(data, validate=True) for name, data in self.packed.items()}
        return packed | {name: text.encode() for name, text in self.files.items()}


class SignedApproval(Strict):
    """`signed.json`: one approval, with all fields that a check of its signature needs."""

    format: Literal["almoner-approval/1"] = "almoner-approval/1"
    number: Annotated[int, Field(ge=1)]
    gate: Annotated[Gate, Field(strict=False)]
    subject_sha256: Digest
    decision: Literal["approve"]
    reason: Annotated[str, Field(min_length=1, max_length=10_000)]
    expires_at: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
    approver: Name
    public_key: Digest
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]
    attestation: Annotated[str, Field(max_length=10_000)] | None

    @property
    def stated(self) -> GateDecision:
        """Return the decision as the ledger stores it."""
        return GateDecision(self.number, self.gate, self.subject_sha256, self.decision, self.reason, self.expires_at)

    @property
    def is_authentic(self) -> bool:
        """Return whether the approval's own key signed exactly these fields."""
        return ed25519.verify(self.public_key, self.signature, self.stated.statement(self.approver))

    @property
    def expires(self) -> datetime:
        """Return the time at which the approval expires.

        Raises:
            ValueError: the text names no day.
        """
        return datetime.strptime(self.expires_at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def export_review(path: Path, gate: Gate, inputs: RequestReviewInput | ProposalReviewInput, draft: Path | None) -> None:
    """Write the new file `path` (0600) with a review input and the files of its draft.

    Raises:
        FileUnwritable: the file exists, or cannot be written.
        ReviewTooLarge: as `encode_review`.
    """
    _write_model(path, encode_review(gate, inputs, draft))


def encode_review(gate: Gate, inputs: RequestReviewInput | ProposalReviewInput, draft: Path | None) -> bytes:
    """Return the content of an `ask.json`: a review input and the files of its draft.

    Raises:
        ReviewTooLarge: it would exceed the size that almoner reads back.
    """
    files, packed = (None, None) if draft is None else _pack_draft(draft)
    ask = OfflineReview.model_validate(
        {"format": "almoner-ask/1", "gate": gate, "question": inputs, "files": files, "packed": packed}
    )
    data = encode_json(ask.model_dump(mode="json"))
    if len(data) > MOST_REVIEW_BYTES:
        raise UsageError(
            f"The review would have {len(data):,} bytes; at most {MOST_REVIEW_BYTES:,} can be read again.",
            "Decide on the machine that has the files, in the steward's own home.",
            {"bytes": len(data), "largest": MOST_REVIEW_BYTES},
            code="ReviewTooLarge",
        )
    return data


def import_review(path: Path, viewer: str, scratch: Path) -> Review:
    """Build the review of an `ask.json` from its content.

    Args:
        viewer: the reader's public key.
        scratch: a private folder for the files of a draft while they are read.

    Raises:
        FileUnreadable, InvalidApprovalFile: the file is missing, or not in the format.
        Refused: its content contradicts itself.
    """
    ask = _read_model(OfflineReview, path, MOST_REVIEW_BYTES)
    try:
        with _unpack_draft(ask, scratch) as draft:
            return build_review(ask.gate, ask.question, draft, viewer)
    except GateMismatch:
        raise _invalid_approval_file(path, "holds a review or files of another gate") from None
    except (ValidationError, KeyError, TypeError, ValueError) as unfit:
        raise _invalid_approval_file(path, f"has an invalid review ({type(unfit).__name__})") from None
    except FileUnfit as unfit:
        raise _invalid_approval_file(path, f"holds a {unfit.message}") from None


def _pack_draft(draft: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the files of a draft: text files as they are, and binary files in base64."""
    record = read_document(draft / RECORD)
    contents = {name: read_document(draft / name) for name in drafted_files(stated_kind(record))}
    packed = {name: b64encode(contents.pop(name)).decode() for name in (PARQUET,)}
    return {name: data.decode() for name, data in contents.items()}, packed


@contextmanager
def _unpack_draft(ask: OfflineReview, scratch: Path) -> Iterator[Draft | None]:
    """Write the draft of an `ask.json` to a temporary folder; yield None for a review without a draft.

    Raises:
        GateMismatch: the files do not form a draft.
    """
    if ask.files is None and ask.packed is None:
        yield None
        return
    contents = ask.contents or {}
    if set(contents) != set(drafted_files(stated_kind(contents.get(RECORD, b"")))):
        raise GateMismatch(ask.gate)
    with tempfile.TemporaryDirectory(prefix="ask-", dir=scratch) as name:
        folder = Path(name)
        for file, data in contents.items():
            write_new(folder / file, data, 0o600)
        yield folder, {file: measure(folder / file) for file in contents}


def write_approval(path: Path, signed: SignedApproval) -> None:
    """Write the new file `path` (0600) with a signed approval.

    Raises:
        FileUnwritable: the file exists, or cannot be written.
    """
    _write_model(path, encode_json(signed.model_dump(mode="json")))


def read_approval(path: Path) -> SignedApproval:
    """Read a `signed.json`; `decide.import_approval` checks its signature against the ledger.

    Raises:
        FileUnreadable, InvalidApprovalFile: the file is missing, or not in the format.
    """
    return _read_model(SignedApproval, path, MOST_APPROVAL_BYTES)


def _write_model(path: Path, data: bytes) -> None:
    try:
        write_new(path, data, 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None


def _read_model(model: type[FileModel], path: Path, largest: int) -> FileModel:
    try:
        with open_regular_file(path) as file:
            data = file.read(largest + 1)
        if len(data) > largest:
            raise _invalid_approval_file(path, f"is larger than {largest:,} bytes")
        return read_as(model, decode_json(data, path.name), path.name)
    except FileUnfit as unfit:
        if not path.is_file():
            raise file_unreadable(path, unfit.reason) from None
        raise _invalid_approval_file(path, unfit.reason) from None
    except OSError as problem:
        raise file_unreadable(path, problem.strerror or type(problem).__name__) from None


def _invalid_approval_file(path: Path, reason: str) -> UsageError:
    return UsageError(
        f"{path} {reason}.",
        "Nothing was signed or recorded. `almoner approve ID --gate GATE --export FILE` writes a review,"
        " `almoner approve --from FILE --reason TEXT --export FILE` signs it; do not edit either file.",
        {"path": str(path), "reason": reason},
        code="InvalidApprovalFile",
    )
