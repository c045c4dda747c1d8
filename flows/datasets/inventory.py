"""List of datasets with their claims and budgets: a few statements for hundreds of datasets at once."""

from collections.abc import Collection, Iterator, Sequence

from sqlalchemy.orm import Session

from models_db.services.queries import lists
from models_db.tables import Dataset
from models_db.values.requests import MetadataAltered, PublicMetadata, model_to_json
from tasks.accounting.lifetime_claims import BudgetFacts

DATASETS_PER_QUERY = 500


def list_datasets(session: Session) -> Iterator[dict[str, object]]:
    """Yield all datasets by name, as `describe_datasets` returns them; memory holds AT_ONCE of them, without blocks."""
    after: str | None = None
    while page := lists.dataset_page(session, DATASETS_PER_QUERY, after):
        yield from describe_datasets(session, page)
        after = page[-1].name
        session.expunge_all()


def describe_datasets(session: Session, datasets: Sequence[Dataset]) -> list[dict[str, object]]:
    """Return each dataset with its claim in force and its remaining budget, in the same order."""
    accounts, ids = {dataset.account_id for dataset in datasets}, [dataset.id for dataset in datasets]
    budgets, cohorts = load_budgets(session, accounts), lists.cohort_counts(session, accounts)
    blocks, versions = lists.block_counts(session, accounts), lists.version_counts(session, ids)
    descriptions: list[dict[str, object]] = []
    for dataset in datasets:
        budget = budgets[dataset.account_id]
        descriptions.append(
            {
                "name": dataset.name,
                "unit": dataset.unit_field or "record",
                "relation": dataset.relation,
                "governed": dataset.governed,
                "epsilon_cap": budget.claim.epsilon,
                "delta_cap": budget.claim.delta,
                "rho_cap": budget.cap.rho_text,
                "epsilon_spent": budget.epsilon_spent,
                "rho_left": budget.balance.remaining.rho_text,
                "blocks": blocks[dataset.account_id],
                "cohorts": cohorts.get(dataset.account_id, 1),
                "population": dataset.population,
                "public_metadata": _declared(dataset),
                "versions": versions.get(dataset.id, 0),
                "account": dataset.account_id,
            }
        )
    return descriptions


def _declared(dataset: Dataset) -> object:
    """Return the public metadata; a client of a steward's own can have stored any text, which hides no dataset."""
    try:
        return model_to_json(PublicMetadata.stored(dataset.public_metadata))
    except MetadataAltered as problem:
        return {"problem": problem.message}


def load_budgets(session: Session, accounts: Collection[int]) -> dict[int, BudgetFacts]:
    """Load the budgets of root accounts, each over all its blocks."""
    claims, balances = lists.lifetime_claims(session, accounts), lists.account_balances(session, accounts)
    return {account: BudgetFacts(claims[account], balances[account]) for account in accounts}
