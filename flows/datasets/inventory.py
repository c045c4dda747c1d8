"""Datasets with their claims and budgets, as lists and pages of one show them: some statements for hundreds at once."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

from sqlalchemy.orm import Session

from models_db.services.queries import lists
from models_db.tables import Dataset
from models_db.values.requests import PublicMetadata, model_to_json
from tasks.accounting.lifetime_claims import lifetime_epsilon

DATASETS_PER_QUERY = 500

_epsilon = lru_cache(maxsize=4096)(lifetime_epsilon)  # it searches, and most datasets of a list have spent the same


def list_datasets(session: Session) -> Iterator[dict[str, object]]:
    """All datasets by name; see `describe_datasets`. Memory holds AT_ONCE of them and their claims, no blocks."""
    after: str | None = None
    while found := lists.dataset_page(session, DATASETS_PER_QUERY, after):
        yield from describe_datasets(session, found)
        after = found[-1].name
        session.expunge_all()


def describe_datasets(session: Session, datasets: Sequence[Dataset]) -> list[dict[str, object]]:
    """Each dataset with its claim in force and what is left, in the same order."""
    accounts, ids = {dataset.account_id for dataset in datasets}, [dataset.id for dataset in datasets]
    claims, balances = lists.lifetime_claims(session, accounts), lists.account_balances(session, accounts)
    cohorts = lists.cohort_counts(session, accounts)
    blocks, versions = lists.block_counts(session, accounts), lists.version_counts(session, ids)
    found: list[dict[str, object]] = []
    for dataset in datasets:
        claim, balance = claims[dataset.account_id], balances[dataset.account_id]
        found.append(
            {
                "name": dataset.name,
                "unit": dataset.unit_field or "record",
                "relation": dataset.relation,
                "governed": dataset.governed,
                "epsilon_cap": claim.epsilon,
                "delta_cap": claim.delta,
                "rho_cap": balance.cap.rho_text,
                "epsilon_spent": _epsilon(balance.spent, claim.delta_conversion),
                "rho_left": balance.remaining.rho_text,
                "blocks": blocks[dataset.account_id],
                "cohorts": cohorts.get(dataset.account_id, 1),
                "population": dataset.population,
                "public_metadata": model_to_json(PublicMetadata.stored(dataset.public_metadata)),
                "versions": versions.get(dataset.id, 0),
                "account": dataset.account_id,
            }
        )
    return found
