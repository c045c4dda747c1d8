"""Approvals without a network: the question in a file, signed on a steward's own machine, and brought back.

`ask.json` carries everything that is shown, and the complete subject: the canonical request, and at the publish gate
the very files. No digest in it is read; the reader computes its own. At the publish gate it carries unpublished texts:
the file is as private as the quarantine folder (0600). `signed.json` carries one signed decision and nothing private.
Both are closed formats in canonical JSON: an unknown field, another spelling or a strange size is refused.
"""

import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import Field, StringConstraints, ValidationError

from flows.approvals.build_review import at_publish, at_spend
from flows.approvals.proposal_review import MotionQuestion, at_motion
from flows.approvals.request_review import Question
from flows.approvals.review import Matter
from flows.workspace.yaml_files import FileUnreadable, FileUnwritable
from models_db.errors import UsageError
from models_db.services.lifecycle.gates import GateDecision
from models_db.values.gates import Gate
from tasks.common.files import FileUnfit, document, measure, parse_document, plain_file, read_document, write_new
from tasks.common.strict_model import Digest, Name, Strict, read_as
from tasks.release.file_names import PARQUET, RECORD
from tasks.release.format_versions import drafted_files, stated_kind
from tasks.release.signatures import ed25519

LARGEST_ASK = 64 << 20
LARGEST_APPROVAL = 256 << 10

Model = TypeVar("Model", bound=Strict)


class Ask(Strict):
    """`ask.json`: a question, and at the publish gate the produced files, by name."""

    format: Literal["almoner-ask/1"]
    gate: Annotated[Gate, Field(strict=False)]
    question: Question | MotionQuestion
    files: dict[str, str] | None
    packed: dict[str, str] | None
    """Those that are no text, in base64."""

    @property
    def contents(self) -> dict[str, bytes] | None:
        """All files by name, None without any.

        Raises:
            ValueError: one is not in base64.
        """
        if self.files is None or self.packed is None:
            return None
        packed = {name: b64decode(data, validate=True) for name, data in self.packed.items()}
        return packed | {name: text.encode() for name, text in self.files.items()}


