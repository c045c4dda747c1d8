"""What waits, oldest first: for stewards, for somebody who runs it, for somebody who publishes it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flows.approvals.propose_change import ProposalRow
from flows.dashboard.balances import format_rho
from flows.dashboard.request_list import cohorts_in, delta_text, request_cost
from flows.dashboard.viewer import View
from models_db.database.base import utc_now
from models_db.services.audit.stored_text import request_body
from models_db.services.catalogue import erasures, internal_views
from models_db.services.queries import lists
from models_db.services.queries.lists import ApprovalRules, DecidingPeople
from models_db.tables import Approval, Artifact, Dataset, Proposal, Request
from models_db.values.amounts import Amount
from models_db.values.gates import Gate
from models_db.values.request_state import UNRUN_STATES, WAITS_AT, RequestState
from tasks.planning.block_selection import in_words
from tasks.reporting.number_format import format_small

ITEMS_PER_PAGE = 50
_GATES = frozenset(Gate)
_STEP: dict[str, str] = {RequestState.SUBMITTED: Gate.SPEND, RequestState.APPROVED: "run"}
WAITING_STATES = tuple(state for states in WAITS_AT.values() for state in states)


@dataclass(frozen=True)
class ApprovalStatus:
    """Where a thing stands at its gate.

    Attributes:
        given, needed: approvals that count, and how many are needed.
        by: whose approvals count.
        may_decide: who could give another one now.
        yours: whether the viewer is among them.
    """

    given: int
    needed: int
    by: tuple[str, ...]
    may_decide: tuple[str, ...]
    yours: bool


@dataclass(frozen=True)
class QueueItem:
    """One thing that waits.

    Attributes:
        what: `request` or `proposal`.
        step: the gate it waits at (`spend`, `publish`, `proposal`), or what is to be done with it (`run`, `deliver`).
        asks: what it is, in a few words.
        price: rho that it would spend; None where nothing is to be spent any more, or it cannot be told.
        days: its age.
        standing: the standing authorisation that it was made under; it needs no decision of its own.
        expired: nobody may decide on it any more.
        command: what to type; None where it has expired.
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


@dataclass(frozen=True)
class _GateFacts:
    """What decides about one thing at one gate."""

    needed: int
    several_roles: bool
    decisions: Sequence[Approval]
    excluded: Collection[int]
    """Principals who took part in it, and may not decide where roles are separate."""
    barred: frozenset[int]
    """Principals who have seen unprotected figures of the account, where the policy bars them."""


def queue_page(view: View, after: int = 0, proposals_after: int = 0) -> Queue:
    """Requests and proposals that wait, those after some numbers."""
    found = lists.request_page(view.session, ITEMS_PER_PAGE + 1, after=after, states=WAITING_STATES)
    moved = lists.open_proposals(view.session, ITEMS_PER_PAGE + 1, proposals_after)
    desk = _QueueFacts.load(view, [request for request, _ in found[:ITEMS_PER_PAGE]], moved[:ITEMS_PER_PAGE])
    return Queue(
        tuple(desk.request(request, state) for request, state in found[:ITEMS_PER_PAGE]),
        tuple(map(desk.proposal, moved[:ITEMS_PER_PAGE])),
        found[ITEMS_PER_PAGE - 1][0].id if len(found) > ITEMS_PER_PAGE else None,
        moved[ITEMS_PER_PAGE - 1].id if len(moved) > ITEMS_PER_PAGE else None,
    )


def queue_item(view: View, request: Request, state: str) -> QueueItem:
    """One request that is in a state of WAITING."""
    return _QueueFacts.load(view, [request], []).request(request, state)


