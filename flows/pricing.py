"""What a request would cost here and now: public facts of the dataset, the installed model, today's code."""

from sqlalchemy.orm import Session

from flows.endpoints import endpoints_of
from flows.workspace import Workspace, code_digest
from models_db.budgets import Amount
from models_db.requests import PublicMetadata, ReleaseRequest
from models_db.services import datasets, envelopes, ledger, turns
from models_db.tables import Account, Dataset, DatasetVersion
from tasks.generation.quote import DatasetFacts, Envelope, ModelFacts, Quote, model_facts, quote
from tasks.generation.rotation import Rotation, next_turn
from tasks.inference.backends.endpoints import is_external


def price(workspace: Workspace, request: ReleaseRequest) -> Quote:
    """What the request would charge, and what would stay.

    Raises:
        ScopeUnknown: it names an envelope that is not open.
        EndpointUnknown, ExternalModelRefused: it names an external model that is not known, or not for its mechanism.
    """
    with workspace.database.read() as session:
        dataset = datasets.find(session, request.dataset)
        scope = envelopes.find_scope(session, dataset, request.scope) if request.scope is not None else None
        turn = _turn(session, dataset, request.rotate_over)
        facts = dataset_facts(session, dataset, datasets.newest_version(session, dataset), scope, turn)
    return quote(request, facts, model_named(workspace, request.model), workspace.policy_digest, code_digest())


def _turn(session: Session, dataset: Dataset, groups: int | None) -> Rotation | None:
    """The turn that a request takes which rotates: the blocks with most left now."""
    return None if groups is None else next_turn(groups, turns.left_by_block(session, dataset.account_id))


def model_named(workspace: Workspace, name: str) -> ModelFacts:
    """The model that a request names: one of this machine, or an endpoint of this home.

    Raises:
        UnknownModel, NoRevision, ModelNotPulled, EndpointUnknown.
        FileUnreadable, FileInvalid: the home's endpoints cannot be read.
    """
    return model_facts(name, endpoints_of(workspace.home) if is_external(name) else None)


def dataset_facts(
    session: Session,
    dataset: Dataset,
    version: DatasetVersion,
    scope: Account | None = None,
    turn: Rotation | None = None,
) -> DatasetFacts:
    """The public facts of a dataset and its budget, and of an envelope of it, as they are now.

    Args:
        turn: of a request that rotates; the budget is then that of the blocks it reads.
    """
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
        balance=ledger.balance(session, dataset.account_id, turn.blocks if turn else None),
        envelope=None if scope is None else envelope_of(scope),
        public=PublicMetadata.stored(dataset.public_metadata),
        turn=turn,
    )


def envelope_of(scope: Account) -> Envelope:
    """An envelope's account as a quote knows it."""
    cap, spent = Amount(scope.rho_cap, scope.delta_cap), Amount(scope.rho_spent, scope.delta_spent)
    return Envelope(str(scope.name), cap, spent, envelopes.room(scope))
