"""Attempt of an approved request: start, payment step by step, heartbeat, and an orderly end after any failure.

The approved request is the authority. Before anything is held, the request is priced again with today's code, policy
and model; unless that gives exactly the approved plan, the run is refused.

Heartbeat of a run that works for long without arming. Other machines see of a run its lease alone, and arming prolongs
that. But texts are written when everything is armed, by an external model perhaps for hours: a sweep elsewhere would
take such a run for dead, and what it has made could not be committed.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy.orm import Session

from flows.audit.charges import require_charges_derived
from flows.audit.lifetime_claims import require_authorised
from flows.governance.policy import policy_of_request, redact_refusals, require_policy
from flows.releases.propose import dataset_facts, find_model
from flows.releases.resume import ResumePoint, load_resume_point
from flows.workspace.home_keys import load_overlap_key, load_partition_key
from flows.workspace.workspace import Workspace, process_owner, provenance
from models_db.errors import AlmonerError, Refused
from models_db.services import attempts, budget, cohorts, datasets, gates, people, proposals, requests
from models_db.services.audit import chain
from models_db.services.audit.stored_text import request_body
from models_db.services.budget import Attempt
from models_db.services.verification.evidence import require_rows_match_chain
from models_db.sessions.database import OutcomeUnknown
from models_db.tables import Dataset, DatasetVersion, Request
from models_db.values.canonical_json import encode_canonical
from models_db.values.request_state import Gate, RequestState
from tasks.common.extensions import code_digest
from tasks.common.extras import require_generation
from tasks.common.faults import Wait
from tasks.common.progress import Reporter, report
from tasks.corpus.partition import BatchSplit, PartitionScheme, SomeBlocks
from tasks.corpus.versions import version_folder
from tasks.decoding.journal import Journal, JournalInUse, JournalUnfit, ResumeState
from tasks.decoding.run_context import ReleaseSteps
from tasks.planning.block_selection import Reading, reading_of_request
from tasks.planning.secret_assignment import curve_of_plan
from tasks.pricing.quote import DatasetFacts, Quote, quote, written_request
from tasks.release.signatures.approvals import SignedDecision


@dataclass(frozen=True)
class RunningAttempt:
    """A running attempt. Its draws go into `journal`, after those of the attempts it continues (`resume_point`)."""

    workspace: Workspace
    digest: str
    attempt: Attempt
    token: str
    quote: Quote
    body: dict[str, Any]
    scheme: PartitionScheme
    journal: Journal
    resume_point: ResumePoint | None
    split_key: bytes = field(repr=False)

    @property
    def facts(self) -> DatasetFacts:
        """The dataset, as the run was priced with it."""
        return self.quote.dataset

    @property
    def request_id(self) -> int:
        """Number of the request."""
        return self.attempt.request_id

    @property
    def quarantine(self) -> Path:
        """Folder in which this attempt's artifact waits until it is published."""
        return self.workspace.home.draft(self.request_id, self.attempt.number)

    @property
    def split(self) -> BatchSplit:
        """The split into batches; they carry no account, so each attempt that begins anew has its own.

        A resumed attempt keeps the split, because a batch is paid for together with its units. The key is drawn for
        the split and destroyed with the journal (decision 0131). The name begins with the digest of the request, which
        no two requests of a ledger share; a nonce is only what its requester wrote (decision 0131).
        """
        first = self.resume_point.first if self.resume_point else self.attempt.number
        return BatchSplit(self.split_key, f"{self.digest}/{first}")

    @property
    def resume_state(self) -> ResumeState:
        """State of the texts that earlier attempts have drawn."""
        return self.resume_point.state if self.resume_point else ResumeState()

    def hold(self, device: str, rng_kind: str) -> None:
        """Reserve the whole plan on every eligible block, or nothing; of one that goes on, what is not paid yet.

        What was armed for earlier attempts is from here on also this one's, so that it can be committed.

        Raises:
            BudgetExceeded, BudgetRefused: some block cannot afford it.
            JournalUnwritable: it cannot be written down that this attempt goes on.
        """
        paid = self.resume_point.paid if self.resume_point else (0,) * len(self.quote.plan.all_invocations)
        with redact_refusals(self.workspace), self.workspace.database.write() as session:
            invocations = self.quote.plan.all_invocations
            budget.hold(session, self.workspace.actor, self.attempt, invocations, provenance(device, rng_kind), paid)
        if self.resume_point:
            self.journal.go_on()
        for sequence, number in enumerate(paid):
            if number:
                self._arm_instalment(sequence, 0)

    def arm(self, sequence: int, instalment: int) -> None:
        """Spend one instalment, in a transaction of its own that is durable when this returns (PRIVACY §6).

        If the ledger does not answer, it is asked: the instalment is armed and spent, or nothing was read for it.
        One that an earlier attempt has armed is spent already.

        Raises:
            AttemptClosed: the attempt was swept away.
            OutcomeUnknown: the outcome is unknown, or it was not armed; the run ends without reading.
        """
        if not self.resume_point or instalment >= self.resume_point.paid[sequence]:
            self._arm_instalment(sequence, instalment)

    def _arm_instalment(self, sequence: int, instalment: int) -> None:
        try:
            with self.workspace.database.write() as session:
                lease = attempts.lease_renewal(self.token)
                budget.arm(session, self.workspace.actor, self.attempt, sequence, instalment, lease)
        except OutcomeUnknown:
            with self.workspace.database.write_after_loss() as session:
                armed = attempts.is_armed(session, self.attempt, sequence, instalment)
            if not armed:
                raise

    @property
    def steps(self) -> ReleaseSteps:
        """Progress of earlier attempts on the steps that release one value each."""
        point = self.resume_point
        return ReleaseSteps(point.paid, point.results, point.begun) if point else ReleaseSteps()

    def abandon(self, reason: str) -> None:
        """Forfeit armed holds, release the rest, and let the request be run again."""
        with self.workspace.database.write() as session:
            attempts.fail_attempt(session, self.workspace.actor, self.attempt, reason)


