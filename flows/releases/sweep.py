"""Sweep after processes that died: leases, holds, half-written folders, values of no release."""

import socket
from dataclasses import dataclass

from flows.releases.extend import sweep_values
from flows.releases.resume import journal_name
from flows.workspace.leftovers import remove_leftovers
from flows.workspace.workspace import Workspace, process_lives
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.home import draft_name
from models_db.services import artifacts, attempts, budget, datasets
from models_db.services.requests import find_request, planned_blocks
from models_db.tables import Lease
from tasks.common.files import remove_path
from tasks.corpus.versions import sweep_incoming, sweep_unrecorded


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
