"""Commit of a run: record and card join the texts, and the whole becomes one artifact."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from flows.audit.lifetime_claims import claims_of
from flows.governance.policy import policy_of_request
from flows.releases.attempt import RunningAttempt
from flows.releases.extend import write_values
from models_db.policies.policy import Policy
from models_db.services import artifacts, datasets, exposures, proposals, requests
from models_db.services.verification.evidence import require_rows_match_chain
from models_db.sessions.database import OutcomeUnknown
from models_db.tables import Principal
from models_db.values.canonical_json import digest
from tasks.common.extensions import library_versions
from tasks.planning.labels_and_groups import names_of
from tasks.publishing.draft import write_draft
from tasks.release.record import (
    Authorisation,
    CapChange,
    Lifetime,
    People,
    Person,
    ReleaseRecord,
    Standing,
    UnprotectedFigures,
    second_opinion,
)
from tasks.values.results import Generated, MetricResult


def commit_artifact(run: RunningAttempt, generated: Generated, metrics: Sequence[MetricResult]) -> str:
    """Put the generated files into quarantine and commit the attempt; return the artifact's digest.

    The files are on disk before the ledger says so. Killed in between, they are orphans that a sweep removes.

    Raises:
        DraftUnwritable, ValuesUnwritable: the home cannot be written.
        AttemptClosed: the attempt was swept away meanwhile.
        OutcomeUnknown: the ledger has not answered, and has not kept it.
    """
    texts = [text.text for text in generated.texts]
    labels = [text.label for text in generated.texts] if names_of(run.quote.parameters) else ()
    insights = [text.insight for text in generated.texts if text.insight is not None]
    files = write_draft(run.quarantine, release_record(run, generated), texts, metrics, labels, insights)
    values = None if generated.values is None else write_values(run.workspace.home, digest(files), generated.values)
    try:
        return _commit_attempt(run, files, metrics, values)
    except OutcomeUnknown:
        with run.workspace.database.write_after_loss() as session:
            kept = artifacts.artifact_of_attempt(session, run.attempt)
        if kept is None:
            raise
        return kept.digest


def _commit_attempt(
    run: RunningAttempt, files: Mapping[str, Any], metrics: Sequence[MetricResult], values: str | None
) -> str:
    plan = run.quote.plan
    with run.workspace.database.write() as session:
        artifact = artifacts.record_artifact(
            session,
            run.workspace.actor,
            run.attempt,
            files,
            sum(int(file["bytes"]) for file in files.values()),
            [(metric.name, metric.exposure, metric.to_json()) for metric in metrics],
            {name: len(plan.invocations) + place for place, name in enumerate(run.quote.charged)},
            values,
        )
        return artifact.digest


def release_record(run: RunningAttempt, generated: Generated) -> ReleaseRecord:
    """Return all public facts of the release; nothing outside the record's schema can be published."""
    lifetime, changes = _lifetime_claims(run)
    events = run.quote.plan.events
    return ReleaseRecord.from_request(
        run.request_id,
        run.body,
        second_opinion=second_opinion(events, run.quote.request.delta or 0),
        lifetime=lifetime,
        released=generated.released,
        policy=_policy_facts(run),
        people=_people_of_release(run),
        libraries=library_versions(),
        rng="os",
        cap_changes=changes,
        standing=_standing_authorisation(run),
        unprotected_figures=_unprotected_figures(run),
    )


def _lifetime_claims(run: RunningAttempt) -> tuple[Lifetime, list[CapChange]]:
    """Return the lifetime claim as it is now, and every change that led to it, from rows that match the chain.

    Raises:
        LedgerAltered: they were altered while it ran.
    """
    with run.workspace.database.read() as session:
        require_rows_match_chain(session, requests.find_request(session, run.request_id))
        claims = claims_of(session, datasets.find_dataset(session, run.attempt.dataset))
        sharing = [d for d in datasets.list_all(session) if d.account_id == run.attempt.account_id]
    changes = [
        CapChange(old_epsilon=old.epsilon, old_delta=old.delta, new_epsilon=new.epsilon, new_delta=new.delta)
        for old, new in pairwise(claims)
    ]
    return Lifetime(epsilon=claims[-1].epsilon, delta=claims[-1].delta, shared=len(sharing) > 1), changes


def _unprotected_figures(run: RunningAttempt) -> UnprotectedFigures | None:
    """Return the earlier views of internal figures; a release that runs or waits to be published bars new ones."""
    with run.workspace.database.read() as session:
        viewing = exposures.find_viewing(session, run.attempt.account_id)
    return None if viewing is None else UnprotectedFigures(since=viewing.since, people=len(viewing.people))


def _standing_authorisation(run: RunningAttempt) -> Standing | None:
    """Return the standing authorisation under which the run takes place."""
    with run.workspace.database.read() as session:
        number = requests.find_request(session, run.request_id).standing_id
        if number is None:
            return None
        content = proposals.content_of(proposals.find_proposal(session, number), run.attempt.dataset)
    return Standing(number=number, said=Authorisation.model_validate(content))


def _people_of_release(run: RunningAttempt) -> People:
    with run.workspace.database.read() as session:
        requester = session.get_one(Principal, requests.find_request(session, run.request_id).requester_id)
        return People(
            requester=Person(name=requester.name, public_key=requester.public_key),
            runner=Person(name=run.workspace.actor.name, public_key=run.workspace.key.public_key),
        )


def _policy_facts(run: RunningAttempt) -> Policy:
    with run.workspace.database.read() as session:
        return policy_of_request(session, requests.find_request(session, run.request_id))