@dataclass(frozen=True)
class CheckedRequest:
    """An approved request that may run: priced again, as it was approved, and over the partition of all units."""

    workspace: Workspace
    request_id: int
    digest: str
    quote: Quote
    body: dict[str, Any]
    scheme: PartitionScheme


def start_attempt(checked: CheckedRequest, journal: Journal, *, restart: bool = False) -> RunningAttempt:
    """Start the next attempt of an approved request, which resumes an interrupted one.

    The ledger checks again, in the transaction that starts the attempt, that the request may run.

    Args:
        journal: the request's, not yet open.
        restart: begin from nothing, and pay everything again.

    Raises:
        JournalInUse, JournalUnfit: what was left cannot be gone on from.
        BudgetExceeded, LimitInOrdersExceeded, BudgetRefused: the dataset cannot afford it any more.
        GateClosed, WrongState, StillRunning: it may not run any more.
        ChargeDiffers: an attempt since `check` was charged in orders what the plan does not cost.
    """
    workspace, request_id, priced, scheme = checked.workspace, checked.request_id, checked.quote, checked.scheme
    resume_point = _find_resume_point(workspace, request_id, priced, journal, restart)
    with redact_refusals(workspace):
        priced.require_within_cap(resume_point.remaining_of(priced.plan) if resume_point else None)
        if resume_point is None and _needs_charge(workspace, request_id):
            priced.require_within_limit()
    if len(priced.plan.blocks) < scheme.blocks:
        scheme = SomeBlocks.of(scheme, priced.plan.blocks)
    token = secrets.token_hex(16)
    attempt = _record_attempt(checked, token, resume_point.last if resume_point else None)
    split_key = resume_point.split_key if resume_point else BatchSplit.new_key()
    journal.assign(checked.digest, attempt.number, split_key)
    run = RunningAttempt(
        workspace,
        checked.digest,
        attempt,
        token,
        priced,
        checked.body,
        scheme,
        journal,
        resume_point,
        split_key,
    )
    if resume_point is None:
        with close_attempt_on_error(run):
            journal.discard()
    return run


def check(workspace: Workspace, request_id: int) -> CheckedRequest:
    """Return the checked and priced request that an attempt would run now.

    It reads the ledger and changes nothing; it opens neither model nor corpus, so it can be called before either is
    loaded. A home without the data is refused here, because an attempt would use up a run, and a schedule would give up
    the slot that another runner's home can run.

    Raises:
        GateClosed, WrongState, StillRunning: it may not run now.
        ForgedApproval: an approval's signature does not fit.
        ChargeDiffers: an earlier attempt was charged in Rényi orders what the plan does not cost.
        AmountsDiffer, AuthorisationDiffers: the claim, or the standing authorisation, has not the amounts of its text.
        PlanAltered: the ledger would hold it to another plan than the approved one.
        PlanChanged: the code, the model or the plan is not what was approved.
        TooManyAttempts, PolicyForbids: the policy it was made under does not allow it (any more).
        GenerationMissing: this machine does not have the packages that a run needs.
        KeyMissing, KeyTooOpen, KeyDiffers: this home does not have the key of the partition or of the marks, or has
            another one.
        VersionMissing: it does not have the version of the data.
    """
    with workspace.database.read() as session:
        request = attempts.require_startable(session, request_id)
        require_genuine(session, request)
        requests.require_plan_intact(session, request)
        body = request_body(request)
        steps = requests.history(session, request_id)
        dataset = session.get_one(Dataset, request.dataset_id)
        version = session.get_one(DatasetVersion, request.version_id)
        facts = dataset_facts(session, dataset, version, request_reading(session, dataset, request_id, body))
        scheme = whole_partition(workspace, session, dataset)
        policy = policy_of_request(session, request)
    if sum(step.to_state == RequestState.RUNNING for step in steps) >= policy.attempts:
        raise Refused(
            f"Request {request_id} has used all {policy.attempts} attempts that its policy allows (`attempts`).",
            "Submit it again; the amounts that the failed runs armed stay spent.",
            {"request": request_id, "attempts": policy.attempts},
            code="TooManyAttempts",
        )
    require_policy(policy, body)
    require_generation()
    priced = _reprice_request(workspace, request_id, facts, body)
    require_data(workspace, request_id)
    return CheckedRequest(workspace, request_id, request.digest, priced, body, scheme)


