"""Resumption of interrupted runs from what is paid and on disk, and the sweep after processes that died.

Resumption of an interrupted run: its quarantine folder, compared with the paid budget in the ledger. The ledger says
which instalments are paid; the journal says which tokens were drawn with them. An attempt that goes on keeps the split
into batches, skips one draw of every text for each time the work was interrupted, draws with what is paid, and pays
only what never was: all attempts together never cost more than the plan (docs/decisions/0023).
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.orm import Session

from flows.releases.extend import sweep_values
from flows.workspace.leftovers import remove_leftovers
from flows.workspace.workspace import Workspace, process_lives
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.home import ProjectHome, draft_name
from models_db.services import artifacts, attempts, budget, datasets
from models_db.services.requests import find_request, planned_blocks
from models_db.tables import Lease, Request
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json
from tasks.common.files import remove_path
from tasks.corpus.versions import sweep_incoming, sweep_unrecorded
from tasks.decoding.journal import Contents, JournalUnfit, ResumeState
from tasks.values.plan import Plan


@dataclass(frozen=True)
class ResumePoint:
    """Point at which an attempt continues.

    Attributes:
        first: the attempt that began, whose split into batches stays.
        last: the newest one that went on from it, or itself.
        paid: for each invocation of the plan, how many of its instalments are paid for.
        split_key: secret, 32 bytes, the key of that split.
        state: what is drawn.
        total: how many tokens the plan has at most.
        begun, results: mechanisms of one release, by name: those that began to draw, and what they have released.
    """

    first: int
    last: int
    paid: tuple[int, ...]
    split_key: bytes = field(repr=False)
    state: ResumeState
    total: int
    begun: frozenset[str] = frozenset()
    results: Mapping[str, Json] = field(default_factory=dict)

    @property
    def drawn(self) -> int:
        """Tokens that are there."""
        return sum(map(len, self.state.tokens.values()))

    def remaining_of(self, plan: Plan) -> Amount:
        """Return the paid part of the plan."""
        return total_amount(
            [p for each, paid in zip(plan.all_invocations, self.paid, strict=True) for p in each.instalments[:paid]]
        )

    def to_json(self) -> dict[str, Json]:
        """Return the resume point for programs."""
        return {
            "attempt": self.last,
            "tokens_drawn": self.drawn,
            "tokens_at_most": self.total,
            "draws_lost_per_text": self.state.lost,
        }

    def __str__(self) -> str:
        lost = self.state.lost
        if not lost:
            return f"Going on from attempt {self.last}: nothing is paid twice."
        draws = "one draw of each unfinished text is" if lost == 1 else f"{lost} draws of each unfinished text are"
        return (
            f"Going on from attempt {self.last}: {self.drawn} of {self.total} tokens are drawn;"
            f" {draws} lost. Nothing is paid twice."
        )


def journal_name(request_id: int) -> str:
    """Return the name of a request's journal in quarantine."""
    return f"{request_id}-unfinished"


def journal_folder(home: ProjectHome, request_id: int) -> Path:
    """Return the folder that keeps a request's draws until its artifact is produced."""
    return home.path_inside("quarantine", journal_name(request_id))


def load_resume_point(session: Session, request: Request, plan: Plan, contents: Contents) -> ResumePoint:
    """Return the point at which `plan` continues after an interrupted run.

    Raises:
        JournalUnfit: it is another request's, older than what is paid, or nothing can be drawn any more.
    """
    if contents.request != request.digest:
        raise JournalUnfit(request.id, "it belongs to another request")
    paid = _paid_instalments(session, request.id, plan, contents)
    drawing = paid[contents.first : len(plan.invocations)]
    if not drawing:  # what was charged for releases one thing each; texts are drawn from that, at no cost
        return _resume_point(contents, plan, paid, ResumeState(contents.released))
    armed = min(drawing)
    # A step takes the next draw, and each attempt that went on skips one: no more can be armed and not written down.
    if not contents.armed <= armed <= max(drawing) <= min(armed + 1, contents.armed + contents.since + 1):
        raise JournalUnfit(request.id, "the ledger has armed another number of draws")
    drawn = sorted(contents.tokens.items())
    if any(not 0 <= number < plan.samples or len(tokens) > plan.steps for number, tokens in drawn):
        raise JournalUnfit(request.id, "it has more texts or tokens than were planned")
    lost = len(contents.attempts)
    event = plan.invocations[contents.first].event
    if event.loss != Amount() and lost * plan.texts_per_unit >= event.count:
        raise JournalUnfit(request.id, "the run was interrupted too often: no draw is left for a text")
    return _resume_point(
        contents, plan, paid, ResumeState(contents.released, contents.tokens, contents.kept, armed, lost)
    )


