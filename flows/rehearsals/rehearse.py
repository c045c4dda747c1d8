"""Rehearsal of a request on a public twin: its texts at the same noise, beside both references.

A requester may look at it before asking, and a steward before deciding. The price comes from public facts of the
request's dataset; only the public dataset is read; nothing is charged, and every figure is public.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

from flows.rehearsals.stored_results import RehearsalFolder, parsed_results
from flows.releases.propose import dataset_facts, find_model, price_request
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import Refused, UsageError
from models_db.home import ProjectHome
from models_db.services import datasets, requests
from models_db.services.audit.stored_text import request_body
from models_db.values.canonical_json import encode_canonical
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.attack import copied, release, units_of
from tasks.common.extensions import code_digest
from tasks.common.network import is_external
from tasks.corpus.store import open_corpus
from tasks.decoding.journal import Journal, JournalUnfit, ResumeState
from tasks.evaluate import scorer
from tasks.evaluation.evaluation_input import Scorer
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.planning.layout import PartParameters, labels_of, layout_of
from tasks.planning.shared_parameters import precision_of
from tasks.pricing.quote import DatasetFacts, Quote, plan_json, quote, written_request
from tasks.rehearsal.measures import RELEASES, REQUEST
from tasks.rehearsal.result import RehearsalResult, Twin, configuration_digest
from tasks.rehearsal.split import RehearsalSplit, RehearsedBatches, rehearsed_batches, split_people
from tasks.rehearse import compare_releases, embedder_at_hand
from tasks.systems.private_decoding import PrivateDecodingSystem
from tasks.systems.registry import SYSTEMS
from tasks.text.public_models import Embedder
from tasks.values.results import GeneratedText

DEFAULT_TEXTS = 24
FEWEST_TEXTS = 5
"""Texts of a rehearsal: the default, and the fewest from which a share of the way means anything."""
IGNORED_FIELDS = ("public_metadata", "cohorts", "epsilon_while_secret")
"""Fields of a request that a rehearsal ignores: they decide budget and blocks, not how texts are drawn."""

_PriceReference: TypeAlias = Callable[[str], Quote]
"""Prices a reference of a rehearsal, by its name."""
ModelLoader: TypeAlias = Callable[[Precision], LanguageModel]
"""Loads the request's model in a precision."""


@dataclass(frozen=True)
class RehearsalOptions:
    """Options of a rehearsal.

    Attributes:
        request: a request's number, or the content of a request file.
        on: the public dataset.
        texts: the number of texts of each release; by default 24, and as many as the request where it asks for fewer.
        restart: whether to discard an earlier rehearsal of the same request on the same data.
    """

    request: int | Mapping[str, object]
    on: str
    texts: int | None = None
    restart: bool = False


@dataclass(frozen=True)
class RehearsalOutcome:
    """A rehearsal, as the ledger has it.

    Attributes:
        texts: the texts of each release, by its name.
        recorded: whether it was recorded by this call; False if an earlier one is shown.
    """

    result: RehearsalResult
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    recorded: bool = True


@dataclass(frozen=True)
class _Rehearsed:
    """A request that is to be rehearsed.

    Attributes:
        body: the canonical request.
        request: the same as a request of the twin.
        facts: public facts of the twin, with the population and the number of blocks of the request.
        number: the request's number; None if it is a file.
    """

    body: Mapping[str, Any]
    request: ReleaseRequest
    facts: DatasetFacts
    number: int | None

    @property
    def declared(self) -> int | None:
        """The declared population of the request."""
        population: int | None = self.body["population"]
        return population

    @property
    def size(self) -> int:
        """People of the twin: the declared population, or as many as the request is made for."""
        parameters = self.body["parameters"]
        return self.declared or int(parameters["samples"]) * int(parameters["references"])


@dataclass(frozen=True)
class RehearsalTools:
    """Public tools of a rehearsal, loaded once.

    Attributes:
        model_in: loads the request's model.
        score: scores texts under it; each text once.
        embed: the embedder; None if it is not on this machine.
    """

    model_in: ModelLoader
    score: Scorer
    embed: Embedder | None

    @classmethod
    def load(cls, model: str, device: str) -> "RehearsalTools":
        """Load the model and the embedder."""
        model_in: ModelLoader = lru_cache(maxsize=1)(partial(load, model, device))
        return cls(model_in, scorer(model_in("float32")), embedder_at_hand(model_in("float32")))


