"""Attacks on a public twin: the same configuration on a public corpus whose members are known (PRIVACY §7).

A steward may see the results before deciding. The request is made again from a copy of the public corpus, with
canaries; beside it stand the results of the attacks without protection: the non-private reference made from the same
copy, and the copy itself. An attack that finds nothing there cannot win, and its failure against the request says
nothing.

Nothing of governed data is read, nothing is charged, and every result is public.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from flows.attacks.result_store import FORMAT, AttackFolder, configuration_of
from flows.releases.propose import dataset_facts, find_model
from flows.workspace.workspace import Workspace, open_workspace
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.home import ProjectHome
from models_db.services import datasets, requests
from models_db.services.audit.stored_text import request_body
from models_db.services.people import require_role
from models_db.tables import TwinAttack
from models_db.values.canonical_json import digest, encode_canonical
from models_db.values.requests import ReleaseRequest, parse_model
from models_db.writes.insert import insert_row
from tasks.attack import attack_release, copied, everything_there_is, release, tools_at_hand, units_of
from tasks.attacks.canaries import CANARIES, COPIES
from tasks.attacks.public_twin import TwinSplit, split_twin
from tasks.common.extensions import code_digest
from tasks.common.network import is_external
from tasks.corpus.store import open_corpus
from tasks.inference.catalogue.model_check import Precision
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.planning.layout import labels_of
from tasks.planning.shared_parameters import precision_of
from tasks.pricing.quote import DatasetFacts, Quote, quote, written_request
from tasks.values.results import ReleaseKind

REQUEST, NON_PRIVATE, COPY = "request", "non_private", "copy"
"""The attacked releases: the request's configuration, the reference without protection, and the corpus itself."""

ModelLoader: TypeAlias = Callable[[Precision], LanguageModel]
"""Loads the request's model in a precision."""

IGNORED_FIELDS = ("evaluation", "evaluation_embedder", "public_metadata", "cohorts", "epsilon_while_secret")
"""Fields of a request that an attack ignores.

Public data has no claim while an assignment is secret."""


@dataclass(frozen=True)
class TwinAttackRequest:
    """Attacks to run on a public twin, and their settings.

    Attributes:
        request: a request's number, or the content of a request file.
        twin: the public dataset; by default the request's own.
        members: the number of member units, at most half of all; by default as many as the request's batches hold.
        canaries, copies: the number of planted secrets, and the number of repetitions of each.
        restart: whether to discard the partial results of an earlier attack.
    """

    request: int | Mapping[str, object]
    twin: str | None = None
    members: int | None = None
    canaries: int = CANARIES
    copies: int = COPIES
    restart: bool = False