def _resume_point(contents: Contents, plan: Plan, paid: tuple[int, ...], earlier: ResumeState) -> ResumePoint:
    total, begun = plan.samples * plan.steps, frozenset(contents.begun)
    return ResumePoint(
        contents.attempts[0], contents.attempts[-1], paid, contents.split_key, earlier, total, begun, contents.results
    )


def _paid_instalments(session: Session, request_id: int, plan: Plan, contents: Contents) -> tuple[int, ...]:
    armed = budget.armed_instalments(session, request_id, contents.attempts)
    paid = tuple(len(armed.get(sequence, ())) for sequence in range(len(plan.all_invocations)))
    in_order = all(armed.get(sequence, set()) == set(range(number)) for sequence, number in enumerate(paid))
    behind = not contents.released or all(
        paid[: contents.first]
    )  # what was released before the first draw was paid for
    if not in_order or not 0 <= contents.first <= len(plan.invocations) or not behind:
        raise JournalUnfit(request_id, "it continues from attempts that the ledger does not have")
    return paid


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep: the requests whose run was closed, and the numbers of removed folders and files."""

    requests: tuple[int, ...]
    folders: int


def sweep_attempts(workspace: Workspace) -> SweepResult:
    """Close every attempt whose process is gone or whose lease has run out; remove orphaned files.

    Raises:
        Refused: an attempt cannot be closed; all others are, and the files are removed.
    """
    with workspace.database.read() as session:
        dead = [lease for lease in attempts.running_leases(session) if is_dead(lease)]
    closed, refused = list[int](), list[Refused]()
    for lease in dead:
        try:
            if forfeit_attempt(workspace, lease):
                closed.append(lease.request_id)
        except Refused as refusal:
            refused.append(refusal)
    result = SweepResult(tuple(closed), remove_orphans(workspace))
    if refused:
        raise refused[0]
    return result


def forfeit_own_dead_attempts(workspace: Workspace, request_id: int) -> None:
    """Close an earlier run of this request that died, so that running again needs no other command."""
    with workspace.database.read() as session:
        dead = [
            lease for lease in attempts.running_leases(session) if lease.request_id == request_id and is_dead(lease)
        ]
    for lease in dead:
        forfeit_attempt(workspace, lease)


def forfeit_attempt(workspace: Workspace, lease: Lease) -> bool:
    """Forfeit the armed amounts of a dead attempt and give back the rest; False if another process was faster."""
    try:
        with workspace.database.write() as session:
            blocks = planned_blocks(find_request(session, lease.request_id))
            attempt = budget.load_attempt(session, lease.request_id, lease.attempt, blocks)
            attempts.fail_attempt(session, workspace.actor, attempt, "Swept")
    except budget.AttemptClosed:
        return False
    return True


def is_dead(lease: Lease) -> bool:
    """Return whether the lease's process is gone: visible on this machine, inferred from expiry on another one.

    A wrong answer is safe either way: a living run whose attempt was closed is fenced at its next step.
    """
    if lease.owner.startswith(f"{socket.gethostname()}/"):
        return not process_lives(lease.owner)
    return lease.expires_at <= utc_now()


def remove_orphans(workspace: Workspace) -> int:
    """Remove orphaned folders and all temporary files; return how many folders and files were removed."""
    removed = sweep_incoming(workspace.home) + sweep_values(workspace) + remove_leftovers(workspace.home)
    removed += sweep_unrecorded(workspace.home, lambda uid: _is_recorded(workspace, uid))
    # Listed before the ledger is read: a folder made later is not looked at, one made earlier has its lease.
    folders = (*workspace.home.quarantine.iterdir(), *workspace.home.scratch.iterdir())
    with workspace.database.read() as session:
        kept = {draft_name(artifact.request_id, artifact.attempt) for artifact in artifacts.list_all(session)}
        kept |= {draft_name(lease.request_id, lease.attempt) for lease in attempts.running_leases(session)}
        kept |= {journal_name(number) for number in attempts.resumable_requests(session)}
    for folder in folders:
        if folder.name not in kept:
            remove_path(folder)
            removed += 1
    return removed


def _is_recorded(workspace: Workspace, uid: str) -> bool:
    """Asked when the folder is about to go: a version recorded a moment ago must not be lost."""
    with workspace.database.read() as session:
        return datasets.has_version(session, uid)
