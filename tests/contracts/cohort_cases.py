"""For every guard of cohorts: what it denies, and the nearest things it lets pass."""

from sqlalchemy import Executable

from tests.contracts.initial_cases import INITIAL, Case
from tests.contracts.rows import block, cohort, dataset, insert, unit_mark, version
from tests.contracts.town import Town


def of_a_bare_account(town: Town, versions: int) -> list[Executable]:
    """A cohort on an account whose first one has no blocks, with so many versions of its data."""
    root = town.one("SELECT id FROM account WHERE rho_cap = 77")
    number, first = town.id_of("dataset", "TRUE") + 1, town.id_of("dataset_version", "TRUE") + 1
    made = dataset(town, "clinic", id=number, account_id=root)
    rows = [
        version(town, "clinic", dataset_id=number, number=each + 1, id=first + each, uid=f"{0xBA + each:032x}")
        for each in range(versions)
    ]
    return [made, *rows, insert("cohort", **cohort_row(town, account_id=root, version_id=first + versions - 1))]


def cohort_row(town: Town, **given: object) -> dict[str, object]:
    row = {"number": 2, "population": None, "created_at": town.now, "created_by": town.world.steward.id}
    return row | given


def beside(town: Town, unit_field: str | None) -> list[Executable]:
    """A cohort on the account of the harbour, once it is shared with a dataset that names its units so."""
    return [dataset(town, "harbour", unit_field=unit_field), *cohort(town, "harbour", number=2)]


COHORTS: dict[str, Case] = {
    "dataset_like_its_account": Case(
        denied=[
            *INITIAL["dataset_like_its_account"].denied,
            lambda t: [*cohort(t, "harbour", number=2), dataset(t, "harbour", unit_field="other_id")],
            lambda t: [*cohort(t, "harbour", number=2), dataset(t, "harbour", unit_field=None)],
        ],
        allowed=[
            *INITIAL["dataset_like_its_account"].allowed,
            lambda t: [*cohort(t, "harbour", number=2), dataset(t, "harbour")],
        ],
    ),
    "account_block_of_root": Case(
        denied=[
            *INITIAL["account_block_of_root"].denied,
            lambda t: block(t, parent_id=t.account("grown", None), block=4, rho_cap=1000, delta_cap=100),
            lambda t: block(t, parent_id=t.account("clinic", None), block=2, rho_cap=1000, delta_cap=100),
        ],
        allowed=INITIAL["account_block_of_root"].allowed,
    ),
    "unit_mark_keeps_cohort": Case(
        denied=[
            lambda t: unit_mark(t, "grown", b"new"),
            lambda t: unit_mark(t, "grown", b"new", cohort=3),
            lambda t: unit_mark(t, "clinic", b"new", cohort=2),
            lambda t: unit_mark(t, "grown", b"grown-unit", cohort=2),
            lambda t: unit_mark(t, "grown", b"later-unit", cohort=1),
        ],
        allowed=[lambda t: unit_mark(t, "grown", b"new", cohort=2), lambda t: unit_mark(t, "clinic", b"new")],
    ),
    "cohort_of_named_units": Case(
        denied=[
            lambda t: cohort(t, "library", number=2),
            lambda t: cohort(t, "harbour", account_id=t.account("grown", None)),
            lambda t: beside(t, None),
            lambda t: beside(t, "other_id"),
        ],
        allowed=[lambda t: cohort(t, "harbour", number=2), lambda t: beside(t, "patient_id")],
    ),
}  # fmt: skip
