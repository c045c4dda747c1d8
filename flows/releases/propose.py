"""Price of a request here and now, and its submission. Reads no private text and spends nothing."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.audit.lifetime_claims import lifetime_of
from flows.governance.exposure import orders_budget
from flows.governance.policy import (
    hides_balances,
    redact_refusals,
    require_in_force,
    require_policy,
    version_for_request,
)
from flows.releases.extend import load_values
from flows.workspace.endpoints import endpoints_of
from flows.workspace.prefect_flow import private_flow
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.services import budget, cohorts, datasets, exposures, proposals, requests
from models_db.services.audit.stored_text import request_body
from models_db.tables import Dataset, DatasetVersion, Request
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.exposures import ViewingRecord
from models_db.values.request_state import RequestState
from models_db.values.requests import PublicMetadata, ReleaseRequest, parse_model
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.common.extensions import code_digest
from tasks.common.network import is_external
from tasks.corpus.store import open_corpus
from tasks.corpus.units import FIELD_SEPARATOR
from tasks.corpus.versions import VersionMissing
from tasks.planning.block_selection import Reading
from tasks.planning.layout import names_of
from tasks.planning.shared_parameters import extended_of
from tasks.pricing.model_facts import ModelFacts, model_facts
from tasks.pricing.quote import DatasetFacts, Quote, quote
from tasks.pricing.request_warnings import setting_warnings
from tasks.release.claim import release_weaknesses, require_accepted, undeclared_population

REQUESTS_COMPARED = 100
"""Earlier requests of a dataset that a new one is compared with."""
GIVEN_UP = (RequestState.REJECTED, RequestState.WITHDRAWN, RequestState.DISCARDED, RequestState.RETRACTED)


def price_request(workspace: Workspace, request: ReleaseRequest) -> Quote:
    """Return the charge of a request and the balance after it.

    Raises:
        CohortUnknown: it names a cohort that is not open.
        EndpointUnknown, ExternalModelRefused: it names an external model that is not known, or not for its mechanism.
    """
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, request.dataset)
        reading = _new_request_reading(session, dataset, request)
        facts = dataset_facts(session, dataset, datasets.newest_version(session, dataset), reading)
    return quote(request, facts, find_model(workspace, request.model), workspace.policy_digest, code_digest())


def _new_request_reading(session: Session, dataset: Dataset, request: ReleaseRequest) -> Reading:
    """Return the blocks that a new request reads: of all cohorts if it names none."""
    read = cohorts.resolve_cohorts(session, dataset, request.cohorts)
    several = cohorts.count_cohorts(session, dataset.account_id) > 1
    return Reading(cohorts.blocks_per_cohort(session, dataset.account_id), read, several)


def find_model(workspace: Workspace, name: str) -> ModelFacts:
    """Return the model that a request names: one of this machine, or an endpoint of this home.

    Raises:
        UnknownModel, NoRevision, ModelNotPulled, EndpointUnknown.
        FileUnreadable, FileInvalid: the home's endpoints cannot be read.
    """
    return model_facts(name, endpoints_of(workspace.home) if is_external(name) else None)


def dataset_facts(
    session: Session,
    dataset: Dataset,
    version: DatasetVersion,
    reading: Reading | None = None,
) -> DatasetFacts:
    """Return the public facts of a dataset and its budget, as they are now.

    Args:
        reading: what a request reads; the budget is then that of those blocks. None: of the first cohort, all.
    """
    blocks = cohorts.blocks_per_cohort(session, dataset.account_id)
    read = reading or Reading(blocks)
    return DatasetFacts(
        name=dataset.name,
        unit_field=dataset.unit_field,
        relation=dataset.relation,
        governed=dataset.governed,
        population=cohorts.population(session, dataset, read.cohorts),
        blocks=blocks,
        version=version.number,
        version_uid=version.uid,
        budget=BudgetFacts(lifetime_of(session, dataset), budget.balance(session, dataset.account_id, read.blocks)),
        public=PublicMetadata.stored(dataset.public_metadata),
        reading=read,
        left_by_cohort=_left_by_cohort(session, dataset, read),
        orders=orders_budget(session, dataset.account_id),
    )


def repetitions(
    session: Session, dataset_id: int, body: Mapping[str, Json], before: int | None = None
) -> Iterator[str]:
    """Yield a sentence for each earlier request of the same content that waits, runs or has been run.

    Args:
        before: the number of the request, if it has one: only earlier ones are compared.
    """
    earlier = select(Request).where(Request.dataset_id == dataset_id, Request.standing_id.is_(None))
    if before is not None:
        earlier = earlier.where(Request.id < before)
    content = _content(body)
    for other in session.scalars(earlier.order_by(Request.id.desc()).limit(REQUESTS_COMPARED)):
        if _content(request_body(other)) == content and (state := requests.state_of(session, other.id)) not in GIVEN_UP:
            yield f"Request {other.id} ({state}) asks for exactly this; each of the two is charged."


def _content(body: Mapping[str, Json]) -> bytes:
    """Return a request without the fields that change when the same file is submitted again."""
    return encode_canonical({name: value for name, value in body.items() if name not in ("nonce", "code")})


def _left_by_cohort(session: Session, dataset: Dataset, read: Reading) -> dict[int, Amount]:
    """Return the remaining budget of each cohort that a request reads, where it reads several of them."""
    if len(read.cohorts) == 1:
        return {}
    return {cohort: budget.balance(session, dataset.account_id, read.of(cohort)).remaining for cohort in read.cohorts}


@dataclass(frozen=True)
class PricedRequest:
    """A quote, and the number of the request it became (None in a dry run).

    Attributes:
        with_balance: whether the policy lets its author see what is left of the budget.
        viewing: since when unprotected figures of the account were seen and by whom, if they were.
        repetitions: a sentence for each earlier request of the same content.
    """

    quote: Quote
    with_balance: bool
    request_id: int | None = None
    digest: str | None = None
    viewing: ViewingRecord | None = None
    repetitions: tuple[str, ...] = ()

    @property
    def price(self) -> dict[str, Json]:
        """The price as programs read it, and no more of the budget than its author may know."""
        viewing = {"unprotected_figures": self.viewing.to_json()} if self.viewing else {}
        found = [*weaknesses_of(self.quote), *self._undeclared(), *setting_warnings(self.quote.body), *self.repetitions]
        if self.quote.memory_warning is not None:
            found.append(self.quote.memory_warning)
        warnings: dict[str, Json] = {"warnings": list[Json](found)} if found else {}
        return self.quote.to_json(with_balance=self.with_balance) | viewing | warnings

    def _undeclared(self) -> Iterator[str]:
        delta = self.quote.request.delta
        if delta is not None and self.quote.plan.loss != Amount() and self.quote.dataset.population is None:
            yield undeclared_population(str(delta))


def weaknesses_of(priced: Quote) -> tuple[str, ...]:
    """Return the warnings on the claim of a request; none if nothing is charged."""
    request = priced.request
    if request.epsilon is None or request.delta is None or priced.plan.loss == Amount():
        return ()
    return release_weaknesses(str(request.epsilon), str(request.delta), priced.dataset.population)


@private_flow("propose")
def propose_release(
    home: Path,
    written: dict[str, object],
    dry_run: bool = False,
    standing: int | None = None,
    accept_weak_promise: bool = True,
) -> PricedRequest:
    """Validate a request, price it and, unless it is a dry run, submit it.

    Args:
        standing: the standing authorisation it is made under; then no steward decides before it runs.
        accept_weak_promise: whether a large epsilon or delta may be submitted; stewards see its weakness in any case.

    Raises:
        UsageError: the request is not valid.
        PolicyDiffers: the policy of this home is not in force.
        PolicyForbids: the policy does not allow the request.
        WeakPromise: epsilon or delta is large, and that was not accepted.
        BudgetExceeded, BudgetRefused: the dataset cannot afford it.
        LabelsNotKept: it declares labels, and the dataset's version was ingested without.
        LabelFieldsDiffer: it declares labels of fields, and the version has labels of others.
        NotExtendable, ParentDiffers, ValuesMissing: it extends a release, and cannot.
        ProposalUnknown, AuthorisationExhausted, OwnAuthorisation: the standing authorisation does not cover it.
    """
    workspace = open_workspace(ProjectHome.locate(home))
    priced = price_for_home(workspace, parse_model(ReleaseRequest, written, "The request"), standing)
    shown = shown_price(workspace, priced, standing)
    if dry_run:
        return shown
    with redact_refusals(workspace):
        priced.require_affordable()
    require_accepted(weaknesses_of(priced), accepted=accept_weak_promise)
    number, digest = submit_request(workspace, priced, standing)
    return replace(shown, request_id=number, digest=digest)


def shown_price(workspace: Workspace, priced: Quote, standing: int | None = None) -> PricedRequest:
    """Return a price with what the ledger adds to it for its reader; under a standing authorisation one may repeat."""
    with workspace.database.read() as session:
        dataset = datasets.find_dataset(session, priced.dataset.name)
        repeated = () if standing is not None else tuple(repetitions(session, dataset.id, priced.body))
        return PricedRequest(
            priced,
            with_balance=not hides_balances(session, workspace.actor),
            viewing=exposures.find_viewing(session, dataset.account_id),
            repetitions=repeated,
        )


def withdraw_request(workspace: Workspace, number: int, reason: str) -> None:
    """Withdraw a request that has not been run.

    Raises:
        RequestUnknown: the ledger has no such request.
        WrongState, RuleViolated: it was run, or is somebody else's.
    """
    with workspace.database.write() as session:
        requests.withdraw(session, workspace.actor, number, reason)


def price_for_home(workspace: Workspace, request: ReleaseRequest, standing: int | None = None) -> Quote:
    """Return the price of a request that may be made from here, whether or not the budget affords it.

    Raises:
        As `propose_release`, but for the budget's refusals.
    """
    with workspace.database.read() as session:
        require_in_force(session, workspace)
    priced = price_request(workspace, request)
    require_policy(workspace.policy, priced.body)
    load_values(workspace, priced.body)
    _require_labels(workspace, priced)
    if standing is not None:
        with workspace.database.read() as session:
            proposals.find_authorisation(session, standing, dict(priced.body), workspace.actor)
    return priced


def _require_labels(workspace: Workspace, priced: Quote) -> None:
    """Refuse labels that a run would refuse, where the version is in this home; whether it has any is public."""
    if names_of(priced.parameters) and extended_of(priced.parameters) is None:
        with suppress(VersionMissing):
            corpus = open_corpus(workspace.home, priced.dataset.version_uid)
            corpus.require_labels()
            named = priced.request.parameters.get("labels")
            if isinstance(named, Mapping) and tuple(named) != (fields := corpus.label_fields()):
                raise _label_fields_differ(tuple(named), fields)


def submit_request(workspace: Workspace, priced: Quote, standing: int | None = None) -> tuple[int, str]:
    """Record the request; returns its number and digest.

    It waits for the spend gate, or may run at once if a standing authorisation covers it.
    """
    with workspace.database.write() as session:
        request = record_request(session, workspace, priced, standing)
        return request.id, request.digest


def record_request(session: Session, workspace: Workspace, priced: Quote, standing: int | None = None) -> Request:
    """Return the request as a row, in the caller's transaction; see `submit_request`."""
    body = dict(priced.body)
    dataset = datasets.find_dataset(session, priced.dataset.name)
    proposal = None if standing is None else proposals.find_authorisation(session, standing, body, workspace.actor)
    return requests.submit(
        session,
        workspace.actor,
        dataset,
        datasets.newest_version(session, dataset),
        version_for_request(session, workspace),
        {**body, "nonce": secrets.token_hex(16)},
        timedelta(days=workspace.policy.request_days),
        standing=proposal,
    )


def _label_fields_differ(named: Sequence[str], kept: Sequence[str]) -> UsageError:
    return UsageError(
        f"`parameters.labels` names the fields {FIELD_SEPARATOR.join(named)}, and the version of the dataset has"
        f" labels of {FIELD_SEPARATOR.join(kept)}.",
        "Name the same fields in the same order, or ingest it again with a --label-field for each of these.",
        {"named": list(named), "kept": list(kept)},
        code="LabelFieldsDiffer",
    )
