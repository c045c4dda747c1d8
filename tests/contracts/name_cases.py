"""For every guard of names: what it denies, and the nearest things it lets pass."""

from sqlalchemy import Executable

from models_db.database.base import utc_now
from tests.contracts.initial_cases import Case, Make
from tests.contracts.rows import dataset, insert
from tests.contracts.town import Town

ALIKE = ("CLINIC", "Clinic", "сlinic", "cliniс", "ｃlinic", "clínic", "cafe\u0301", "clinic\u200b", "cli\u00adnic")
PATHS = (".", "..", "../evil", "/etc/x", ".hidden", "a/b", "a\\b", "-rf", "--help", "_a")
OTHERS = ("", " a", "a ", "a b", "a\n", "a\x1b[2J", "a\u202eb", "a:b", "a*", "[a]", "a^", "x" * 101)
NOT_PLAIN = ALIKE + PATHS + OTHERS
"""What no dataset is called."""
PLAIN = ("a", "7", "clinic-2027", "a_b.c-d", "a..b", "x" * 100)

UNFIT = (
    "", " anna", "anna ", "\tanna", "an\x01na", "an\nna", "an\x1b[2Jna", "anna\x7f", "an\x85na", "an\u00a0na",
    "an\u00adna", "an\u061cna", "an\u1680na", "anna\u200b", "an\u200fna", "an\u2028na", "an\u202ena", "an\u202fna",
    "an\u2060na", "an\u2066na", "\u3000anna", "\ufeffanna", "an\U000e0041na", "x" * 101,
    "an\u034fna", "anna\u115f", "an\u180fna", "anna\u2800", "anna\u3164", "an\ufe0fna", "anna\uffa0", "an\U000e0100na",
)  # fmt: skip
"""What nobody is called."""
FIT = ("Anna Müller-O'Neil", "診療所 アンナ", "анна", "a-b [c] ^d", "naïve\u2019s", "x" * 100)


def person(town: Town, name: str) -> Executable:
    row = {"name": name, "public_key": "k" * 64, "created_at": utc_now(), "login": "almoner_test_named"}
    return insert("principal", **row | ({"login": None} if town.world.database.is_sqlite else {}))


def ended(town: Town, name: str, unfit: str) -> str:
    """`name`, which a NUL ends for whoever reads it in C; PostgreSQL has no NUL in a text, and `unfit` stands in."""
    return f"{name}\0{unfit}" if town.world.database.is_sqlite else unfit


def dataset_called(name: str) -> Make:
    return lambda town: dataset(town, "clinic", name=name)


def called(name: str) -> Make:
    return lambda town: person(town, name)


NAMES: dict[str, Case] = {
    "ck_dataset_name_form": Case(
        denied=[*map(dataset_called, NOT_PLAIN), lambda t: dataset(t, "clinic", name=ended(t, "a", "B"))],
        allowed=[dataset_called(name) for name in PLAIN],
    ),
    "ck_principal_name_form": Case(
        denied=[*map(called, UNFIT), lambda t: person(t, ended(t, "a", "\x01"))],
        allowed=[called(name) for name in FIT],
    ),
}


def other_person(town: Town, name: str) -> Executable:
    return person(town, name).values(public_key="l" * 64, login=None)  # type: ignore[attr-defined,no-any-return]
