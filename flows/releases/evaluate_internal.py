"""Internal metrics, once the publish decision is recorded (PRIVACY §7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.releases.publish import find_artifact
from flows.workspace.workspace import open_workspace
from models_db.home import ProjectHome
from models_db.services import artifacts, erasures, exposures, requests
from models_db.services.audit.stored_text import request_body
from models_db.tables import DatasetVersion
from tasks.common.network import is_external
from tasks.corpus.store import open_corpus
from tasks.evaluate import SCORER, evaluate_texts, require_tools
from tasks.evaluation.registry import METRICS
from tasks.inference.catalogue.devices import choose_devices
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.inference.embeddings.encoder import EMBEDDER
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tasks.release.bundle_format import read_labelled
from tasks.values.results import MetricResult
from tasks.workers.backend_settings import HERE, WorkerBackend, open_runner


@dataclass(frozen=True)
class StoredText:
    """A released text as it lies in quarantine: its tokens are not stored, and internal metrics need none."""

    text: str
    tokens: int = 0
    complete: bool = True
    label: str | None = None


def load_scorer(device: str) -> LanguageModel | None:
    """Return the public model that scores what an external one has written; None if it is not pulled.

    It is small, so of a group of devices it is on the first.

    Raises:
        as `tasks.inference.loading.load_model.load`, if it is pulled and cannot be used.
    """
    try:
        return load(SCORER, str(choose_devices(device)[0]))
    except ModelNotPulled:
        return None


def _embedder_of(body: Mapping[str, Any]) -> str:
    return str(body.get("evaluation_embedder", {}).get("name", EMBEDDER))


def evaluate_internally(
    home: Path, request_id: int, embedder: str | None = None, *, workers: int = 1, backend: WorkerBackend = HERE
) -> tuple[MetricResult, ...]:
    """Compare a decided release with its private corpus, and keep the result in the ledger as internal.

    Args:
        embedder: what makes points of texts; by default the embedder of the request's own metrics, or all-minilm-l6-v2.
        workers, backend: the processes that read the corpus, for metrics of all of it; no figure depends on them.

    Raises:
        UnknownModel, ModelKindMismatch, ModelNotPulled: the embedder is not on this machine; nothing was looked at.
        WrongState: governed data, and the publish decision is still open.
        VersionErased: what it was made of was erased.
        UnknownSystem: its system is of an extension that is not installed.
        ReleaseUndecided: a release of the same account is running or waits at the publish gate.
        RunnerNotInstalled, ClusterUnreachable, NoWorkers, WorkerDied, WorkerDiffers: the workers cannot do it.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    artifact = find_artifact(workspace, request_id)
    with workspace.database.read() as session:
        requests.require_decided(session, request_id)
        exposures.require_viewable(session, artifact)
        request = requests.find_request(session, request_id)
        erasures.require_not_erased(session, request.version_id)
        uid = session.get_one(DatasetVersion, request.version_id).uid
        model = requests.model_of(request)
        body = request_body(request)
        embedder = embedder or _embedder_of(body)
    folder = workspace.home.draft(artifact.request_id, artifact.attempt)
    texts = [StoredText(text, label=label) for text, label in read_labelled(folder)]
    internal = [metric for metric in METRICS.values() if metric.exposure == "internal"]
    require_tools(internal, embedder)
    by_another = is_external(model)
    scoring = load_scorer("auto") if by_another else load(model, "auto")
    corpus = open_corpus(workspace.home, uid)
    with open_runner(backend, workers) as runner:
        results = evaluate_texts(
            internal,
            texts,
            scoring,
            corpus,
            by_another=by_another,
            embedder_name=embedder,
            workers=workers,
            runner=runner,
        )
    with workspace.database.write() as session:
        # That each was looked at goes on record, with its link; the figures do not.
        exposures.record_view(session, workspace.actor, artifact, "computed")
        measured = [(r.name, r.exposure, r.to_json()) for r in results]
        artifacts.record_metrics(session, workspace.actor, artifact, measured)
    return results
