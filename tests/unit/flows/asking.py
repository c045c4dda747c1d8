"""Questions made by hand: a request, its policy and a budget, without ledger or model."""

import json
from pathlib import Path
from typing import Any

from flows.approvals.build_review import build_publish_review, build_spend_review
from flows.approvals.review import Review
from flows.approvals.review_input import RequestReviewInput
from models_db.values.canonical_json import encode_canonical
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.common.files import FileTable
from tasks.publishing.draft import write_draft
from tasks.release.record import Person
from tasks.release.sections import FieldList, Samples, Summary, Table, Warnings
from tasks.release.signatures.ed25519 import SigningKey
from tests.unit.tasks.publishing.builders import POLICY, TEXTS, a_record, a_request, metrics_of, people

BUDGET = {
    "epsilon_cap": "8",
    "delta_cap": "0.000001",
    "delta_conversion": str(9 * 10**11),
    "rho_cap": str(lifetime_claim("8", "0.000001").cap.rho),
    "rho_spent": str(10**11),
    "rho_held": "0",
    "delta_fail_cap": str(10**11),
    "delta_spent": "0",
    "delta_held": "0",
}


def a_budget(**changes: str) -> dict[str, str]:
    """The budget of one block, in which what is left follows from the rest."""
    amounts = BUDGET | changes
    left = {
        f"{kind}_left": str(max(int(amounts[cap]) - int(amounts[f"{kind}_spent"]) - int(amounts[f"{kind}_held"]), 0))
        for kind, cap in (("rho", "rho_cap"), ("delta", "delta_fail_cap"))
    }
    return left | amounts


def a_question(*stewards: Person, budget: dict[str, str] | None = None, **changes: Any) -> RequestReviewInput:
    """Request 1, asked for by ana."""
    request = changes.pop("request", a_request())
    return RequestReviewInput.model_validate(
        {
            "number": 1,
            "state": "submitted",
            "request": json.loads(encode_canonical(request)),  # as the ledger stores it
            "requester": people().requester,
            "expires_at": "9999-01-01T00:00:00.000000Z",
            "policy": POLICY,
            "stewards": stewards,
            "given": (),
            "counted": 0,
            "needed": 1,
            "budget": a_budget(**(budget or {})),
            "previous": None,
            "notices": (),
        }
        | changes
    )


def steward(key: SigningKey, name: str = "sue") -> Person:
    """Somebody who may sign."""
    return Person(name=name, public_key=key.public_key)


def a_draft(folder: Path, request: dict[str, Any] | None = None) -> tuple[Path, FileTable]:
    """What a run of the request produced, in a new folder below `folder`."""
    draft = folder / "draft"
    record = a_record(request)
    metrics = metrics_of(TEXTS, "length", "distinct")
    return draft, write_draft(draft, record, TEXTS, metrics, labels=record.labels)


def produced(folder: Path, question: RequestReviewInput, viewer: str | None = None) -> Review:
    """The question at the publish gate."""
    draft, files = a_draft(folder, question.request)
    return build_publish_review(question.model_copy(update={"state": "produced"}), draft, files, viewer)


def text_of(asked: Review) -> str:
    """Everything a matter says, one line a row."""
    lines: list[str] = [asked.title]
    for section in asked.sections:
        lines += [] if isinstance(section, Summary) else [section.title]
        match section:
            case FieldList(rows=rows) | Table(rows=rows):
                lines += [" | ".join(row) for row in rows]
            case Samples(texts=said) | Warnings(lines=said) | Summary(lines=said):
                lines += said
        lines += [section.empty] if isinstance(section, Table) and not section.rows else []
    return "\n".join(lines)


def doubts(question: RequestReviewInput, viewer: str | None = None) -> tuple[str, ...]:
    """What a steward is warned of at the spend gate."""
    found = [
        section.lines for section in build_spend_review(question, viewer).sections if isinstance(section, Warnings)
    ]
    return found[0] if found else ()
