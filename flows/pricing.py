"""What a request would cost here and now: public facts of the dataset, the installed model, today's code."""

from sqlalchemy.orm import Session

from flows.workspace import Workspace, code_digest
from models_db.requests import ReleaseRequest
from models_db.services import datasets, ledger
from models_db.tables import Dataset, DatasetVersion
from tasks.generation.quote import DatasetFacts, Quote, model_facts, quote


def price(workspace: Workspace, request: ReleaseRequest) -> Quote:
    """What the request would charge, and what would stay."""
    with workspace.database.read() as session:
        dataset = datasets.find(session, request.dataset)
        facts = dataset_facts(session, dataset, datasets.newest_version(session, dataset))
    return quote(request, facts, model_facts(request.model), workspace.policy_digest, code_digest())


def dataset_facts(session: Session, dataset: Dataset, version: DatasetVersion) -> DatasetFacts:
    """The public facts of a dataset and its budget as they are now."""
    cap, scheme = datasets.lifetime(session, dataset), datasets.partition(session, dataset)
    return DatasetFacts(
        name=dataset.name,
        unit_field=dataset.unit_field,
        relation=dataset.relation,
        governed=dataset.governed,
        population=dataset.population,
        blocks=scheme.blocks,
        version=version.number,
        version_uid=version.uid,
        epsilon_cap=cap.epsilon,
        delta_cap=cap.delta,
        delta_conversion=cap.delta_conversion,
        balance=ledger.balance(session, dataset.account_id),
    )
