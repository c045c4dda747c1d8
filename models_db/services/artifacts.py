"""Artifacts of attempts: committed with their holds, evaluated, published, delivered."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import select
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.services import attempts, budget, gates, requests
from models_db.services.audit.chain import Actor
from models_db.services.gates import artifacts_by_request
from models_db.tables import (
    Artifact,
    Delivery,
    Invocation,
    Publication,
    Request,
    StoredEvaluation,
)
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.values.request_state import Gate, RequestState
from models_db.writes.insert import insert_row, insert_rows


def record_artifact(
    session: Session,
    actor: Actor,
    attempt: budget.Attempt,
    files: Mapping[str, Json],
    size: int,
    metrics: Sequence[tuple[str, str, Json]],
    charged: Mapping[str, int] = MappingProxyType({}),
    values: str | None = None,
) -> Artifact:
    """Commit an attempt: holds, artifact and its (metric, exposure, result) evaluations, in one transaction.

    Args:
        charged: for each charged metric the sequence number of the invocation that released it.
        values: the digest of what its mechanisms released, where later releases may be made of that.

    Raises:
        AttemptClosed: the attempt was swept away meanwhile.
    """
    attempts._settle_attempt(session, actor, attempt, "COMMIT")
    artifact = Artifact(
        request_id=attempt.request_id,
        attempt=attempt.number,
        digest=digest(files),
        files=encode_canonical(files).decode(),
        size=size,
        created_at=utc_now(),
        created_by=actor.id,
        values_digest=values,
    )
    insert_row(session, artifact)
    record_metrics(session, actor, artifact, metrics, charged)
    requests.record_transition(session, actor, attempt.request_id, RequestState.RUNNING, RequestState.PRODUCED)
    return artifact


def record_metrics(
    session: Session,
    actor: Actor,
    artifact: Artifact,
    metrics: Sequence[tuple[str, str, Json]],
    charged: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Store evaluations of an artifact by its runner or, of internal metrics, by who looks at them later.

    Args:
        charged: as for `record_artifact`.

    Raises:
        RuleViolated: an internal metric before the publish decision, on governed data (PRIVACY §7); or another class
            than the metric has; or a public or charged metric that is not recorded with the artifact.
    """
    invocations = _invocation_ids(session, artifact) if charged else {}
    insert_rows(
        session,
        [
            StoredEvaluation(
                artifact_id=artifact.id,
                metric=metric,
                exposure=exposure,
                invocation_id=invocations[charged[metric]] if metric in charged else None,
                result=encode_canonical(result).decode(),
                created_at=utc_now(),
                created_by=actor.id,
            )
            for metric, exposure, result in metrics
        ],
    )


def _invocation_ids(session: Session, artifact: Artifact) -> dict[int, int]:
    """Return the ids of the invocations of the attempt that produced an artifact, by their sequence numbers."""
    query = select(Invocation.sequence, Invocation.id).where(
        Invocation.request_id == artifact.request_id, Invocation.attempt == artifact.attempt
    )
    return {sequence: number for sequence, number in session.execute(query)}  # noqa: C416 - rows are no pairs to mypy


def evaluations(session: Session, artifact: Artifact) -> Sequence[StoredEvaluation]:
    """Return the stored evaluations of an artifact."""
    return session.scalars(
        select(StoredEvaluation).where(StoredEvaluation.artifact_id == artifact.id).order_by(StoredEvaluation.id)
    ).all()


def artifact_of(session: Session, request_id: int) -> Artifact | None:
    """Return the artifact of the request's last successful attempt."""
    return artifacts_by_request(session, [request_id]).get(request_id)


def artifact_of_attempt(session: Session, attempt: budget.Attempt) -> Artifact | None:
    """Return the artifact of exactly this attempt."""
    query = select(Artifact).where(Artifact.request_id == attempt.request_id, Artifact.attempt == attempt.number)
    return session.scalars(query).one_or_none()


def list_all(session: Session) -> Sequence[Artifact]:
    """Return every artifact ever produced."""
    return session.scalars(select(Artifact).order_by(Artifact.id)).all()


def waiting(session: Session) -> Sequence[Artifact]:
    """Return the artifacts that wait at the publish gate, oldest first."""
    return [
        artifact
        for artifact in list_all(session)
        if requests.state_of(session, artifact.request_id) == RequestState.PRODUCED
    ]


def require_publishable(session: Session, request_id: int) -> tuple[Request, Artifact]:
    """Return the request and its artifact, if it may be published (again).

    Raises:
        requests.WrongState: nothing was produced.
        gates.GateClosed: the publish gate is not passed for exactly these bytes.
    """
    request = requests.find_request(session, request_id)
    artifact = artifact_of(session, request_id)
    state = requests.state_of(session, request_id)
    if artifact is None or state not in (RequestState.PRODUCED, RequestState.PUBLISHED):
        raise requests.WrongState(request_id, state, "produced")
    if state == "produced":
        gates.require_gate(session, request_id, Gate.PUBLISH)
    return request, artifact


def is_publishable(session: Session, request_id: int) -> bool:
    """Return whether the request has an artifact, and the approvals to publish it."""
    try:
        require_publishable(session, request_id)
    except (requests.WrongState, gates.GateClosed):
        return False
    return True


def record_publication(session: Session, actor: Actor, request_id: int) -> Publication:
    """Record the publication of the produced artifact, before a byte is copied; the second call finds the first.

    Raises:
        requests.WrongState: nothing was produced.
        gates.GateClosed: the publish gate is not passed for exactly these bytes.
    """
    _, artifact = require_publishable(session, request_id)
    publication = session.scalars(select(Publication).where(Publication.artifact_id == artifact.id)).one_or_none()
    if publication is not None:
        return publication
    publication = insert_row(session, Publication(artifact_id=artifact.id, at=utc_now(), actor_id=actor.id))
    requests.record_transition(session, actor, request_id, RequestState.PRODUCED, RequestState.PUBLISHED)
    return publication


def deliveries(session: Session, request_id: int) -> Sequence[str]:
    """Return the destinations of delivered bundles of a release, each once, oldest first."""
    query = (
        select(Delivery.destination)
        .join(Publication, Publication.id == Delivery.publication_id)
        .join(Artifact, Artifact.id == Publication.artifact_id)
        .where(Artifact.request_id == request_id)
        .order_by(Delivery.id)
    )
    return list(dict.fromkeys(session.scalars(query)))


def record_delivery(session: Session, actor: Actor, publication: Publication, destination: str, bundle: str) -> None:
    """Record that a bundle arrived whole."""
    delivery = Delivery(publication_id=publication.id, destination=destination, bundle_digest=bundle, at=utc_now(),
                    created_by=actor.id)  # fmt: skip
    insert_row(session, delivery)