def require_data(workspace: Workspace, request_id: int) -> None:
    """Check that this home holds the version of the data that a request reads, and the key of its marks.

    More texts of a release of governed data read none.

    Raises:
        VersionMissing: it does not hold the version.
        KeyMissing, KeyTooOpen, KeyDiffers: it lacks the key, or has another one.
    """
    with workspace.database.read() as session:
        request = requests.find_request(session, request_id)
        governed = session.get_one(Dataset, request.dataset_id).governed
        uid = session.get_one(DatasetVersion, request.version_id).uid
        if not (governed and request_body(request)["parameters"].get("extends")):
            version_folder(workspace.home, uid)
            load_overlap_key(workspace.home, session)


def request_reading(session: Session, dataset: Dataset, request_id: int, body: Mapping[str, Any]) -> Reading:
    """Return the blocks that an approved request names, without blocks opened since.

    Raises:
        PlanChanged: the named blocks do not exist.
    """
    try:
        return reading_of_request(body, cohorts.blocks_per_cohort(session, dataset.account_id))
    except ValueError:
        raise plan_changed(request_id, "cohorts") from None


def whole_partition(workspace: Workspace, session: Session, dataset: Dataset) -> PartitionScheme:
    """Return the partition of all units of a dataset, with the cohorts there are now.

    Raises:
        KeyMissing, KeyTooOpen, KeyDiffers: this home has not its key, or has another one.
    """
    blocks = cohorts.blocks_per_cohort(session, dataset.account_id)
    cohort_count = cohorts.count_cohorts(session, dataset.account_id)
    key = load_partition_key(workspace.home, session, dataset)
    return PartitionScheme(key, blocks * cohort_count, cohort_count)


def _find_resume_point(
    workspace: Workspace, request_id: int, priced: Quote, journal: Journal, restart: bool
) -> ResumePoint | None:
    """Return the point to resume from. With `restart` there is none in any state: all is drawn and paid again."""
    try:
        contents = journal.open()
    except (JournalInUse, JournalUnfit):
        if not restart:
            raise
        return None
    if contents is None or restart:
        return None
    with workspace.database.read() as session:
        return load_resume_point(session, requests.find_request(session, request_id), priced.plan, contents)


def _needs_charge(workspace: Workspace, request_id: int) -> bool:
    with workspace.database.read() as session:
        return budget.needs_charge(session, request_id)


def _record_attempt(checked: CheckedRequest, token: str, goes_on_from: int | None) -> Attempt:
    workspace, request_id, blocks = checked.workspace, checked.request_id, checked.quote.plan.blocks
    curve = curve_of_plan(checked.body["plan"])
    try:
        with workspace.database.write() as session:
            number = attempts.start_attempt(
                session, workspace.actor, request_id, token, process_owner(), goes_on_from, curve
            )
            require_charges_derived(session, request_id)  # of attempts since `check`
            return budget.load_attempt(session, request_id, number, blocks)
    except OutcomeUnknown:
        with workspace.database.write_after_loss() as session:
            begun = attempts.find_started_attempt(session, request_id, token)
            if begun is None:
                raise
            return budget.load_attempt(session, request_id, begun, blocks)


