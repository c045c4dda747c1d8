"""Queue page: items waiting for stewards, for a runner and for a publisher, oldest first."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flows.approvals.propose_change import describe_terms
from flows.dashboard.request_list import cohorts_in, delta_text, request_cost
from flows.dashboard.viewer import View
from models_db.database.base import utc_now
from models_db.services import erasures
from models_db.services.audit.stored_text import request_body
from models_db.services.gates import Decidable, GateStatus, artifacts_by_request, runners_by_request
from models_db.services.queries import lists
from models_db.tables import Dataset, Proposal, Request
from models_db.values.amounts import Amount
from models_db.values.request_state import UNRUN_STATES, WAITS_AT, Gate, RequestState
from tasks.common.published_values import format_small
from tasks.planning.block_selection import describe_cohorts

ITEMS_PER_PAGE = 50
_GATES = frozenset(Gate)
_STEP: dict[str, str] = {RequestState.SUBMITTED: Gate.SPEND, RequestState.APPROVED: "run"}
WAITING_STATES = tuple(state for states in WAITS_AT.values() for state in states)


@dataclass(frozen=True)
class ApprovalStatus:
    """State of a request or proposal at its gate.

    Attributes:
        given, needed: the number of approvals that count, and the number needed.
        by: the people whose approvals count.
        may_decide: the people who could approve now.
        yours: whether the viewer is one of them.
    """

    given: int
    needed: int
    by: tuple[str, ...]
    may_decide: tuple[str, ...]
    yours: bool


@dataclass(frozen=True)
class QueueItem:
    """One waiting request or proposal.

    Attributes:
        what: `request` or `proposal`.
        step: the gate at which it waits (`spend`, `publish`, `proposal`), or the next action (`run`, `deliver`).
        asks: its content in a few words.
        price: the rho that it would spend; None if it spends nothing more, or if the price is unknown.
        days: its age in days.
        standing: the number of its standing authorisation, which replaces a decision.
        expired: whether it has expired, so that nobody may decide on it.
        command: the command of the next action; None if it has expired.
    """

    what: str
    number: int
    step: str
    dataset: str
    asks: str
    epsilon: str | None
    delta: str | None
    price: str | None
    by: str
    since: str
    days: int
    expires_at: str
    standing: int | None
    expired: bool
    approvals: ApprovalStatus
    command: str | None


@dataclass(frozen=True)
class Queue:
    """A page of requests and a page of proposals; `after` and `proposals_after` ask for the next ones."""

    requests: tuple[QueueItem, ...]
    proposals: tuple[QueueItem, ...]
    next_after: int | None
    next_proposals_after: int | None


def queue_page(view: View, after: int = 0, proposals_after: int = 0) -> Queue:
    """Return one page of waiting requests and proposals, with numbers above `after` and `proposals_after`."""
    rows = lists.request_page(view.session, ITEMS_PER_PAGE + 1, after=after, states=WAITING_STATES)
    moved = lists.open_proposals(view.session, ITEMS_PER_PAGE + 1, proposals_after)
    facts = _QueueFacts.load(view, rows[:ITEMS_PER_PAGE], moved[:ITEMS_PER_PAGE])
    return Queue(
        tuple(facts.request_item(request) for request, _ in rows[:ITEMS_PER_PAGE]),
        tuple(map(facts.proposal_item, moved[:ITEMS_PER_PAGE])),
        rows[ITEMS_PER_PAGE - 1][0].id if len(rows) > ITEMS_PER_PAGE else None,
        moved[ITEMS_PER_PAGE - 1].id if len(moved) > ITEMS_PER_PAGE else None,
    )


def queue_item(view: View, request: Request, state: str) -> QueueItem:
    """Return the queue item of a request that is in one of WAITING_STATES."""
    return _QueueFacts.load(view, [(request, state)], []).request_item(request)


@dataclass(frozen=True)
class _QueueFacts:
    """Facts of the ledger about the requests and proposals of a page."""

    viewer: int
    now: str
    names: Mapping[int, str]
    datasets: Mapping[int, Dataset]
    requests: Mapping[int, Decidable]
    proposals: Mapping[int, Decidable]
    gates: GateStatus
    uses: Mapping[int, int]
    retracted: Mapping[int, int]
    erased: frozenset[int]
    """Fully erased versions: no request that reads one is approved."""

    @classmethod
    def load(cls, view: View, requests: Sequence[tuple[Request, str]], proposals: Sequence[Proposal]) -> "_QueueFacts":
        session = view.session
        numbers, proposal_numbers = [request.id for request, _ in requests], [proposal.id for proposal in proposals]
        read = {request.dataset_id for request, _ in requests}
        datasets = lists.datasets_by_id(session, read | {proposal.dataset_id for proposal in proposals})
        artifacts, runners = artifacts_by_request(session, numbers), runners_by_request(session, numbers)
        decidable_requests = {
            request.id: Decidable.of_request(
                request, _gate_of(state), state, datasets[request.dataset_id], artifacts.get(request.id), runners
            )
            for request, state in requests
        }
        decidable_proposals = {
            proposal.id: Decidable.of_proposal(proposal, "open", datasets[proposal.dataset_id])
            for proposal in proposals
        }
        publications = {proposal.publication_id for proposal in proposals if proposal.publication_id is not None}
        return cls(
            viewer=view.actor.id,
            now=utc_now(),
            names=lists.principal_names(session),
            datasets=datasets,
            requests=decidable_requests,
            proposals=decidable_proposals,
            gates=GateStatus.load(session, [*decidable_requests.values(), *decidable_proposals.values()]),
            uses=lists.use_counts(session, proposal_numbers),
            retracted=lists.requests_of_publications(session, publications),
            erased=erasures.erased_versions(session),
        )

    def request_item(self, request: Request) -> QueueItem:
        """Return the item of a request at its gate or past it."""
        subject, body = self.requests[request.id], request_body(request)
        early = subject.gate is Gate.SPEND
        step = _STEP.get(subject.state, "deliver" if self.gates.is_passed(subject) else Gate.PUBLISH)
        price, expired = request_cost(request) if early else None, early and request.expires_at <= self.now
        return QueueItem(
            what="request",
            number=request.id,
            step=step,
            dataset=self.datasets[request.dataset_id].name,
            asks=_request_phrase(body),
            epsilon=body.get("epsilon"),
            delta=delta_text(body),
            price=None if price is None else price.rho_text,
            by=self.names[request.requester_id],
            since=request.created_at,
            days=_days_between(request.created_at, self.now),
            expires_at=request.expires_at,
            standing=request.standing_id,
            expired=expired,
            approvals=self._approvals(subject, decidable=self._may_be_decided(request, step, expired)),
            command=None if expired else _next_command(request.id, step),
        )

    def proposal_item(self, proposal: Proposal) -> QueueItem:
        """Return the item of an open proposal."""
        return QueueItem(
            what="proposal",
            number=proposal.id,
            step="proposal",
            dataset=self.datasets[proposal.dataset_id].name,
            asks=self._proposal_phrase(proposal),
            epsilon=proposal.epsilon,
            delta=None if proposal.delta is None else format_small(proposal.delta),
            price=Amount(proposal.rho).rho_text if proposal.kind == "standing" and proposal.rho is not None else None,
            by=self.names[proposal.proposer_id],
            since=proposal.created_at,
            days=_days_between(proposal.created_at, self.now),
            expires_at=proposal.expires_at,
            standing=None,
            expired=False,
            approvals=self._approvals(self.proposals[proposal.id], decidable=True),
            command=_next_command(proposal.id, "proposal"),
        )

    def _may_be_decided(self, request: Request, step: str, expired: bool) -> bool:
        erased = step == Gate.SPEND and request.version_id in self.erased
        return step in _GATES and not expired and not erased

    def _approvals(self, subject: Decidable, *, decidable: bool) -> ApprovalStatus:
        approvers = self.gates.approvers(subject)
        deciders = self.gates.deciders(subject) if decidable else frozenset[int]()
        return ApprovalStatus(
            len(approvers),
            self.gates.needed(subject),
            self._sorted_names(approvers),
            self._sorted_names(deciders),
            self.viewer in deciders,
        )

    def _sorted_names(self, people: Collection[int]) -> tuple[str, ...]:
        return tuple(sorted(self.names[one] for one in people))

    def _proposal_phrase(self, proposal: Proposal) -> str:
        used, retracted = self.uses.get(proposal.id, 0), self.retracted.get(proposal.publication_id or 0)
        return describe_terms(
            proposal.kind, proposal.epsilon, proposal.delta, used, proposal.runs, proposal.until, retracted
        )


def _gate_of(state: str) -> Gate:
    return Gate.SPEND if state in UNRUN_STATES else Gate.PUBLISH


def _request_phrase(body: Mapping[str, Any]) -> str:
    read = cohorts_in(body)
    return f"{body.get('kind')} by {body.get('mechanism')}" + (f", of {describe_cohorts(read)}" if read else "")


def _next_command(number: int, step: str) -> str:
    if step in _GATES:
        return f'almoner approve {number} --gate {step} --reason "..."'
    return f"almoner run {number}" if step == "run" else f"almoner publish {number} --to DIR"


def _days_between(since: str, now: str) -> int:
    """Return the whole days between two times."""
    then, at = (datetime.fromisoformat(one).astimezone(UTC) for one in (since, now))
    return max((at - then).days, 0)
