"""Report of a release, built from its files and the ledger for an audience, and written with mode 0600."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from flows.approvals.build_review import build_publish_review, load_request_review
from flows.attacks.result_store import results_for
from flows.governance.policy import require_visible_balances
from flows.releases.publish import find_artifact
from flows.releases.release_texts import read_record, read_texts
from flows.reports.ledger_facts import earlier_points, ledger_parts, newest_results
from flows.workspace.workspace import Workspace
from flows.workspace.yaml_files import file_unwritable
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.services import budget, exposures, requests
from models_db.services.audit.stored_text import files_of
from models_db.tables import Artifact
from models_db.values.canonical_json import encode_canonical
from models_db.values.request_state import Gate
from tasks.common.extras import missing_packages
from tasks.common.faults import retry
from tasks.common.files import read_document, write_new, write_over
from tasks.inference.catalogue.registry import ModelNotPulled
from tasks.publishing.draft import read_metrics, rehash
from tasks.release.bundle_format import EVALUATION
from tasks.release.prompt_passages import prompt_passages
from tasks.release.record import ReleaseRecord
from tasks.reporting.attack_sections import TwinAttacks
from tasks.reporting.embedding_map import LEAST, text_map
from tasks.reporting.html_report import page
from tasks.reporting.release_sections import Text, release_facts, text_pages
from tasks.reporting.report_parts import AudienceFact, Map, Measured, Point, PolicyRequirement, Version, contents
from tasks.values.results import ReleaseKind


def build_report(workspace: Workspace, request_id: int, version: Version) -> dict[str, Any]:
    """Return the report on a request's artifact for the readers of one version, as `--json` prints it.

    Raises:
        The errors of `report_facts`.
    """
    return contents(version, report_facts(workspace, request_id, version))


def report_facts(
    workspace: Workspace, request_id: int, version: Version, *, drawn: bool = True, viewer_recorded: bool = False
) -> tuple[AudienceFact, ...]:
    """Collect all facts about a request's artifact; `tasks.reporting` leaves out those that a version may not show.

    Args:
        drawn: whether to include the map of texts, which needs an embedder.
        viewer_recorded: whether the audit log already names the owner of this home as a viewer of this account's
            figures; otherwise the view is recorded before the internal version is returned.

    Raises:
        WrongState: there is no artifact, or the internal version of governed data precedes the publish decision.
        ReleaseUndecided: the internal version was requested while a release of the account is running or waits at the
            publish gate.
        BalancesWithheld: the policy hides balances from the actor; the public version has none.
        ArtifactChanged: the files differ from the produced ones.
    """
    artifact = find_artifact(workspace, request_id)
    draft = workspace.home.draft(artifact.request_id, artifact.attempt)
    rehash(draft, files_of(artifact))
    if version == "public":
        with workspace.database.read() as session:
            end = exposures.find_secrecy_end(session, request_id)
        return tuple(bundle_facts(draft, None if end is None else end.public_sentence))
    with workspace.database.read() as session:
        if version == "internal":
            requests.require_decided(session, request_id)
        dataset = load_request_review(session, request_id, Gate.PUBLISH).dataset
    require_visible_balances(workspace, dataset)
    record = read_record(draft)
    texts = read_texts(draft, record.kind)
    text_plane = _text_map(texts) if drawn else None  # before the session: retries would outlast it
    with workspace.database.read() as session:
        facts = tuple(_ledger_facts(workspace, session, artifact, draft, record, texts, text_plane))
    if version == "internal" and not viewer_recorded:
        _record_views(workspace, artifact, facts)
    return facts


def _record_views(workspace: Workspace, artifact: Artifact, facts: Iterable[AudienceFact]) -> None:
    """Record that the actor sees stored internal figures of a release of the dataset (PRIVACY §10.3)."""
    parts = [fact.part for fact in facts if fact.exposure == "internal"]
    if any(isinstance(part, Measured | PolicyRequirement | Point) for part in parts):
        with workspace.database.write() as session:
            exposures.record_view(session, workspace.actor, artifact, "shown")


def bundle_facts(folder: Path, ended: str | None = None) -> Iterator[AudienceFact]:
    """Collect the facts in the files of a draft, which a reader of the bundle can also collect.

    Args:
        ended: the sentence on the end of what it claims while its assignment is secret.
    """
    metrics = read_metrics(read_document(folder / EVALUATION))
    record = read_record(folder)
    yield from release_facts(record, metrics, read_texts(folder, record.kind), ended)


def _ledger_facts(
    workspace: Workspace,
    session: Session,
    artifact: Artifact,
    draft: Path,
    record: ReleaseRecord,
    texts: Sequence[Text],
    text_plane: Map | None,
) -> Iterator[AudienceFact]:
    inputs = load_request_review(session, artifact.request_id, Gate.PUBLISH)
    review = build_publish_review(inputs, draft, files_of(artifact), workspace.key.public_key)
    bounds = record.policy.rules_for(record.dataset.name).required
    required = [f"{metric}.{name}" for metric, names in bounds.items() for name in names]
    # The ledger has the metrics of the run and those computed after the decision, with the exposure of each.
    stored = newest_results(session, artifact)
    end = inputs.secrecy_end
    yield from release_facts(record, stored, texts, None if end is None else end.sentence)
    if record.kind != ReleaseKind.INSIGHTS:  # the explorer shows all insights
        pages = text_pages(texts, prompt_passages(inputs.request))
        yield from (AudienceFact("ledger", page) for page in pages)
    yield from earlier_points(session, artifact, required)
    yield from _attack_results(workspace, inputs.request)
    if text_plane:
        yield AudienceFact("public", text_plane)
    spent = budget.spent_by(session, artifact.request_id)
    before = load_request_review(session, artifact.request_id, Gate.SPEND).given
    yield from (AudienceFact("ledger", section) for section in ledger_parts(inputs, review, spent, before))


def _attack_results(workspace: Workspace, request: Mapping[str, Any]) -> Iterator[AudienceFact]:
    """Yield the results of attacks on a public twin of the request's configuration; those of the same code first."""
    results = sorted(results_for(workspace.home, request), key=lambda result: result["code"] != request["code"])
    if results:
        yield from TwinAttacks.of(results[0], request["code"]).facts()


