"""Creation of proposals: a new cap, a standing authorisation, a retraction. Stewards decide them like releases.

With `dry_run` a proposal is shown and not recorded: what would change, and how many stewards must approve. Nothing here
changes a budget; a proposal takes effect with the approval that completes it (`flows.approvals.decide`).
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy.orm import Session

from flows.approvals import decide
from flows.audit.lifetime_claims import growth_in_words, lifetime_of, require_proposal_amounts
from flows.datasets.budget import datasets_on_account
from flows.governance.policy import (
    hides_balances,
    redact_refusals,
    require_in_force,
    require_policy,
    version_for_request,
)
from flows.releases.propose import price_request
from flows.workspace.workspace import Workspace
from models_db.database.base import utc_now
from models_db.errors import Refused, UsageError
from models_db.services import budget, datasets, proposals, requests
from models_db.services.datasets import LifetimeClaim
from models_db.services.gates import count_approvals, find_decidable
from models_db.services.proposals import AuthorisationTerms
from models_db.tables import Dataset, Proposal
from models_db.values.amounts import Amount
from models_db.values.request_state import Gate
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.accounting.lifetime_claims import lifetime_claim
from tasks.pricing.quote import Quote


@dataclass(frozen=True)
class ProposedChange:
    """A proposal's number (None in a dry run), and how many stewards must approve it."""

    number: int | None
    needed: int


@dataclass(frozen=True)
class CapProposal(ProposedChange):
    """A new lifetime claim beside the one in force."""

    sharing: tuple[str, ...]
    before: LifetimeClaim
    after: LifetimeClaim
    spent: Amount

    @property
    def raises(self) -> bool:
        """Return whether the dataset could lose more than before."""
        return not self.after.cap.fits(self.before.cap)

    @property
    def growth(self) -> str:
        """Return the factor by which the budget would grow or shrink, in words."""
        return growth_in_words(self.before, self.after)


@dataclass(frozen=True)
class StandingProposal(ProposedChange):
    """A standing authorisation to be proposed, with the cost of one run and the number of affordable runs."""

    quote: Quote
    with_balance: bool
    terms: AuthorisationTerms

    @property
    def affordable_runs(self) -> int:
        """Return the number of runs that fit into the remaining budget, and into the limits in Rényi orders."""
        remaining, runs, orders = self.quote.dataset.left, self.terms.runs, self.quote.in_orders
        admitted = None if orders is None else orders.count
        fitting = remaining.rho // self.terms.rho if self.terms.rho else runs
        return min(runs, fitting if admitted is None else min(fitting, admitted))


@dataclass(frozen=True)
class RetractionProposal(ProposedChange):
    """A release to be retracted; its spending stays."""

    dataset: str
    request_id: int
    spent: Amount


def propose_cap(
    workspace: Workspace, name: str, epsilon: str, delta: str, reason: str, *, dry_run: bool = False
) -> CapProposal:
    """Propose another lifetime claim for a dataset's account.

    Raises:
        ProposalReasonMissing, InvalidTarget, CapUnchanged: the proposal is incomplete, invalid or without effect.
        CapTooLow: the cap is below the spent and reserved amounts.
        PolicyDiffers, RoleDenied: it may not be proposed from here.
    """
    require_reason(reason)
    claim = lifetime_claim(epsilon, delta)
    with workspace.database.read() as session:
        require_in_force(session, workspace)
        dataset = datasets.find_dataset(session, name)
        before, together = lifetime_of(session, dataset), datasets_on_account(session, dataset)
        if (before.epsilon, before.delta) == (claim.epsilon, claim.delta):
            raise UsageError(
                f"The lifetime claim of {name!r} is already epsilon {claim.epsilon} at delta {claim.delta}.",
                f"See it with `almoner budget show {name}`.",
                {"dataset": name},
                code="CapUnchanged",
            )
        proposals.require_room(session, dataset, claim.cap)
        spent = budget.balance(session, dataset.account_id).spent
    number = None if dry_run else _record_cap_proposal(workspace, name, claim, reason)
    return CapProposal(number, _approvals_needed(workspace, together), together, before, claim, spent)


def _record_cap_proposal(workspace: Workspace, name: str, claim: LifetimeClaim, reason: str) -> int:
    with workspace.database.write() as session:
        dataset, policy = datasets.find_dataset(session, name), version_for_request(session, workspace)
        proposal = proposals.propose_cap(
            session, workspace.actor, dataset, policy, claim, reason, _approval_period(workspace)
        )
        return proposal.id


