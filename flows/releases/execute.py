"""Execution of an approved request up to an artifact in quarantine: hold, arm, generate, evaluate, commit."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from flows.audit.lifetime_claims import claims_of
from flows.governance.policy import policy_of_request
from flows.releases.attempt import (
    CheckedRequest,
    RunningAttempt,
    check,
    close_attempt_on_error,
    heartbeat,
    plan_changed,
    renewing_wait,
    start_attempt,
)
from flows.releases.evaluate_internal import load_scorer
from flows.releases.extend import load_values, write_values
from flows.releases.resume import ResumePoint, forfeit_own_dead_attempts, journal_folder
from flows.workspace.home_keys import differs_from_ledger, store_differs
from flows.workspace.prefect_flow import private_flow
from flows.workspace.workspace import open_workspace
from models_db.home import ProjectHome
from models_db.policies.policy import Policy
from models_db.services import artifacts, budget, datasets, exposures, proposals, requests
from models_db.services.verification.evidence import require_rows_match_chain
from models_db.sessions.database import OutcomeUnknown
from models_db.tables import Dataset, DatasetVersion, Principal
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, digest
from tasks.common.extensions import library_versions
from tasks.common.faults import waiting_with
from tasks.common.progress import tell
from tasks.corpus.partition import SomeBlocks
from tasks.corpus.store import Corpus, PartOfCorpus, open_corpus
from tasks.decoding.journal import Journal, JournalUnwritable
from tasks.decoding.run_context import NoCorpus, NoEngine, RunContext
from tasks.decoding.workers import Workers
from tasks.evaluate import evaluate_texts, require_tools
from tasks.generate import generate_texts
from tasks.inference.backends.chat_completions import HttpBackend
from tasks.inference.catalogue.devices import choose_devices, devices_for
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_rendering import RenderedPrompt
from tasks.inference.structured_output.json_schema import schema_of
from tasks.mechanisms.core.opendp import load_opendp
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.planning.layout import labels_of, names_of, shown_names
from tasks.planning.shared_parameters import precision_of
from tasks.pricing.charged_metrics import Measuring
from tasks.pricing.external_models import require_public_prompts
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
from tasks.workers.backend_settings import HERE, WorkerBackend, open_runner
from tasks.workers.pool import Runner


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


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run: its quarantine folder, the amount spent over all attempts, and its resume point."""

    request_id: int
    digest: str
    texts: int
    spent: Amount
    left: ResumePoint | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the outcome as programs read it."""
        return {
            "request": self.request_id,
            "state": "produced",
            "artifact": self.digest,
            "texts": self.texts,
            "rho_spent": self.spent.rho_text,
            "goes_on_from": self.left.to_json() if self.left else None,
        }


def execute_request(
    home: Path,
    request_id: int,
    device: str = "auto",
    *,
    anew: bool = False,
    workers: int = 1,
    backend: WorkerBackend = HERE,
) -> RunOutcome:
    """Run an approved request once; one that was interrupted goes on where it was, unless it begins `anew`.

    With several `workers`, as many draw, each with a model of its own: on several GPUs, a share of the cores each, or
    on the machines of a cluster (`backend`). A text does not depend on its worker, so this needs no approval.

    Raises:
        JournalInUse, JournalUnfit: the interrupted run cannot be resumed.
        JournalUnwritable: what is drawn cannot be kept.
        WorkerDied: so did a worker; `almoner run` goes on.
        GateClosed, WrongState, StillRunning, PlanChanged, TooManyAttempts: it may not run.
        UnknownDevice, DeviceMissing: nor here.
        RunnerNotInstalled, ClusterUnreachable, NoWorkers: nor there; nothing was begun.
        WorkerDiffers: a worker has not what was approved.
        BudgetExceeded: the dataset cannot afford it any more.
        RunInterrupted: Ctrl-C; the armed budget stays spent.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    forfeit_own_dead_attempts(workspace, request_id)
    return run_checked(check(workspace, request_id), device, anew=anew, workers=workers, backend=backend)


execute = private_flow("execute")(execute_request)
"""`execute_request`; in a Prefect flow run a subflow of it."""


def run_checked(
    checked: CheckedRequest,
    device: str = "auto",
    *,
    anew: bool = False,
    workers: int = 1,
    backend: WorkerBackend = HERE,
) -> RunOutcome:
    """Run a request that was checked in this process, as `execute_request` does."""
    workspace, request_id = checked.workspace, checked.request_id
    devices = choose_devices(device)
    kind = devices[0].type
    gpus = len(devices) if kind == "cuda" else 0
    if backend.address is None:
        devices_for(device, workers)  # refuses a group that they cannot divide, before anything is loaded
    folder = journal_folder(workspace.home, request_id)
    with open_runner(backend, workers, gpus) as runner, Journal(folder, request_id) as journal:
        run = start_attempt(checked, journal, restart=anew)
        with close_attempt_on_error(run), waiting_with(partial(renewing_wait, run)):
            artifact, texts = produce_artifact(run, device, kind, workers, runner)
        with suppress(JournalUnwritable):  # it is produced; a sweep will find the rest
            journal.discard()
    with workspace.database.read() as session:
        spent = budget.spent_by(session, request_id)
    return RunOutcome(request_id, artifact, texts, spent, run.resume_point)


