"""What a signed-in person may decide, the reviews they read first, and the price of a request that they write."""

from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from flows.approvals import decide
from flows.approvals.passkey_decision import may_decide
from flows.approvals.price_sections import price_sections
from flows.approvals.review import Review
from flows.dashboard.queue_page import QueueItem, queue_page
from flows.dashboard.viewer import View, Viewer
from flows.governance.policy import redact_refusals
from flows.releases.propose import price_for_home, shown_price, submit_request, weaknesses_of
from flows.workspace.workspace import Workspace
from flows.workspace.yaml_files import parse_fields
from models_db.errors import Refused
from models_db.services import gates, people
from models_db.services.audit.chain import Actor
from models_db.services.gates import GateStatus
from models_db.tables import Dataset, Principal
from models_db.values.request_state import Gate
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.release.claim import require_accepted
from tasks.release.sections import Section


@dataclass(frozen=True)
class PricePage:
    """The price of a request: its sections, the number that it got if it was submitted, and whether it could be."""

    sections: tuple[Section, ...]
    request: int | None


def view_of_person(view: View, person: Actor) -> View:
    """Return the view of another person than the home's owner, with the roles that they have now."""
    return replace(view, actor=person, roles=people.roles_of(view.session, person.id))


def is_in_force(session: Session, person: Actor, passkey: int) -> bool:
    """Return whether a passkey of a person was not revoked."""
    return any(one.id == passkey for one in people.open_passkeys(session, person.id))


def decisions_page(view: View) -> list[QueueItem]:
    """Return all that the viewer may decide on now, requests first, oldest first."""
    found: list[QueueItem] = []
    after: int | None = 0
    proposals_after: int | None = 0
    while after is not None or proposals_after is not None:
        page = queue_page(view, _END if after is None else after, _END if proposals_after is None else proposals_after)
        found += [item for item in (*page.requests, *page.proposals) if item.approvals.yours]
        after, proposals_after = page.next_after, page.next_proposals_after
    return sorted(found, key=lambda item: item.what != "request")


@dataclass(frozen=True)
class OwnApproval:
    """An approval that its giver may take back."""

    number: int
    gate: Gate
    dataset: str
    reason: str
    since: str
    counts: bool


def own_approvals(session: Session, person: Actor) -> list[OwnApproval]:
    """Return the approvals of a person that nobody has used, oldest first."""
    found = []
    for subject, approval in gates.unused_approvals(session, person.id):
        counts = approval in GateStatus.load(session, [subject]).counting(subject)
        name = session.get_one(Dataset, subject.dataset_id).name
        found.append(OwnApproval(subject.number, subject.gate, name, approval.reason, approval.at, counts))
    return found


def own_approval(session: Session, person: Actor, number: int, gate: Gate) -> OwnApproval:
    """Return the approval of a person at a gate, which they may take back.

    Raises:
        NothingToWithdraw: there is none.
    """
    found = [one for one in own_approvals(session, person) if (one.number, one.gate) == (number, gate)]
    if not found:
        raise gates.nothing_to_withdraw(number, gate)
    return found[-1]


def review_page(viewer: Viewer, person: Actor, number: int, gate: Gate) -> Review:
    """Return the review of what waits at a gate, for a person who may decide on it.

    Raises:
        NotYours: the person may not decide on it now.
        RequestUnknown, ProposalUnknown, WrongState, ProposalDecided: nothing of that number waits there.
    """
    with viewer.database.read() as session:
        require_decider(session, person, number, gate)
        key = session.get_one(Principal, person.id).public_key
    return decide.load_review(viewer.workspace(), number, gate, key)


def require_decider(session: Session, person: Actor, number: int, gate: Gate) -> None:
    """Check that a person may decide now.

    Raises:
        NotYours: they may not.
        RequestUnknown, ProposalUnknown: there is none of that number.
    """
    if not may_decide(session, person, number, gate):
        raise Refused(
            f"You cannot decide on {gate.subject} {number} at the {gate.value} gate now.",
            "It does not wait there, you have decided already, or you are no steward who may decide on it: see"
            " `almoner user list`.",
            {"number": number, "gate": gate.value},
            code="NotYours",
        )


def price_page(
    workspace: Workspace, person: Actor, written: str, *, submit: bool, accept_weak_promise: bool
) -> PricePage:
    """Price a request that a person has written, as the command line does, and submit it in their name if asked to.

    Raises:
        As `flows.releases.propose.propose_release`.
    """
    own = replace(workspace, actor=person)
    fields = parse_fields(written, "The request", ReleaseRequest.model_fields)
    priced = price_for_home(own, parse_model(ReleaseRequest, fields, "The request"))
    shown = tuple(price_sections(shown_price(own, priced).price))
    if not submit:
        return PricePage(shown, None)
    with redact_refusals(own):
        priced.require_affordable()
    require_accepted(weaknesses_of(priced), accepted=accept_weak_promise)
    return PricePage(shown, submit_request(own, priced)[0])


_END = 2**62
"""A number behind every request and proposal."""
