"""Submission of a request file as a priced request. Reads no private text and spends nothing."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from flows.governance.policy import (
    hides_balances,
    redact_refusals,
    require_in_force,
    require_policy,
    version_for_request,
)
from flows.releases.extend import load_values
from flows.releases.pricing import price_request, repetitions
from flows.workspace.prefect_flow import private_flow
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.services import datasets, exposures, proposals, requests
from models_db.tables import Request
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.values.exposures import ViewingRecord
from models_db.values.requests import ReleaseRequest, parse_model
from tasks.corpus.store import open_corpus
from tasks.corpus.units import FIELD_SEPARATOR
from tasks.corpus.versions import VersionMissing
from tasks.planning.labels_and_groups import names_of
from tasks.planning.shared_parameters import extended_of
from tasks.pricing.quote import Quote
from tasks.pricing.request_warnings import setting_warnings
from tasks.release.claim import release_weaknesses, require_accepted, undeclared_population


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
