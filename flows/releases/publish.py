"""Publication of an approved artifact as a bundle: re-hash, record, sign, deliver, checkpoint."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from flows.audit.charges import charge_of_release
from flows.audit.lifetime_claims import claims_of, require_authorised
from flows.governance.policy import require_bounds
from flows.releases.resume import journal_folder
from flows.workspace.object_stores import open_destination
from flows.workspace.prefect_flow import private_flow
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.services import artifacts, exposures, gates, people, proposals, requests
from models_db.services.audit import chain
from models_db.services.verification.evidence import require_rows_match_chain
from models_db.tables import Artifact, Dataset
from models_db.writes.links import record_link
from tasks.decoding.journal import Journal, JournalUnwritable
from tasks.object_storage.address import Place
from tasks.publish import deliver, documents_of_release, require_publishable
from tasks.publishing.bundle import BundleDocuments


@dataclass(frozen=True)
class PublishedBundle:
    """A bundle that arrived whole."""

    request_id: int
    place: Place
    bundle_digest: str


@private_flow("publish")
def publish_release(home: Path, request_id: int, destination: Place) -> PublishedBundle:
    """Publish the approved files, byte for byte.

    The publication is recorded before the first byte is copied; a second call after a crash delivers it.

    Args:
        destination: a folder, or an address in a store, which has to answer before anything is recorded.

    Raises:
        GateClosed, WrongState: the publish gate is not passed for exactly these bytes.
        LedgerAltered: a row on which the release rests differs from its link.
        NotCharged: the ledger has not charged the whole plan of the request.
        ProposalAltered, AuthorisationDiffers: its standing authorisation is not for its text.
        OutsideBounds: a figure of the release is not what its policy demands, and not every approval overrides that.
        AmountsDiffer: the lifetime claim that the release states is not the one that the ledger enforced.
        ArtifactChanged: the quarantined files are not the approved ones.
        KeyNotDestroyed: the key of the split is still there, and cannot be removed.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    artifact = find_artifact(workspace, request_id)
    draft = workspace.home.draft(artifact.request_id, artifact.attempt)
    with workspace.database.read() as session:
        request, _ = artifacts.require_publishable(session, request_id)
        require_rows_match_chain(session, request)
        require_bounds(session, request_id, _approval_reasons(session, artifact))
        require_authorised(session, request)
        claims_of(session, session.get_one(Dataset, requests.find_request(session, request_id).dataset_id))
        before = _bundle_documents(session, artifact)
    require_publishable(draft, artifact, before, workspace.key)
    _destroy_key(workspace.home, request_id)
    with open_destination(workspace.home, destination) as place:
        with workspace.database.write() as session:
            publication = artifacts.record_publication(session, workspace.actor, request_id)
            record_link(session)  # the head that the bundle carries is that of its own publication, or a later one
            papers = _bundle_documents(session, artifact)
        bundle = deliver(draft, artifact, papers, workspace.key, place)
    with workspace.database.write() as session:
        artifacts.record_delivery(session, workspace.actor, publication, str(bundle.place), bundle.digest)
        checkpoint = bundle.checkpoint
        chain.record_checkpoint(
            session,
            workspace.actor,
            checkpoint.ledger_head,
            checkpoint.signature,
            checkpoint.public_key,
            artifact,
        )
    return PublishedBundle(request_id, bundle.place, bundle.digest)


def _destroy_key(home: ProjectHome, request_id: int) -> None:
    """Remove the journal, and the key in it, of a run that died behind its commit; the bundle says it is destroyed."""
    folder = journal_folder(home, request_id)
    try:
        Journal(folder, request_id).discard()
    except JournalUnwritable:
        if folder.exists():  # or the run itself has just removed it
            raise EnvironmentProblem(
                f"The journal that the run of request {request_id} left cannot be removed, and a release says that"
                " the key in it is destroyed. Nothing was published.",
                f"Remove the folder `quarantine/{request_id}-unfinished` of the home, then publish again.",
                {"request": request_id},
                code="KeyNotDestroyed",
            ) from None


def _approval_reasons(session: Session, artifact: Artifact) -> list[str]:
    """Return the reasons of the approvals of exactly these files, also expired: a second delivery finds the same."""
    decided = gates.decisions_for_bundle(session, artifact.request_id)
    return [a.reason for a, _ in decided if (a.decision, a.subject_digest) == ("approve", artifact.digest)]


def _bundle_documents(session: Session, artifact: Artifact) -> BundleDocuments:
    """Return the ledger's documents of the artifact; a second delivery keeps the head and revocation list.

    Raises:
        NotCharged: the ledger has not charged the whole plan of its request.
    """
    decisions = gates.decisions_for_bundle(session, artifact.request_id)
    return documents_of_release(
        artifact,
        decisions,
        people.passkeys_by_id(session, {approval.passkey_id for approval, _ in decisions}),
        chain.ledger_id(session),
        chain.read_chain_head(session).hash,
        charge_of_release(session, artifact.request_id),
        proposals.retracted_artifacts(session),
        exposures.exposed_artifacts(session),
    )


def find_artifact(workspace: Workspace, request_id: int) -> Artifact:
    """Return the artifact of a request.

    Raises:
        WrongState: nothing yet.
    """
    with workspace.database.read() as session:
        requests.find_request(session, request_id)
        artifact = artifacts.artifact_of(session, request_id)
        if artifact is None:
            raise requests.WrongState(request_id, requests.state_of(session, request_id), "produced")
        return artifact