def propose_standing(
    workspace: Workspace, written: dict[str, object], runs: int, until: str, reason: str, *, dry_run: bool = False
) -> StandingProposal:
    """Propose that requests like this one run repeatedly without a decision for each.

    Raises:
        ProposalReasonMissing, InvalidEndDate, UsageError: the proposal is incomplete or invalid.
        PolicyForbids, BudgetExceeded, BudgetRefused: not even one run would be allowed.
        PolicyDiffers, RoleDenied: it may not be proposed from here.
    """
    require_reason(reason)
    ends = end_of_day(until)
    with workspace.database.read() as session:
        require_in_force(session, workspace)
        with_balance = not hides_balances(session, workspace.actor)
    priced = price_request(workspace, parse_model(ReleaseRequest, written, "The request"))
    require_policy(workspace.policy, priced.body)
    with redact_refusals(workspace):
        priced.require_affordable()
    loss = priced.plan.loss
    configuration = requests.configuration(priced.body)
    terms = AuthorisationTerms(configuration, loss.rho, loss.delta, runs, utc_now(ends), priced.choices)
    name = priced.dataset.name
    with workspace.database.read() as session:
        together = datasets_on_account(session, datasets.find_dataset(session, name))
    number = None if dry_run else _record_standing_proposal(workspace, name, terms, reason, ends)
    return StandingProposal(number, _approvals_needed(workspace, together), priced, with_balance, terms)


def _record_standing_proposal(
    workspace: Workspace, name: str, terms: AuthorisationTerms, reason: str, ends: datetime
) -> int:
    # Open for as long as it would be in force, because a proposal that has expired takes no decision, and a steward's
    # later rejection is what ends an authorisation.
    valid = max(_approval_period(workspace), ends - datetime.now(UTC))
    with workspace.database.write() as session:
        dataset, policy = datasets.find_dataset(session, name), version_for_request(session, workspace)
        proposal = proposals.propose_standing(session, workspace.actor, dataset, policy, terms, reason, valid)
        return proposal.id


def revoke_authorisation(workspace: Workspace, number: int, reason: str) -> str:
    """End a standing authorisation, as one steward; return its state.

    Raises:
        ProposalReasonMissing: there is no reason.
        AuthorisationNotInForce: the proposal is no standing authorisation in force.
        RuleViolated: the actor may not decide on it.
    """
    require_reason(reason)
    with workspace.database.read() as session:
        proposal = proposals.find_proposal(session, number)
        state = proposals.state_of(session, proposal)
    if proposal.kind != "standing" or state != "carried":
        raise _authorisation_not_in_force(number, proposal.kind, state)
    return decide.decide(workspace, decide.load_review(workspace, number, Gate.PROPOSAL), "reject", reason)


def propose_retraction(workspace: Workspace, request_id: int, reason: str) -> RetractionProposal:
    """Propose to retract a published release.

    Raises:
        ProposalReasonMissing: there is no reason.
        NotPublished: the release was not published.
        RetractionPending: its retraction is proposed already.
        PolicyDiffers, RoleDenied: it may not be proposed from here.
    """
    require_reason(reason)
    with workspace.database.write() as session:
        waiting = [
            proposal.id
            for proposal in _open_retractions(session, request_id)
            if proposals.state_of(session, proposal) == "open"
        ]
        if waiting:
            raise Refused(
                f"Proposal {waiting[0]} already asks to retract release {request_id}.",
                f'A steward decides: `almoner approve {waiting[0]} --gate proposal --reason "..."`.',
                {"request": request_id, "proposal": waiting[0]},
                code="RetractionPending",
            )
        policy = version_for_request(session, workspace)
        proposal = proposals.propose_retraction(
            session, workspace.actor, request_id, policy, reason, _approval_period(workspace)
        )
        dataset = session.get_one(Dataset, proposal.dataset_id)
        number, together, spent = (
            proposal.id,
            datasets_on_account(session, dataset),
            budget.spent_by(session, request_id),
        )
        return RetractionProposal(number, _approvals_needed(workspace, together), dataset.name, request_id, spent)


def _open_retractions(session: Session, request_id: int) -> list[Proposal]:
    retractions = [proposal for proposal in proposals.list_all(session) if proposal.kind == "retraction"]
    return [proposal for proposal in retractions if proposals.retracted_request(session, proposal) == request_id]


def _approval_period(workspace: Workspace) -> timedelta:
    return timedelta(days=workspace.policy.request_days)


def _approvals_needed(workspace: Workspace, together: tuple[str, ...]) -> int:
    """Return the number of approvals needed: the policy's largest number for any dataset of the account."""
    return max(workspace.policy.rules_for(name).proposal for name in together)