@dataclass(frozen=True)
class _QueueFacts:
    """Everything that the ledger has on the things of a page."""

    viewer: int
    now: str
    names: Mapping[int, str]
    datasets: Mapping[int, Dataset]
    people: DecidingPeople
    rules: ApprovalRules
    decisions: Sequence[Approval]
    artifacts: Mapping[int, Artifact]
    runners: Collection[tuple[int, int]]
    uses: Mapping[int, int]
    retracted: Mapping[int, int]
    viewers: Mapping[int, frozenset[int]]
    erased: frozenset[int]
    """Versions of which nothing is left: no request that reads one is approved."""

    @classmethod
    def load(cls, view: View, requests: Sequence[Request], proposals: Sequence[Proposal]) -> "_QueueFacts":
        session = view.session
        both: list[Request | Proposal] = [*requests, *proposals]
        numbers, proposal_numbers = [request.id for request in requests], [proposal.id for proposal in proposals]
        found = lists.datasets_by_id(session, {one.dataset_id for one in both})
        publications = {proposal.publication_id for proposal in proposals if proposal.publication_id is not None}
        return cls(
            viewer=view.actor.id,
            now=utc_now(),
            names=lists.principal_names(session),
            datasets=found,
            people=lists.deciding_people(session),
            rules=lists.load_approval_rules(
                session,
                {one.policy_id for one in both},
                {dataset.account_id for dataset in found.values()},
            ),
            decisions=lists.possibly_counting_decisions(session, numbers, proposal_numbers),
            artifacts=lists.artifacts_by_request(session, numbers),
            runners=lists.runners_by_request(session, numbers),
            uses=lists.use_counts(session, proposal_numbers),
            retracted=lists.requests_of_publications(session, publications),
            erased=erasures.erased_versions(session),
            viewers=internal_views.list_viewers(session, {dataset.account_id for dataset in found.values()}),
        )

    def request(self, request: Request, state: str) -> QueueItem:
        """A request at its gate, or past it."""
        gate, body, early = self._gate_of(request, state), request_body(request), state in UNRUN_STATES
        counting = self._counting_people(gate, request.dataset_id)
        passed = len(counting) >= gate.needed and not any(one.decision == "reject" for one in gate.decisions)
        step = _STEP.get(state, "deliver" if passed else Gate.PUBLISH)
        price, expired = request_cost(request) if early else None, early and request.expires_at <= self.now
        return QueueItem(
            what="request",
            number=request.id,
            step=step,
            dataset=self.datasets[request.dataset_id].name,
            asks=_request_phrase(body),
            epsilon=body.get("epsilon"),
            delta=delta_text(body),
            price=None if price is None else format_rho(price),
            by=self.names[request.requester_id],
            since=request.created_at,
            days=_days_between(request.created_at, self.now),
            expires_at=request.expires_at,
            standing=request.standing_id,
            expired=expired,
            approvals=self._approvals(
                gate, counting, request.dataset_id, asked=self._may_be_decided(request, step, expired)
            ),
            command=None if expired else _next_command(request.id, step),
        )

    def proposal(self, proposal: Proposal) -> QueueItem:
        """A proposal at its gate; each that is listed is open."""
        dataset = self.datasets[proposal.dataset_id]
        gate = _GateFacts(
            self.rules.required_approvals(proposal.policy_id, dataset.account_id, Gate.PROPOSAL),
            self.rules.policies[proposal.policy_id].several_roles,
            [one for one in self.decisions if one.proposal_id == proposal.id],
            (proposal.proposer_id,),
            self._barred(proposal.policy_id, dataset.account_id),
        )
        return QueueItem(
            what="proposal",
            number=proposal.id,
            step="proposal",
            dataset=dataset.name,
            asks=self._proposal_phrase(proposal),
            epsilon=proposal.epsilon,
            delta=None if proposal.delta is None else format_small(proposal.delta),
            price=format_rho(Amount(proposal.rho))
            if proposal.kind == "standing" and proposal.rho is not None
            else None,
            by=self.names[proposal.proposer_id],
            since=proposal.created_at,
            days=_days_between(proposal.created_at, self.now),
            expires_at=proposal.expires_at,
            standing=None,
            expired=False,
            approvals=self._approvals(gate, self._counting_people(gate, dataset.id), dataset.id, asked=True),
            command=_next_command(proposal.id, "proposal"),
        )

    def _may_be_decided(self, request: Request, step: str, expired: bool) -> bool:
        erased = step == Gate.SPEND and request.version_id in self.erased
        return step in _GATES and not expired and not erased

    def _gate_of(self, request: Request, state: str) -> _GateFacts:
        name = Gate.SPEND if state in UNRUN_STATES else Gate.PUBLISH
        made = self.artifacts.get(request.id)
        subject = request.digest if name == Gate.SPEND or made is None else made.digest
        decided = [
            one for one in self.decisions
            if (one.request_id, one.gate, one.subject_digest) == (request.id, name, subject)
        ]  # fmt: skip
        ran = (person for number, person in self.runners if number == request.id)
        policy, account = self.rules.policies[request.policy_id], self.datasets[request.dataset_id].account_id
        needed = self.rules.required_approvals(policy.id, account, name)
        barred = self._barred(policy.id, account)
        return _GateFacts(needed, policy.several_roles, decided, (request.requester_id, *ran), barred)

    def _barred(self, policy_id: int, account_id: int) -> frozenset[int]:
        seen = self.viewers.get(account_id, frozenset())
        return seen if seen and self.rules.bars_viewers(policy_id, account_id) else frozenset()

    def _counting_people(self, gate: _GateFacts, dataset_id: int) -> frozenset[int]:
        """The people whose approvals count: whoever acts for somebody is that somebody."""
        given = (one for one in gate.decisions if one.decision == "approve" and self.people.may_count(one, dataset_id))
        return frozenset(one.on_behalf_of or one.approver_id for one in given)

    def _deciders(self, gate: _GateFacts, dataset_id: int) -> Iterator[int]:
        """As the guards of the database have it (`approval_...`)."""
        given = [one for one in gate.decisions if one.decision == "approve"]
        if len(given) < len(gate.decisions):
            return  # one rejection is enough
        taken = {person for one in given for person in (one.approver_id, one.on_behalf_of)}
        taken |= gate.barred
        barred = taken if gate.several_roles else taken | {*gate.excluded} | self.people.admins
        yield from (
            taker
            for taker, giver in self.people.deciders_with_principals(dataset_id)
            if barred.isdisjoint((taker, giver))
        )

    def _approvals(self, gate: _GateFacts, counting: frozenset[int], dataset_id: int, *, asked: bool) -> ApprovalStatus:
        deciders = {*self._deciders(gate, dataset_id)} if asked else set()
        return ApprovalStatus(
            len(counting),
            gate.needed,
            self._sorted_names(counting),
            self._sorted_names(deciders),
            self.viewer in deciders,
        )

    def _sorted_names(self, people: Collection[int]) -> tuple[str, ...]:
        return tuple(sorted(self.names[one] for one in people))

    def _proposal_phrase(self, proposal: Proposal) -> str:
        used, retracted = self.uses.get(proposal.id, 0), self.retracted.get(proposal.publication_id or 0)
        return ProposalRow(
            number=proposal.id, kind=proposal.kind, dataset="", state="open", proposer="", reason="", proposed_at="",
            expires_at="", given=0, needed=0, epsilon=proposal.epsilon, delta=proposal.delta, runs=proposal.runs,
            used=used, until=proposal.until, request_id=retracted,
        ).content  # fmt: skip


def _request_phrase(body: Mapping[str, Any]) -> str:
    read = cohorts_in(body)
    return f"{body.get('kind')} by {body.get('mechanism')}" + (f", of {in_words(read)}" if read else "")


def _next_command(number: int, step: str) -> str:
    if step in _GATES:
        return f'almoner approve {number} --gate {step} --reason "..."'
    return f"almoner run {number}" if step == "run" else f"almoner publish {number} --to DIR"


def _days_between(since: str, now: str) -> int:
    """Whole days between two moments."""
    then, at = (datetime.fromisoformat(one).astimezone(UTC) for one in (since, now))
    return max((at - then).days, 0)