class SignedApproval(Strict):
    """`signed.json`: one approval, with everything needed to check its signature."""

    format: Literal["almoner-approval/1"] = "almoner-approval/1"
    number: Annotated[int, Field(ge=1)]
    gate: Annotated[Gate, Field(strict=False)]
    subject_sha256: Digest
    decision: Literal["approve"]
    reason: Annotated[str, Field(min_length=1, max_length=10_000)]
    expires_at: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
    on_behalf_of: Name | None
    approver: Name
    public_key: Digest
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")]
    attestation: Annotated[str, Field(max_length=10_000)] | None

    @property
    def stated(self) -> GateDecision:
        """The decision as the ledger stores it."""
        return GateDecision(
            self.number,
            self.gate,
            self.subject_sha256,
            self.decision,
            self.reason,
            self.expires_at,
            on_behalf_of=self.on_behalf_of,
        )

    @property
    def authentic(self) -> bool:
        """Whether the key in it signed exactly this."""
        return ed25519.verify(self.public_key, self.signature, self.stated.statement(self.approver))

    @property
    def expires(self) -> datetime:
        """Until when it counts.

        Raises:
            ValueError: there is no such day.
        """
        return datetime.strptime(self.expires_at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def write_ask(path: Path, gate: Gate, question: Question | MotionQuestion, draft: Path | None) -> None:
    """Write the new file `path` (0600) with a question, and the files of a draft that go with it.

    Raises:
        FileUnwritable: it cannot be written, or is there.
        AskTooLarge: the draft does not fit a file that can be read back.
    """
    files, packed = (None, None) if draft is None else _packed(draft)
    ask = Ask.model_validate(
        {"format": "almoner-ask/1", "gate": gate, "question": question, "files": files, "packed": packed}
    )
    data = document(ask.model_dump(mode="json"))
    if len(data) > LARGEST_ASK:
        raise AskTooLarge(len(data))
    _write(path, data)


def read_ask(path: Path, viewer: str, scratch: Path) -> Matter:
    """The matter that an `ask.json` puts, computed from its content.

    Args:
        viewer: the public key of whoever reads.
        scratch: a private folder, where the files of a draft are laid out while they are read.

    Raises:
        FileUnreadable, ApprovalFileUnfit: it is missing, or not one of ours.
        Refused: its content contradicts itself.
    """
    ask = _read(Ask, path, LARGEST_ASK)
    try:
        made = _READERS[ask.gate](ask, viewer, scratch)
    except (ValidationError, KeyError, TypeError, ValueError) as unfit:
        raise ApprovalFileUnfit(path, f"has a question that makes no sense ({type(unfit).__name__})") from None
    except FileUnfit as unfit:
        raise ApprovalFileUnfit(path, f"holds a {unfit.message}") from None
    if made is None:
        raise ApprovalFileUnfit(path, "holds another question, or other files, than its gate is about")
    return made


def _spend(ask: Ask, viewer: str, _: Path) -> Matter | None:
    if isinstance(ask.question, Question) and ask.files is None and ask.packed is None:
        return at_spend(ask.question, viewer)
    return None


def _motion(ask: Ask, viewer: str, _: Path) -> Matter | None:
    if isinstance(ask.question, MotionQuestion) and ask.files is None and ask.packed is None:
        return at_motion(ask.question, viewer)
    return None


def _publish(ask: Ask, viewer: str, scratch: Path) -> Matter | None:
    contents = ask.contents
    if not isinstance(ask.question, Question) or contents is None:
        return None
    if set(contents) != set(drafted_files(stated_kind(contents.get(RECORD, b"")))):
        return None
    return _unpacked(ask.question, contents, viewer, scratch)


_READERS: dict[Gate, Callable[[Ask, str, Path], Matter | None]] = {
    Gate.SPEND: _spend,
    Gate.PUBLISH: _publish,
    Gate.MOTION: _motion,
}


def _packed(draft: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The files of a draft: texts as they are, and the others in base64."""
    record = read_document(draft / RECORD)
    contents = {name: read_document(draft / name) for name in drafted_files(stated_kind(record))}
    packed = {name: b64encode(contents.pop(name)).decode() for name in (PARQUET,)}
    return {name: data.decode() for name, data in contents.items()}, packed


def _unpacked(question: Question, files: Mapping[str, bytes], viewer: str, scratch: Path) -> Matter:
    with tempfile.TemporaryDirectory(prefix="ask-", dir=scratch) as folder:
        for name, data in files.items():
            write_new(Path(folder) / name, data, 0o600)
        return at_publish(question, Path(folder), {name: measure(Path(folder) / name) for name in files}, viewer)


def write_approval(path: Path, signed: SignedApproval) -> None:
    """Write the new file `path` (0600) with a signed approval.

    Raises:
        FileUnwritable: it cannot be written, or is there.
    """
    _write(path, document(signed.model_dump(mode="json")))


def read_approval(path: Path) -> SignedApproval:
    """Read a `signed.json`. Its signature is not checked yet: `flows.approvals.decide.bring` does, against the ledger.

    Raises:
        FileUnreadable, ApprovalFileUnfit: it is missing, or not one of ours.
    """
    return _read(SignedApproval, path, LARGEST_APPROVAL)


def _write(path: Path, data: bytes) -> None:
    try:
        write_new(path, data, 0o600)
    except OSError as problem:
        raise FileUnwritable(path, problem.strerror or type(problem).__name__) from None


def _read(model: type[Model], path: Path, largest: int) -> Model:
    try:
        with plain_file(path) as file:
            data = file.read(largest + 1)
        if len(data) > largest:
            raise ApprovalFileUnfit(path, f"is larger than {largest:,} bytes")
        return read_as(model, parse_document(data, path.name), path.name)
    except FileUnfit as unfit:
        if not path.is_file():
            raise FileUnreadable(path, unfit.reason) from None
        raise ApprovalFileUnfit(path, unfit.reason) from None
    except OSError as problem:
        raise FileUnreadable(path, problem.strerror or type(problem).__name__) from None


class ApprovalFileUnfit(UsageError):
    """A file that was to carry a question or a signed approval does not."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} {reason}.",
            "Nothing was signed or recorded. `almoner approve ID --gate GATE --export FILE` writes a question,"
            " `almoner approve --from FILE --reason TEXT --export FILE` signs it; do not edit either file.",
            {"path": str(path), "reason": reason},
        )


class AskTooLarge(UsageError):
    """A draft too large to travel in one file."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"The question would be {size:,} bytes, more than the {LARGEST_ASK:,} that are read back.",
            "Decide on the machine that has the files, with a home of the steward's own.",
            {"bytes": size, "largest": LARGEST_ASK},
        )