def produce_artifact(
    run: RunningAttempt, device: str, kind: str, workers: int, runner: Runner | None
) -> tuple[str, int]:
    """Carry the attempt out; returns the artifact's digest, and how many texts it has."""
    context = prepare_context(run, device, workers, runner)
    quote = run.quote
    require_approved_prompt(run, context)
    scoring = context.engine.model if context.outside is None else load_run_scorer(run, device)
    if run.resume_point:
        tell(str(run.resume_point))
    run.hold(kind, context.rng.kind)
    generated = generate_texts(quote.system, quote.plan.with_local_block_numbers, quote.parameters, context)
    corpus = None if run.facts.governed else context.corpus  # only internal metrics read it, and only of public data
    schema = schema_of(quote.parameters)
    results = evaluate_texts(
        quote.metrics,
        generated.texts,
        scoring,
        corpus,
        schema,
        charged_metrics(run, context),
        by_another=context.outside is not None,
        embedder_name=quote.request.evaluation_embedder,
    )
    return commit_artifact(run, generated, results), len(generated.texts)


def require_approved_prompt(run: RunningAttempt, context: RunContext) -> None:
    """Check that the loaded tokenizer makes those prompts that the request was approved with; nothing is held yet.

    Raises:
        PlanChanged: it makes others.
    """
    if (approved := run.body.get("prompt_sha256")) is None:
        return
    shown = shown_names(run.quote.parameters)
    if RenderedPrompt.of(context.engine.model.tokenizer, run.quote.prompt, shown).sha256 != approved:
        raise plan_changed(run.request_id, "rendered prompt")


def charged_metrics(run: RunningAttempt, context: RunContext) -> Measuring:
    """Return the drawer of the run's charged metrics."""
    return Measuring(
        plan=run.quote.plan.with_local_block_numbers,
        charged=run.quote.charged,
        labels=labels_of(run.quote.parameters),
        context=context,
    )


def prepare_context(run: RunningAttempt, device: str, workers: int, runner: Runner | None = None) -> RunContext:
    """Load the model and open the corpus's folder; a failure here has cost no budget.

    What extends a release is made of the values that are kept of it, and finds out here if it may not be.
    Of an external model there is nothing to load; its endpoint is not asked before the run has begun to pay.
    """
    outside = external_backend(run)
    loading = partial(load, run.quote.request.model, precision=precision_of(run.quote.parameters))
    engine = cast(Engine, NoEngine(run.quote.request.model)) if outside else Engine(loading(device))
    require_tools(run.quote.metrics, run.quote.request.evaluation_embedder)
    load_opendp()
    kept = load_values(run.workspace, run.body)
    return RunContext(
        engine=engine,
        corpus=_open_corpus(run, extends=kept is not None),
        scheme=run.scheme,
        split=run.split,
        prompt=run.quote.prompt,
        rng=OS_RANDOM,
        arm=run.arm,
        progress=heartbeat(run),
        workers=Workers.on(loading, device, workers, runner) if runner else None,
        earlier=run.resume_state,
        journal=run.journal,
        steps=run.steps,
        cache=run.workspace.home.derived,
        outside=outside,
        device=str(choose_devices(device)[0]),
        kept=kept,
    )


def _open_corpus(run: RunningAttempt, *, extends: bool) -> Corpus:
    """Return the corpus; further texts of a release of governed data need none. Labels are checked before payment."""
    if extends and run.facts.governed:
        return cast(Corpus, NoCorpus())
    corpus = open_corpus(run.workspace.home, run.facts.version_uid)
    _require_recorded_content(run)
    if names_of(run.quote.parameters) and not extends:
        corpus.require_labels()
    return PartOfCorpus.of(corpus, run.scheme) if isinstance(run.scheme, SomeBlocks) else corpus


def _require_recorded_content(run: RunningAttempt) -> None:
    """Check that the version holds the ingested documents without the erased ones: others were charged to no unit.

    Raises:
        StoreDiffers: it holds something else.
        KeyMissing: this home has not the key of the marks.
    """
    with run.workspace.database.read() as session:
        request = requests.find_request(session, run.request_id)
        dataset = session.get_one(Dataset, request.dataset_id)
        version = session.get_one(DatasetVersion, request.version_id)
        if differs_from_ledger(run.workspace, session, dataset, version):
            raise store_differs(dataset.name, version.number)


def external_backend(run: RunningAttempt) -> HttpBackend | None:
    """Return the backend of the external model that the request names.

    Raises:
        ExternalModelRefused: the system shows private text to its model.
        EndpointKeyMissing, EndpointUnreachable, AnswersUnwritable: it cannot be asked from here.
    """
    require_public_prompts(run.quote.system, run.quote.request.model)
    if run.quote.endpoint is None:
        return None
    return HttpBackend.of(run.quote.endpoint, journal_folder(run.workspace.home, run.request_id), heartbeat(run))


def load_run_scorer(run: RunningAttempt, device: str) -> LanguageModel | None:
    """Return the metrics' model if an external one writes the texts; None if no metric needs it or it is not pulled."""
    return load_scorer(device) if any("model" in metric.needs for metric in run.quote.metrics) else None
