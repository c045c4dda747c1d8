"""Delegation of a steward's decisions to another person, signed, and its end."""

from flows.workspace.workspace import Workspace
from models_db.services.catalogue import datasets, principals
from models_db.services.catalogue.principals import Mandate


def delegate(workspace: Workspace, mandate: Mandate) -> int:
    """Sign and record a delegation of this home's owner; return its number.

    Raises:
        PrincipalNotFound, DatasetUnknown: there is no such principal or dataset.
        SelfDelegation: the owner cannot delegate to themselves.
        RoleDenied: the owner does not hold the role of steward themselves.
    """
    signature = workspace.key.sign(mandate.statement(workspace.actor.name))
    with workspace.database.write() as session:
        dataset = datasets.find_dataset(session, mandate.dataset)
        return principals.delegate(session, workspace.actor, dataset.id, mandate, signature).id


def end_delegation(workspace: Workspace, number: int) -> None:
    """Record the end of a delegation.

    Raises:
        DelegationUnknown: there is none, or it has ended.
        RuleViolated: it belongs to another principal.
    """
    with workspace.database.write() as session:
        principals.end_delegation(session, workspace.actor, number)
