"""For every guard of looks and erasures: what it denies, and the nearest things it lets pass."""

from sqlalchemy import Executable

from tests.contracts.decision_cases import LONG_AGO
from tests.contracts.initial_cases import Case
from tests.contracts.rows import (
    block,
    dataset,
    erased_version,
    erasure,
    erasure_end,
    evaluation,
    internal_view,
    proposal,
    role_grant,
    schedule_change,
    version,
)
from tests.contracts.town import Town


def old_steward(town: Town) -> Executable:
    """The steward has been one for long."""
    return role_grant(town, "steward", "steward", valid_from=LONG_AGO)


def of_one_version(town: Town, erased: int) -> list[Executable]:
    """An erasure of the newest version, and a version that it is said to concern."""
    number = town.id_of("erasure", "TRUE") + 1
    return [
        erasure(town, id=number, scope="version", unit_mark=None, version_id=town.kept),
        erased_version(town, erasure_id=number, version_id=erased, manifest_mark=None),
    ]


VIEWS: dict[str, Case] = {
    "internal_view_decided": Case(
        denied=[
            lambda t: internal_view(t, t.looked, "grown"),
            lambda t: internal_view(t, t.open_data, "library"),
        ],
        allowed=[lambda t: internal_view(t, t.looked, "seen"), lambda t: internal_view(t, t.spurned, "seen")],
    ),
    "internal_view_between_releases": Case(
        denied=[lambda t: internal_view(t, t.published, "clinic"), lambda t: internal_view(t, t.discarded, "clinic")],
        allowed=[lambda t: internal_view(t, t.looked, "seen")],
    ),
    "evaluation_viewed": Case(
        denied=[
            lambda t: evaluation(t, t.unseen, "internal"),
            lambda t: evaluation(t, t.discarded, "internal"),
            lambda t: evaluation(t, t.looked, "internal"),  # others have looked
            lambda t: evaluation(t, t.unseen, "internal", created_by=t.second_steward),  # at another one
            lambda t: evaluation(t, t.produced, "internal"),  # before the decision
            lambda t: evaluation(t, t.cleared, "internal"),
        ],
        allowed=[
            lambda t: [internal_view(t, t.spurned, "seen"), evaluation(t, t.spurned, "internal")],
            lambda t: [internal_view(t, t.unseen, "seen"), evaluation(t, t.unseen, "internal")],
            lambda t: evaluation(t, t.looked, "internal", created_by=t.second_steward),
            lambda t: evaluation(t, t.open_data, "internal"),
        ],
    ),
}


def of_dataset(town: Town, name: str) -> dict[str, object]:
    """The number of a dataset, as the column of a row."""
    return {"dataset_id": town.id_of("dataset", f"name = '{name}'")}


def again(town: Town, name: str = "vacant", registration: int = 2) -> Executable:
    """A further registration of a dataset."""
    return dataset(town, "clinic", name=name, registration=registration)


def replaced(town: Town) -> dict[str, object]:
    """The number of a dataset that was registered again, as the column of a row."""
    return {"dataset_id": town.id_of("dataset", "name = 'corrected' AND registration = 1")}


REGISTRATIONS: dict[str, Case] = {
    "dataset_final": Case(
        denied=[
            lambda t: again(t, "grown"),
            lambda t: again(t, "emptied"),
            lambda t: [version(t, "vacant"), again(t)],
            lambda t: [version(t, "corrected"), again(t, "corrected", 3)],
            lambda t: [proposal(t, **of_dataset(t, "vacant")), again(t)],
            lambda t: [erasure(t, **of_dataset(t, "vacant")), again(t)],
        ],
        allowed=[again, lambda t: again(t, "corrected", 3)],
    ),
    "dataset_in_turn": Case(
        denied=[
            lambda t: dataset(t, "clinic", registration=0),
            lambda t: dataset(t, "clinic", registration=2),
            lambda t: again(t, registration=3),
        ],
        allowed=[lambda t: dataset(t, "clinic"), again],
    ),
    "dataset_version_in_turn": Case(
        denied=[lambda t: version(t, "vacant", number=2), lambda t: version(t, "clinic", number=9)],
        allowed=[lambda t: version(t, "vacant"), lambda t: version(t, "clinic")],
    ),
    "schedule_change_in_turn": Case(
        denied=[
            lambda t: schedule_change(t, number=2),
            lambda t: schedule_change(t, schedule_id=t.paused, number=3, kind="ended"),
        ],
        allowed=[schedule_change, lambda t: schedule_change(t, schedule_id=t.paused, number=2, kind="ended")],
    ),
    "dataset_with_blocks": Case(
        denied=[
            lambda t: dataset(t, "clinic", account_id=t.one("SELECT id FROM account WHERE rho_cap = 77")),
            lambda t: dataset(t, "clinic", account_id=t.account("clinic")),
        ],
        allowed=[
            lambda t: dataset(t, "clinic"),
            lambda t: dataset(t, "grown"),
            lambda t: [block(t), dataset(t, "clinic", account_id=t.one("SELECT id FROM account WHERE rho_cap = 77"))],
        ],
    ),
    "dataset_version_of_replaced": Case(
        denied=[lambda t: version(t, "vacant", **replaced(t)), lambda t: [again(t), version(t, "vacant")]],
        allowed=[lambda t: version(t, "vacant"), lambda t: version(t, "corrected")],
    ),
    "proposal_of_replaced": Case(
        denied=[lambda t: proposal(t, **replaced(t))],
        allowed=[lambda t: proposal(t, **of_dataset(t, "corrected"))],
    ),
}

ERASURES: dict[str, Case] = {
    "erased_version_of_erasure": Case(
        denied=[
            lambda t: erased_version(t, manifest_mark=None),
            lambda t: erased_version(t, version_id=1),
            lambda t: erased_version(t, erasure_id=1, manifest_mark=None),
            lambda t: [erasure_end(t), erased_version(t)],
            lambda t: of_one_version(t, t.id_of("dataset_version", f"id < {t.kept}")),
        ],
        allowed=[erased_version, lambda t: of_one_version(t, t.kept)],
    ),
}
