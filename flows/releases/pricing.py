"""Price of a request here and now: public facts of the dataset, the installed model, today's code."""

from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from flows.audit.lifetime_claims import lifetime_of
from flows.governance.exposure import orders_budget
from flows.workspace.endpoints import endpoints_of
from flows.workspace.workspace import Workspace
from models_db.services import budget, cohorts, datasets, requests
from models_db.services.audit.log import request_body
from models_db.tables import Dataset, DatasetVersion, Request
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical
from models_db.values.request_state import RequestState
from models_db.values.requests import PublicMetadata, ReleaseRequest
from tasks.accounting.lifetime_claims import BudgetFacts
from tasks.common.extensions import code_digest
from tasks.common.network import is_external
from tasks.planning.batches import Reading
from tasks.pricing.model_facts import ModelFacts, model_facts
from tasks.pricing.quote import DatasetFacts, Quote, quote

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
