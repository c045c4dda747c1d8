"""A steward's decision at a gate: what is decided on, what it would change, and the signed record."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

from sqlalchemy.orm import Session

from flows.pricing import dataset_facts
from flows.workspace import Workspace
from models_db.base import moment
from models_db.budgets import Amount
from models_db.canonical import Json
from models_db.services import artifacts, gates, ledger, releases
from models_db.services.gates import Decision
from models_db.services.releases import WrongState
from models_db.tables import Dataset, DatasetVersion, Request
from tasks.generation.quote import lifetime_epsilon
from tasks.publishing.draft import read_samples, rehash


@dataclass(frozen=True)
class Matter:
    """What a steward is asked: the gate, the digest an approval binds to, and everything worth knowing first."""

    request_id: int
    gate: str
    subject_digest: str
    shown: dict[str, Json]


def matter(workspace: Workspace, request_id: int, gate: str) -> Matter:
    """What waits at a gate of a request.

    Raises:
        RequestUnknown, WrongState: nothing does.
    """
    with workspace.database.read() as session:
        request = releases.find(session, request_id)
        body = json.loads(request.canonical)
        subject, shown = request.digest, {**_asked(session, request, body), **_budget(session, request, body)}
        if gate == "publish":
            artifact = artifacts.artifact_of(session, request_id)
            if artifact is None:
                raise WrongState(request_id, releases.state_of(session, request_id), "produced (publish gate)")
            subject = artifact.digest
            folder = workspace.home.inside("quarantine", artifact.folder)
            rehash(folder, json.loads(artifact.files))  # what is shown is what the approval binds to
            metrics = artifacts.evaluations(session, artifact)
            shown["artifact"] = artifact.digest
            shown["metrics"] = {m.metric: json.loads(m.result) for m in metrics if m.exposure != "internal"}
            shown["samples"] = list(read_samples(folder, 3))
    return Matter(request_id, gate, subject, shown)


def decide(workspace: Workspace, asked: Matter, verdict: str, reason: str) -> str:
    """Sign and record a decision; returns the request's new state."""
    decision = Decision(
        asked.request_id, asked.gate, asked.subject_digest, verdict, reason, _expiry(workspace.policy.approval_days)
    )
    signature = workspace.key.sign(decision.statement(workspace.actor.name))
    with workspace.database.write() as session:
        return gates.decide(session, workspace.actor, decision, signature)


def _expiry(days: int) -> str:
    """The end of a day: an approval is published with the release, and should not tell when the run took place."""
    last = datetime.now(UTC).date() + timedelta(days=days)
    return moment(datetime.combine(last, time(23, 59, 59), UTC))


def _asked(session: Session, request: Request, body: dict[str, Any]) -> dict[str, Json]:
    return {
        "request": request.id,
        "state": releases.state_of(session, request.id),
        "requester": releases.name_of(session, request.requester_id),
        "dataset": f"{body['dataset']['name']} (version {body['dataset']['version']})",
        "kind": body["kind"],
        "mechanism": body["mechanism"],
        "unit": body["unit"],
        "relation": body["relation"],
        "epsilon": body["epsilon"],
        "delta": body["delta"],
        "model": body["model"]["name"],
        "prompt": body["prompt"]["description"],
        "facts": body["plan"]["facts"],
        "request_sha256": request.digest,
    }


def _budget(session: Session, request: Request, body: dict[str, Any]) -> dict[str, Json]:
    dataset = session.get_one(Dataset, request.dataset_id)
    facts = dataset_facts(session, dataset, session.get_one(DatasetVersion, request.version_id))
    loss = sum(
        (
            Amount(int(part["rho"]), int(part["delta"]))
            for i in body["plan"]["invocations"]
            for part in i["instalments"]
        ),
        Amount(),
    )
    armed = ledger.spent_by(session, request.id)
    spent = facts.balance.spent
    after = spent if artifacts.artifact_of(session, request.id) else spent + loss
    return {
        "rho": loss.rho_text,
        "armed_so_far": armed.rho_text,
        "lifetime_epsilon_now": lifetime_epsilon(spent, facts.delta_conversion),
        "lifetime_epsilon_after": lifetime_epsilon(after, facts.delta_conversion),
        "lifetime_epsilon_cap": facts.epsilon_cap,
        "lifetime_delta_cap": facts.delta_cap,
    }