def require_genuine(session: Session, request: Request) -> None:
    """Check the facts that let the request run: rows against the chain, and decisions against their approvers' keys.

    A row alone, however it came into the ledger, opens no gate.

    Raises:
        LedgerAltered: a row differs from its link.
        ChargeDiffers: it was charged in Rényi orders what its plan does not cost, so it could never be published.
        ForgedApproval: a signature does not fit.
        ProposalAltered: the standing authorisation, or the cap in force, is not the one that was approved, or the
            authorisation is not for this request.
    """
    require_rows_match_chain(session, request)
    require_charges_derived(session, request.id)
    decisions = gates.decisions_for_bundle(session, request.id)
    for cap in datasets.list_caps(session, session.get_one(Dataset, request.dataset_id))[-1:]:
        proposals.require_intact(session, cap)
        decisions = [*decisions, *gates.decisions_on(session, cap.id, Gate.PROPOSAL)]
    ledger_id = chain.ledger_id(session)
    used = people.passkeys_by_id(session, {approval.passkey_id for approval, _ in decisions})
    for approval, approver in decisions:
        passkey = used.get(approval.passkey_id or 0)
        if not SignedDecision.of(approval, approver, passkey, ledger_id).authentic:
            raise _forged_approval(request.id, approver.name, approval.proposal_id)
    require_authorised(session, request)


@contextmanager
def close_attempt_on_error(run: RunningAttempt) -> Iterator[None]:
    """Close the attempt in the ledger if the block fails; the recorded reason is a name, never a text."""
    try:
        yield
    except budget.AttemptClosed:
        raise  # somebody else has closed it
    except KeyboardInterrupt:
        run.abandon("Interrupted")
        raise RunInterrupted(run.request_id) from None
    except AlmonerError as problem:
        run.abandon(problem.code)
        raise
    except BaseException as problem:
        run.abandon(type(problem).__name__)
        raise


def _reprice_request(workspace: Workspace, request_id: int, facts: DatasetFacts, body: dict[str, Any]) -> Quote:
    request = written_request(body)
    priced = quote(request, facts, find_model(workspace, request.model), body["policy"], code_digest())
    public = ("unit", "relation", "governed", "population", "blocks")
    for part in (
        "code",
        "model",
        "plan",
        "dataset",
        "parameters",
        "public_metadata",
        "prompt_sha256",
        *public,
    ):
        if encode_canonical(priced.body.get(part)) != encode_canonical(body.get(part)):
            raise plan_changed(request_id, part)
    return priced


def _forged_approval(request_id: int, approver: str, proposal: int | None = None) -> Refused:
    what = f"request {request_id}" if proposal is None else f"proposal {proposal}"
    search = f"--release {request_id}" if proposal is None else "--kind proposal."
    return Refused(
        f"The approval of {what} in the name of {approver!r} is not signed with that person's key.",
        f"Nothing was run. Find out how it came into the ledger: `almoner audit log {search}`.",
        {"request": request_id, "proposal": proposal, "approver": approver},
        code="ForgedApproval",
    )


def plan_changed(request_id: int, part: str) -> Refused:
    """Return the refusal of a run whose code, model or corpus differs from the approved one."""
    return Refused(
        f"Request {request_id} was approved with another {part} than the one installed here.",
        "Submit it again, so that a steward approves what will run.",
        {"request": request_id, "changed": part},
        code="PlanChanged",
    )


class RunInterrupted(Refused):
    """Ctrl-C: the attempt is closed; armed amounts stay spent."""

    def __init__(self, request_id: int) -> None:
        super().__init__(
            f"The run of request {request_id} was interrupted: armed amounts stay spent, the rest was given back.",
            f"Continue with `almoner run {request_id}`, which pays nothing twice, or withdraw the request:"
            f" `almoner release withdraw {request_id}`.",
            {"request": request_id},
        )


HEARTBEAT_SECONDS: Final = attempts.LEASE_DURATION.total_seconds() / 5
"""Seconds after which a lease is prolonged, when there is something to report."""


def heartbeat(run: RunningAttempt, clock: Callable[[], float] = time.monotonic) -> Reporter:
    """Reports progress, and prolongs the run's lease with it.

    A ledger that does not answer ends no run: it is asked again at the next beat.
    """
    last = clock()

    def report_and_renew(what: str, done: int, total: int) -> None:
        nonlocal last
        report(what, done, total)
        if clock() - last >= HEARTBEAT_SECONDS:
            last = clock()
            _prolong_lease(run)

    return report_and_renew


def renewing_wait(run: RunningAttempt, wait: Wait) -> Wait:
    """Return a wait before a retry that prolongs the run's lease; it is far shorter than a lease.

    Raises:
        AttemptClosed: by the wait that is returned, if another attempt has the lease.
    """

    def wait_and_renew(seconds: float) -> None:
        wait(seconds)
        _prolong_lease(run)

    return wait_and_renew


def _prolong_lease(run: RunningAttempt) -> None:
    """Extend the lease's expiry.

    Raises:
        AttemptClosed: another attempt has it: this one was swept away, and nothing that it makes would be taken.
    """
    try:
        with run.workspace.database.write() as session:
            mine = attempts.renew_attempt_lease(session, run.request_id, run.token)
    except AlmonerError:
        return
    if not mine:
        raise budget.AttemptClosed