def _text_map(texts: Sequence[Text]) -> Map | None:
    """Return the texts on a plane; None without an embedder or its packages on this machine, or for too few texts.

    It costs nothing, so it is retried after a temporary fault.
    """
    if len(texts) < LEAST or missing_packages():
        return None
    from tasks.inference.embeddings.encoder import load_embedder  # it knows torch
    from tasks.inference.embeddings.unit_embeddings import RetriedEmbedder

    try:
        return text_map(texts, RetriedEmbedder(retry(load_embedder, "loading the embedder")))
    except ModelNotPulled:
        return None


def write_report(home: ProjectHome, path: Path, content: Mapping[str, Any]) -> Path:
    """Write the new file `path`: JSON if its name ends in `.json`, else the HTML page.

    Raises:
        ReportInHome: the path is in the home, where an erasure would not find the file.
        FileUnwritable: the file exists, or cannot be written.
    """
    if path.resolve().is_relative_to(home.root.resolve()):
        raise UsageError(
            f"{path} lies in the project home, where an erasure would not find a report of that name.",
            "Name a file outside the home; without --out the page is kept in the home's own folder of reports.",
            {"path": str(path)},
            code="ReportInHome",
        )
    data = encode_canonical(content) + b"\n" if path.suffix == ".json" else page(content).encode()
    try:
        write_new(path, data, 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None
    return path


def replace_page(home: ProjectHome, content: Mapping[str, Any]) -> Path:
    """Write the page to the home's own folder of reports, in place of an earlier page of its version.

    Raises:
        FileUnwritable: the file cannot be written.
    """
    path = home.path_inside("reports", f"{content['release']['number']}-{content['version']}.html")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_over(path, page(content).encode(), 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None
    return path