def rehearse_request(
    home: Path, options: RehearsalOptions, device: str = "auto", tools: RehearsalTools | None = None
) -> RehearsalOutcome:
    """Make the texts of a request and of both references on a public twin, compare them and record the figures.

    An interrupted rehearsal goes on where it stopped; a finished one is shown again.

    Args:
        tools: for several rehearsals with one model in one process; by default they are loaded.

    Raises:
        RehearsalOnGovernedData: the dataset is not marked public.
        NotRehearsed: the mechanism or the kind has no rehearsal; ExternalModelNotRehearsed: nor has the model.
        TextsOutOfRange: fewer texts than say anything, or more than the request or the twin has.
        RehearsalTwinTooSmall: the twin has too few people.
        RehearsalDiffers: this version of almoner gives the request another noise.
        RehearsalUnreadable, RehearsalUnwritable: the stored texts are damaged, or cannot be stored.
        The errors of pricing and generation also pass through.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    rehearsed = _rehearsed_request(workspace, options)
    texts = _number_of_texts(rehearsed, options)
    configuration, uid = configuration_digest(rehearsed.body), rehearsed.facts.version_uid
    folder = RehearsalFolder.of(workspace.home, configuration, uid)
    if options.restart:
        folder.clear()
    elif (earlier := _earlier_result(workspace, configuration, uid, texts)) is not None:
        return RehearsalOutcome(earlier, _stored_texts(folder), recorded=False)
    whole = _quote_on_twin(workspace, rehearsed, {})
    _require_same_noise(rehearsed, whole)
    split = _split(workspace, folder, rehearsed, whole, texts)
    batches = _batches(rehearsed, whole, texts, len(split.people))
    quoted, price_reference = _quotes(workspace, rehearsed, whole, texts, batches)
    tools = tools or RehearsalTools.load(rehearsed.request.model, device)
    texts_by_release, labels = _make_releases(
        workspace, folder, quoted, price_reference, split, tools.model_in, rehearsed.number
    )
    metrics, left_out = compare_releases(texts_by_release, labels, split, tools.score, tools.embed)
    result = RehearsalResult(
        configuration=configuration,
        code=code_digest(),
        twin=Twin(name=rehearsed.facts.name, version=rehearsed.facts.version, uid=uid),
        model=rehearsed.request.model,
        mechanism=rehearsed.request.mechanism,
        texts=texts,
        asked=whole.plan.samples,
        people=len(split.people),
        declared=rehearsed.declared,
        units_per_text=f"{float(batches.units_per_text):.1f}",
        asked_units_per_text=f"{float(batches.asked):.1f}",
        held_out=len(split.held_out),
        metrics=metrics,
        left_out=left_out,
    )
    _record(workspace, rehearsed.number, result)
    return RehearsalOutcome(result, texts_by_release)


def _rehearsed_request(workspace: Workspace, options: RehearsalOptions) -> _Rehearsed:
    """Return the request with its canonical body, and the public facts of the twin.

    The twin is checked first, so that an error about a governed dataset reveals nothing else.
    """
    facts = _public_facts(workspace, options.on)
    if isinstance(options.request, int):
        number: int | None = options.request
        with workspace.database.read() as session:
            body: Mapping[str, Any] = request_body(requests.find_request(session, options.request))
        request = written_request(body)
    else:
        number = None
        priced = price_request(workspace, parse_model(ReleaseRequest, dict(options.request), "The request"))
        body, request = priced.body, priced.request
    if not _can_be_rehearsed(request.mechanism):
        raise UsageError(
            f"A release of kind {request.kind} by {request.mechanism} is not rehearsed: only where each text is drawn"
            " from a batch of people of its own has a smaller number of texts the same noise.",
            f"Rehearsed are requests for texts by {', '.join(tuple(filter(_can_be_rehearsed, SYSTEMS)))}.",
            {"kind": request.kind, "mechanism": request.mechanism},
            code="NotRehearsed",
        )
    if is_external(request.model):
        raise Refused(
            f"{request.model!r} is behind an API; requests with such a model are not rehearsed.",
            "Rehearse the same request with a model of this machine.",
            {"model": request.model},
            code="ExternalModelNotRehearsed",
        )
    ignored = {name: ReleaseRequest.model_fields[name].default for name in IGNORED_FIELDS}
    on_twin = request.model_copy(update={**ignored, "dataset": facts.name})
    shape = {"population": body["population"], "blocks": len(body["plan"]["blocks"]), "reading": None}
    return _Rehearsed(body, on_twin, replace(facts, **shape), number)


def _can_be_rehearsed(mechanism: str) -> bool:
    """Return whether fewer texts than a request asks for can be drawn at its noise: each has a batch of its own."""
    system = SYSTEMS.get(mechanism)
    return isinstance(system, PrivateDecodingSystem) and system.charges


def _public_facts(workspace: Workspace, name: str) -> DatasetFacts:
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        if dataset.governed:
            raise Refused(
                f"The dataset {name!r} is governed: a rehearsal reads its texts without protection, and a request that"
                " depends on such a result is not differentially private.",
                "Rehearse on a public corpus of the same kind: `almoner dataset register NAME --public ...`, ingest"
                " it, and name it with --on NAME.",
                {"dataset": name},
                code="RehearsalOnGovernedData",
            )
        return dataset_facts(session, dataset, datasets.newest_version(session, dataset))


def _number_of_texts(rehearsed: _Rehearsed, options: RehearsalOptions) -> int:
    parameters = rehearsed.body["parameters"]
    samples, labels = int(parameters["samples"]), len(parameters.get("labels", ()))
    least = max(FEWEST_TEXTS, rehearsed.facts.blocks, labels)
    texts = min(samples, max(DEFAULT_TEXTS, least)) if options.texts is None else options.texts
    if not least <= texts <= samples:
        raise _texts_out_of_range(texts, least, samples, "the request asks for")
    return texts


def _texts_out_of_range(texts: int, least: int, most: int, limit: str) -> UsageError:
    return UsageError(
        f"{texts} texts cannot be rehearsed: at least {least} are needed for a comparison (one for each block and"
        f" label, and no fewer than five), and {limit} {most}.",
        f"Choose --texts from {least} to {most}."
        if least <= most
        else "Rehearse a request for more texts, or on a larger public dataset.",
        {"texts": texts, "least": least, "most": most},
        code="TextsOutOfRange",
    )


def _earlier_result(workspace: Workspace, configuration: str, uid: str, texts: int) -> RehearsalResult | None:
    """Return the newest rehearsal of the same number of texts on the same data by this code."""
    with workspace.database.read() as session:
        results = parsed_results(session, configuration)
    same = (one for _, one in results if (one.twin.uid, one.texts, one.code) == (uid, texts, code_digest()))
    return next(same, None)


def _quote_on_twin(
    workspace: Workspace, rehearsed: _Rehearsed, parameters: Mapping[str, object], **changes: object
) -> Quote:
    """Price the request on the twin, with some parameters and fields changed."""
    request = rehearsed.request
    changed = request.model_copy(update={**changes, "parameters": {**request.parameters, **parameters}})
    model = find_model(workspace, request.model)
    return quote(changed, rehearsed.facts, model, workspace.policy_digest, code_digest())


def _require_same_noise(rehearsed: _Rehearsed, quoted: Quote) -> None:
    """Check that the mechanisms on the twin are those of the request, one by one and parameter by parameter."""
    planned = _events(rehearsed.body["plan"])
    if planned[: len(quoted.plan.invocations)] != _events(plan_json(quoted.plan))[: len(quoted.plan.invocations)]:
        raise Refused(
            "On the twin the request would be drawn with another noise than it was priced with: almoner or the model"
            " has changed since.",
            "Submit the request again, and rehearse that.",
            code="RehearsalDiffers",
        )


def _events(plan: Any) -> list[Any]:
    """Return the mechanisms of a plan as the canonical request has them."""
    return [invocation["event"] for invocation in plan["invocations"]]


def _split(
    workspace: Workspace, folder: RehearsalFolder, rehearsed: _Rehearsed, whole: Quote, texts: int
) -> RehearsalSplit:
    """Return the split of the people, which is drawn once for each rehearsal."""
    split = folder.read_split(texts, code_digest())
    if split is None:
        folder.clear()
        corpus = open_corpus(workspace.home, rehearsed.facts.version_uid)
        units = units_of(corpus, labels_of(whole.parameters))
        split = split_people(units, rehearsed.size, rehearsed.facts.name, OS_RANDOM)
        folder.write_split(split, texts, code_digest())
    if texts > len(split.people):
        raise _texts_out_of_range(
            texts, FEWEST_TEXTS, len(split.people), f"the twin {rehearsed.facts.name!r} has people for"
        )
    return split


def _batches(rehearsed: _Rehearsed, whole: Quote, texts: int, people: int) -> RehearsedBatches:
    """Return the batches of the rehearsal, as full as the request's where the twin has the people."""
    cells = rehearsed.facts.blocks * max(1, len(labels_of(whole.parameters)))
    planned, samples = whole.plan.facts["batches per block"], whole.plan.samples
    # Where the number comes from a noisy count, it is expected to be made for batches of `references`.
    per_cell = int(planned) if planned.isdecimal() else -(-samples // cells)
    return rehearsed_batches(per_cell, cells, texts, people, rehearsed.size)


def _quotes(
    workspace: Workspace, rehearsed: _Rehearsed, whole: Quote, texts: int, batches: RehearsedBatches
) -> tuple[Quote, "_PriceReference"]:
    """Return the request as a priced request on the twin, and what prices a reference of so many texts."""
    counted = not whole.plan.facts["batches per block"].isdecimal()
    made = {} if counted else {"batches": batches.per_cell}
    quoted = _quote_on_twin(workspace, rehearsed, {"samples": texts, **made})
    _require_same_noise(rehearsed, quoted)

    def price_reference(name: str) -> Quote:
        own = {"samples": texts}
        return _quote_on_twin(workspace, rehearsed, own, mechanism=name, epsilon=None, delta=None, evaluation=())

    return quoted, price_reference


def _make_releases(
    workspace: Workspace,
    folder: RehearsalFolder,
    quoted: Quote,
    price_reference: "_PriceReference",
    split: RehearsalSplit,
    model_in: ModelLoader,
    number: int | None,
) -> tuple[dict[str, list[str]], list[str | None]]:
    """Return the texts of every release, and their labels; finished ones are read, and an interrupted one goes on."""
    labels, made, of_texts = labels_of(quoted.parameters), {}, _labels(quoted)
    with copied(workspace.home, split.people, labels, prefix="rehearsal-") as corpus:
        for name in RELEASES:
            texts = folder.read_texts(name)
            if texts is None:
                priced = quoted if name == REQUEST else price_reference(name)
                model = model_in(precision_of(priced.parameters))
                with Journal(folder.path / f"draws-{name}", number or 0) as journal:
                    drawn = name == REQUEST
                    earlier = _interrupted_draws(journal, split.key) if drawn else None
                    generated = release(priced, corpus, model, split.key, name, journal if drawn else None, earlier)
                    texts = _texts_of_labels(generated, of_texts)
                    folder.write_texts(name, texts)
                    journal.discard()
            made[name] = texts
    return made, of_texts


def _texts_of_labels(generated: Sequence[GeneratedText], labels: Sequence[str | None]) -> list[str]:
    """Return the first texts of each label in the order of `labels`; fewer where a label has fewer."""
    left: dict[str | None, list[str]] = {label: [] for label in labels}
    for text in generated:
        left.setdefault(text.label, []).append(text.text)
    return [left[label].pop(0) for label in labels if left[label]]


def _interrupted_draws(journal: Journal, key: bytes) -> ResumeState:
    """Return the draws of an interrupted rehearsal; a damaged journal is discarded, as its texts are public."""
    journal.assign(code_digest(), 1, key)
    try:
        contents = journal.open()
    except JournalUnfit:
        journal.discard()
        return ResumeState()
    if contents is None:
        return ResumeState()
    journal.go_on()
    return ResumeState(contents.released, contents.tokens, contents.kept, contents.armed)


def _labels(quoted: Quote) -> list[str | None]:
    """Return the labels of the texts of each release."""
    settings, texts = quoted.parameters, quoted.plan.samples
    if not isinstance(settings, PartParameters):
        return [None] * texts
    return layout_of(settings, texts, len(quoted.plan.blocks)).labels_of_texts(settings.names)


def _record(workspace: Workspace, number: int | None, result: RehearsalResult) -> None:
    stored = encode_canonical(result.model_dump(mode="json")).decode()
    with workspace.database.write() as session:
        requests.record_rehearsal(session, workspace.actor, result.twin.name, number, result.configuration, stored)


def _stored_texts(folder: RehearsalFolder) -> dict[str, list[str]]:
    texts = {name: folder.read_texts(name) for name in RELEASES}
    return {name: stored for name, stored in texts.items() if stored is not None}
