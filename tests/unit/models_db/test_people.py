"""One key is one person, and one name is, however it is spelt."""

import pytest

from models_db.services import people
from models_db.services.people import PrincipalUnknown
from tests.support import World, snapshot


def test_a_key_is_one_person_whatever_the_login_is_called(world: World) -> None:
    anna = world.person("anna")
    with world.database.write() as session:
        assert people.enrol(session, "bob", "key of anna") == anna
    with world.database.read() as session:
        assert people.identify(session, "key of anna") == anna


@pytest.mark.parametrize("alike", ["anna", "ANNA", " anna ", "an\N{ZERO WIDTH SPACE}na"])
def test_a_name_that_reads_like_another_is_refused(world: World, alike: str) -> None:
    world.person("anna")
    before = snapshot(world.database)
    with pytest.raises(PrincipalUnknown), world.database.write() as session:
        people.enrol(session, alike, "another key")
    assert snapshot(world.database) == before


def test_a_stranger_is_nobody(world: World) -> None:
    with world.database.read() as session, pytest.raises(PrincipalUnknown):
        people.identify(session, "a key nobody has")
