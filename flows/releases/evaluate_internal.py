"""Internal metrics, once the publish decision is recorded (PRIVACY §7)."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from flows.observability import tracing
from flows.releases.publish import find_artifact
from flows.workspace.workspace import open_workspace
from models_db.home import ProjectHome
from models_db.services.catalogue import erasures, internal_views, requests
from models_db.services.catalogue.requests import WrongState
from models_db.services.lifecycle import artifacts
from models_db.tables import Dataset, DatasetVersion
from models_db.values.request_state import DECIDED
from tasks.common.network import is_external
from tasks.corpus.store import open_corpus
from tasks.evaluate import SCORER, evaluate_texts
from tasks.evaluation.registry import METRICS
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.inference.loading.loading import load
from tasks.inference.network.language_model import LanguageModel
from tasks.release.text_rows import read_labelled
from tasks.values.metric_result import MetricResult


@dataclass(frozen=True)
class StoredText:
    """A released text as it lies in quarantine: its tokens are not stored, and internal metrics need none."""

    text: str
    tokens: int = 0
    complete: bool = True
    label: str | None = None


def require_decided(session: Session, request_id: int) -> None:
    """Check that internal figures of a release may be made and seen (PRIVACY §7).

    Raises:
        WrongState: governed data, and nobody has decided yet.
    """
    state, dataset_id = requests.state_of(session, request_id), requests.find_request(session, request_id).dataset_id
    decided = state in DECIDED
    if session.get_one(Dataset, dataset_id).governed and not decided:
        raise WrongState(request_id, state, "published or discarded: internal metrics wait for the decision")


def load_scorer(device: str) -> LanguageModel | None:
    """The public model that scores what an external one has written; None where it is not pulled.

    Raises:
        as `tasks.inference.loading.loading.load`, if it is pulled and cannot be used.
    """
    try:
        return load(SCORER, device)
    except ModelNotPulled:
        return None


@tracing.traced("evaluate", live=False)
def evaluate_internally(home: Path, request_id: int) -> tuple[MetricResult, ...]:
    """Compare a decided release with its private corpus, and keep the result in the ledger as internal.

    Raises:
        WrongState: governed data, and nobody has decided yet.
        VersionErased: what it was made of was erased.
        ReleaseUndecided: a release of the same account is running or waits at the publish gate.
    """
    tracing.set_request(request_id)
    workspace = open_workspace(ProjectHome.locate(home))
    artifact = find_artifact(workspace, request_id)
    with workspace.database.read() as session:
        require_decided(session, request_id)
        internal_views.require_viewable(session, artifact)
        request = requests.find_request(session, request_id)
        erasures.require_not_erased(session, request.version_id)
        uid = session.get_one(DatasetVersion, request.version_id).uid
        model = requests.model_of(request)
    folder = workspace.home.path_inside("quarantine", artifact.folder)
    texts = [StoredText(text, label=label) for text, label in read_labelled(folder)]
    internal = [metric for metric in METRICS.values() if metric.exposure == "internal"]
    by_another = is_external(model)
    scoring = load_scorer("auto") if by_another else load(model, "auto")
    corpus = open_corpus(workspace.home, uid)
    with tracing.stage("evaluate"):
        results = evaluate_texts(internal, texts, scoring, corpus, by_another=by_another)
    with tracing.stage("record"), workspace.database.write() as session:
        # That each was looked at goes on record, with its link; the figures do not.
        internal_views.record_view(session, workspace.actor, artifact, "computed")
        measured = [(r.name, r.exposure, r.to_json()) for r in results]
        artifacts.record_metrics(session, artifact, measured, by=workspace.actor)
    return results