def require_reason(reason: str) -> None:
    """Check that there is a reason.

    Raises:
        ProposalReasonMissing: there is none.
    """
    if not reason.strip():
        raise UsageError("A proposal needs a reason.", 'Give one: --reason "...".', code="ProposalReasonMissing")


def end_of_day(until: str) -> datetime:
    """Return the end of a future day in UTC.

    Raises:
        InvalidEndDate: the text is no date, or the day is over.
    """
    try:
        ends = datetime.combine(date.fromisoformat(until), time(23, 59, 59), UTC)
    except ValueError:
        raise _invalid_end_date(until, "is not a date") from None
    if ends <= datetime.now(UTC):
        raise _invalid_end_date(until, "is over")
    return ends


@dataclass(frozen=True)
class ProposalRow:
    """A proposal as lists show it.

    Attributes:
        given, needed: the number of approvals that count now, and the number needed.
        used: the runs drawn from a standing authorisation.
        request_id: the request whose release would be retracted.
        problem: the error's name and the difference, if the amounts do not follow from the proposal's text.
    """

    number: int
    kind: str
    dataset: str
    state: str
    proposer: str
    reason: str
    proposed_at: str
    expires_at: str
    given: int
    needed: int
    epsilon: str | None = None
    delta: str | None = None
    rho: Amount | None = None
    runs: int | None = None
    used: int | None = None
    until: str | None = None
    request_id: int | None = None
    problem: str | None = None

    @property
    def content(self) -> str:
        """Return the terms of the proposal in a few words."""
        if self.problem:
            return self.problem
        return describe_terms(self.kind, self.epsilon, self.delta, self.used, self.runs, self.until, self.request_id)


def describe_terms(
    kind: str,
    epsilon: str | None,
    delta: str | None,
    used: int | None,
    runs: int | None,
    until: str | None,
    request_id: int | None,
) -> str:
    """Return the terms of a proposal in a few words; arguments as in `ProposalRow`."""
    match kind:
        case "cap":
            return f"lifetime epsilon {epsilon} at delta {delta}"
        case "standing":
            return f"{used} of {runs} runs used, until {str(until)[:10]}"
        case _:
            return f"retract release {request_id}"


def proposal_row(session: Session, proposal: Proposal) -> ProposalRow:
    """Read one proposal from the ledger."""
    subject = find_decidable(session, proposal.id, Gate.PROPOSAL)
    approvals, needed = count_approvals(session, subject)
    standing, retraction = proposal.kind == "standing", proposal.kind == "retraction"
    return ProposalRow(
        number=proposal.id,
        kind=proposal.kind,
        dataset=session.get_one(Dataset, proposal.dataset_id).name,
        state=subject.state,
        proposer=requests.principal_name(session, proposal.proposer_id),
        reason=proposal.reason,
        proposed_at=proposal.created_at,
        expires_at=proposal.expires_at,
        given=approvals,
        needed=needed,
        epsilon=proposal.epsilon,
        delta=proposal.delta,
        rho=None if proposal.rho is None else Amount(proposal.rho, proposal.delta_fail or 0),
        runs=proposal.runs,
        used=proposals.count_uses(session, proposal) if standing else None,
        until=proposal.until,
        request_id=proposals.retracted_request(session, proposal) if retraction else None,
        problem=_amount_problem(proposal),
    )


def _amount_problem(proposal: Proposal) -> str | None:
    """Return why a proposal's amounts are refused. Lists show the reason; reviews and decisions raise it."""
    try:
        require_proposal_amounts(proposal)
    except Refused as differs:
        return f"{differs.code}: {differs.message}"
    return None


def list_proposals(workspace: Workspace, kind: str | None = None) -> list[ProposalRow]:
    """List all proposals, or those of one kind, oldest first."""
    with workspace.database.read() as session:
        return [
            proposal_row(session, proposal) for proposal in proposals.list_all(session) if kind in (None, proposal.kind)
        ]


def _invalid_end_date(until: str, reason: str) -> UsageError:
    return UsageError(
        f"The last day {until!r} {reason}.",
        "Give a future day, such as 2027-06-30.",
        {"until": until},
        code="InvalidEndDate",
    )


def _authorisation_not_in_force(number: int, kind: str, state: str) -> Refused:
    obstacle = f"is {state}" if kind == "standing" else f"is a {kind} proposal"
    return Refused(
        f"Proposal {number} {obstacle}; only a standing authorisation in force can be ended.",
        "See them with `almoner standing list`. Reject an open proposal with `almoner reject ID --gate proposal`.",
        {"proposal": number, "kind": kind, "state": state},
        code="AuthorisationNotInForce",
    )