def attack_on_twin(home: Path, attack: TwinAttackRequest, device: str = "auto") -> dict[str, Any]:
    """Generate the releases, attack each, and store the results; an interrupted attack continues where it stopped.

    Returns:
        The result as stored (`flows.attacks.result_store`), with `finished` true.

    Raises:
        RoleRequired: only a runner attacks.
        SummariesNotAttacked: the request is for summaries.
        ExternalModelNotAttacked: the request names an external model.
        TwinNotPublic: the dataset is not marked public.
        TwinTooSmall, CanariesInvalid: the twin cannot be split into members and non-members with these settings.
        AttackUnwritable: the home cannot store the results.
        AttackUnreadable: a stored result is damaged.
        The errors of pricing and generation also pass through.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    request = _twin_request(workspace, attack)
    if ReleaseKind(request.kind) is ReleaseKind.SUMMARIES:
        raise Refused(
            "Summaries cannot be attacked on a twin in this version: members are drawn from a corpus and canaries"
            " planted in it without regard to groups, so no summary would read most of them.",
            "Tests audit the mechanisms of summaries; see docs/attacks.md.",
            code="SummariesNotAttacked",
        )
    if is_external(request.model):
        raise Refused(
            f"{request.model!r} is behind an API; in this version requests with such a model are not attacked.",
            "Attack the same request with a model of this machine: the protection is in the values that it receives.",
            {"model": request.model},
            code="ExternalModelNotAttacked",
        )
    with workspace.database.read() as session:
        require_role(session, workspace.actor, "runner")  # the ledger records the attack when it is done
    facts = _public_facts(workspace, request.dataset)
    priced = _quote_request(workspace, request, facts)
    folder = AttackFolder.for_configuration(workspace.home, configuration_of(priced.body), facts.version_uid)
    _clear_outdated(folder, attack)
    stage = _twin_split(workspace, folder, priced, attack)
    result = _result_head(attack, priced, stage)
    # One model, loaded once, serves all releases; it is replaced only if the request's model has another precision.
    model_in: ModelLoader = lru_cache(maxsize=1)(partial(load, priced.request.model, device))
    releases = _make_releases(workspace, folder, priced, stage, model_in)
    tools = tools_at_hand(model_in("float32"))
    for what, texts in releases.items():
        attack_results = attack_release(stage, texts, what, tools)
        result["runs"].append(
            {"name": what, "texts": len(texts), "results": [each.to_json() for each in attack_results]}
        )
        folder.write_result(result)
    result["finished"] = True
    folder.write_result(result)
    _record_attack(workspace, result)
    return result


def _twin_request(workspace: Workspace, attack: TwinAttackRequest) -> ReleaseRequest:
    """Return the attacked configuration as a request on the twin."""
    if isinstance(attack.request, int):
        with workspace.database.read() as session:
            request = written_request(request_body(requests.find_request(session, attack.request)))
    else:
        written = {name: value for name, value in attack.request.items() if name not in IGNORED_FIELDS}
        on_twin = {"dataset": attack.twin} if attack.twin else {}
        request = parse_model(ReleaseRequest, written | on_twin, "The request")
    without = {name: ReleaseRequest.model_fields[name].default for name in IGNORED_FIELDS}
    return request.model_copy(update={**without, "dataset": attack.twin or request.dataset})


def _public_facts(workspace: Workspace, name: str) -> DatasetFacts:
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, name)
        if dataset.governed:
            raise Refused(
                f"The dataset {name!r} is governed: an attack on it would reveal who is in it, and a publish decision"
                " based on that is not differentially private.",
                "Attack the same request on a public corpus of the same kind: `almoner dataset register NAME --public"
                " ...`, ingest it, and name it with --on NAME. After the publish decision, `almoner evaluate ID"
                " --internal` compares the release with its own corpus.",
                {"dataset": name},
                code="TwinNotPublic",
            )
        return dataset_facts(session, dataset, datasets.newest_version(session, dataset))


def _quote_request(workspace: Workspace, request: ReleaseRequest, facts: DatasetFacts) -> Quote:
    return quote(request, facts, find_model(workspace, request.model), workspace.policy_digest, code_digest())


def _clear_outdated(folder: AttackFolder, attack: TwinAttackRequest) -> None:
    """Remove stored results of other code, which say nothing about this code, and a split with other settings."""
    if attack.restart:
        folder.clear()
    stage, result = folder.read_split(), folder.read_result()
    other = stage is not None and (
        len(stage.canaries.planted) != attack.canaries
        or {canary.copies for canary in stage.canaries.planted} != {attack.copies}
        or attack.members not in (None, len(stage.members))
    )
    if other or (result is not None and result.get("code") != code_digest()):
        folder.clear()


def _twin_split(workspace: Workspace, folder: AttackFolder, priced: Quote, attack: TwinAttackRequest) -> TwinSplit:
    if (split := folder.read_split()) is not None:
        return split
    corpus = open_corpus(workspace.home, priced.dataset.version_uid)
    units = units_of(corpus, labels_of(priced.parameters))
    held = priced.plan.samples * int(getattr(priced.parameters, "references", 1))
    stage = split_twin(
        units,
        OS_RANDOM,
        members=attack.members or held,
        canaries=attack.canaries,
        copies=attack.copies,
    )
    folder.write_split(stage)
    return stage


def _make_releases(
    workspace: Workspace, folder: AttackFolder, priced: Quote, stage: TwinSplit, model_in: ModelLoader
) -> dict[str, list[str]]:
    """Return every release by its name; finished releases are read, not generated again."""
    labels = labels_of(priced.parameters)
    size = len(stage.members) + len(stage.canaries.planted)
    facts = replace(priced.dataset, population=size if priced.dataset.population else None)
    quotes = {REQUEST: _quote_request(workspace, priced.request, facts)}
    if priced.system.name != NON_PRIVATE:
        # One text for each unit and label: the reference reads one document for each text, and must read all documents.
        whole = {"samples": size * max(1, len(labels))}
        parameters = {**priced.request.parameters, **whole}
        unprotected = priced.request.model_copy(
            update={"mechanism": NON_PRIVATE, "epsilon": None, "delta": None, "parameters": parameters}
        )
        quotes[NON_PRIVATE] = _quote_request(workspace, unprotected, facts)
    texts_by_release: dict[str, list[str]] = {}
    with copied(workspace.home, stage.corpus(labels), labels) as corpus:
        for what, quoted in quotes.items():
            texts = folder.read_texts(what)
            if texts is None:
                made = release(quoted, corpus, model_in(precision_of(quoted.parameters)), stage.key, what)
                texts = [text.text for text in made]
                folder.write_texts(what, texts)
            texts_by_release[what] = texts
    return {**texts_by_release, COPY: everything_there_is(stage)}


def _result_head(attack: TwinAttackRequest, priced: Quote, stage: TwinSplit) -> dict[str, Any]:
    configuration = configuration_of(priced.body)
    return {
        "format": FORMAT,
        "configuration": configuration,
        "configuration_digest": digest(configuration),
        "request": attack.request if isinstance(attack.request, int) else None,
        "code": priced.body["code"],
        "twin": priced.body["dataset"],
        "members": len(stage.members),
        "nonmembers": len(stage.nonmembers),
        "canaries": len(stage.canaries.planted),
        "copies": attack.copies,
        "finished": False,
        "runs": [],
    }


def _record_attack(workspace: Workspace, result: Mapping[str, Any]) -> None:
    """Record the attack and the digest of its result in the audit log."""
    with workspace.database.write() as session:
        attack = TwinAttack(
            dataset=result["twin"]["name"],
            request_id=result["request"],
            configuration=result["configuration_digest"],
            result=sha256(encode_canonical(dict(result))).hexdigest(),
            attacks=", ".join(each["name"] for each in result["runs"][0]["results"]),
            at=utc_now(),
            actor_id=workspace.actor.id,
        )
        insert_row(session, attack)
