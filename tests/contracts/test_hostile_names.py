"""Names that could be taken for others, or for paths, are refused where a service brings them, and nothing changes."""

import unicodedata

import pytest

from migrations.schema.forms import UNSEEN
from models_db.database.base import utc_now
from models_db.services import datasets, people
from models_db.services.datasets import Registration
from models_db.tables import Principal
from models_db.values.untrusted_text import is_unseen, require_plain_name
from models_db.writes.database_errors import RuleViolated
from models_db.writes.insert import insert_row
from tests.contracts.name_cases import FIT, NOT_PLAIN, PLAIN, UNFIT
from tests.refusals import refusal
from tests.support import World, snapshot


@pytest.fixture
def clinic(world: World) -> World:
    world.dataset()
    return world


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_the_database_and_the_commands_know_the_same_names(name: str) -> None:
    with refusal("InvalidPlainName"):
        require_plain_name("a dataset", name)


def test_the_database_and_the_readers_of_data_know_the_same_unseen_signs() -> None:
    """People who decide, and people in data (`printable_text.is_unseen`); a name of data may contain other spaces."""
    listed = {chr(code) for first, last in UNSEEN for code in range(first, last + 1)}
    assert [f"{ord(sign):x}" for sign in listed if not is_unseen(sign) and not sign.isspace()] == []
    signs = (chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000)
    others = [sign for sign in signs if is_unseen(sign) and sign not in listed]
    assert {unicodedata.category(sign) for sign in others} <= {"Cf"}  # those with a shape, as of Arabic numbers


@pytest.mark.parametrize("name", PLAIN)
def test_and_let_the_same_names_pass(name: str) -> None:
    require_plain_name("a dataset", name)


def register(clinic: World, name: str, account: int) -> None:
    wanted = Registration(name, "id", "text", True, None, None)
    with clinic.database.write() as session:
        datasets.register(session, clinic.steward, wanted, account)


def test_no_service_records_a_dataset_of_such_a_name(clinic: World) -> None:
    account = clinic.account()
    before = snapshot(clinic.database)
    for name in NOT_PLAIN:
        with refusal("InvalidPlainName", "InvalidDatasetText"):
            register(clinic, name, account)
    assert snapshot(clinic.database) == before


def test_no_service_enrols_anybody_of_such_a_name(clinic: World) -> None:
    before = snapshot(clinic.database)
    for name in UNFIT:
        with refusal("InvalidPersonName"), clinic.database.write() as session:
            people.enrol(session, clinic.admin, name, "key of anna")
    for name in ("Steward", "STEWARD", "ste\u00adward"):
        with refusal("NameTaken", "InvalidPersonName"), clinic.database.write() as session:
            people.enrol(session, clinic.admin, name, "key of anna")
    assert snapshot(clinic.database) == before


def test_names_of_people_keep_their_signs(clinic: World) -> None:
    for name in FIT:
        assert clinic.person(name).name == name


@pytest.mark.parametrize("name", [" anna", "an\u202ena"])
def test_a_row_of_a_person_past_the_service_is_denied(clinic: World, name: str) -> None:
    row = Principal(name=name, public_key="k" * 64, created_at=utc_now(), created_by=clinic.admin.id)
    with (
        pytest.raises(RuleViolated, match="its column, principal_name"),
        clinic.database.write() as session,
    ):
        insert_row(session, row)
