"""The next step of a release, as the ledger decides it."""

from enum import StrEnum

from sqlalchemy.orm import Session

from flows.releases.resume import is_dead
from models_db.services import artifacts, attempts, requests
from models_db.services.gates import GateClosed
from models_db.tables import Lease
from models_db.values.request_state import UNRUN_STATES, RequestState


class ReleaseStep(StrEnum):
    """Next step of a request on its way from submission to bundle."""

    AWAIT_SPEND_GATE = "spend gate"
    AWAIT_OTHER_RUN = "run of another process"
    EXECUTE = "execute"
    AWAIT_PUBLISH_GATE = "publish gate"
    PUBLISH = "publish"
    END = "end"

    @property
    def waits(self) -> bool:
        """Return whether another person or process must act first."""
        return self in (self.AWAIT_SPEND_GATE, self.AWAIT_OTHER_RUN, self.AWAIT_PUBLISH_GATE)


def next_step(session: Session, request_id: int) -> ReleaseStep:
    """Return the next step of a request. The ledger alone decides it, so that it may be asked again after any crash.

    Raises:
        RequestUnknown: the ledger has no such request.
        VersionErased: its version of the dataset was erased before it was run.
        WrongState: it has expired before it was run.
    """
    requests.find_request(session, request_id)
    match state := requests.state_of(session, request_id):
        case RequestState.RUNNING:
            dead = is_dead(session.get_one(Lease, request_id))
            return ReleaseStep.EXECUTE if dead else ReleaseStep.AWAIT_OTHER_RUN
        case RequestState.PRODUCED:
            return _step_at_publish_gate(session, request_id)
        case RequestState.PUBLISHED if not artifacts.deliveries(session, request_id):
            return ReleaseStep.PUBLISH
        case _ if state in UNRUN_STATES:
            return _step_at_spend_gate(session, request_id)
    return ReleaseStep.END


def _step_at_spend_gate(session: Session, request_id: int) -> ReleaseStep:
    try:
        attempts.require_startable(session, request_id)
    except GateClosed:
        return ReleaseStep.AWAIT_SPEND_GATE
    return ReleaseStep.EXECUTE


def _step_at_publish_gate(session: Session, request_id: int) -> ReleaseStep:
    try:
        artifacts.require_publishable(session, request_id)
    except GateClosed:
        return ReleaseStep.AWAIT_PUBLISH_GATE
    return ReleaseStep.PUBLISH
