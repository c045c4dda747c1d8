"""Names that could be taken for others, or for paths, typed at every command that takes a new name. Nothing is kept."""

from shlex import quote

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.contracts.name_cases import NOT_PLAIN, UNFIT
from tests.integration.story import Almoner

REFUSED = ("UnreadableArgument", "InvalidPlainName", "InvalidDatasetText", "InvalidPersonName")
URL = "http://127.0.0.1:9/v1"
NAMED = {
    "dataset": "dataset register --unit id --epsilon 8 --delta 1e-6 -- {name}",
    "shared dataset": "dataset register --shares-account-with clinic --unit patient_id -- {name}",
    "endpoint": f"models endpoint add --url {URL} --model m -- {{name}}",
}


def refusal(almoner: Almoner, line: str, name: str) -> str:
    command, dashes, rest = line.format(name=quote(name)).partition(" -- ")
    return str(almoner.type(f"{command} --json{dashes}{rest}", 2).json["error"])


@pytest.mark.parametrize("line", NAMED.values(), ids=NAMED)
def test_no_command_takes_a_name_that_could_mislead(any_almoner: Almoner, line: str) -> None:
    any_almoner.ingested()
    before = any_almoner.everything()
    assert {refusal(any_almoner, line, name) for name in NOT_PLAIN} <= set(REFUSED)
    assert any_almoner.everything() == before


def test_nobody_is_added_whose_name_could_mislead(any_almoner: Almoner) -> None:
    any_almoner.ingested()
    before = any_almoner.everything()
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    line = f"user add --key {key} -- {{name}}"
    assert {refusal(any_almoner, line, name) for name in UNFIT} <= {"UnreadableArgument", "InvalidPersonName"}
    assert any_almoner.everything() == before
