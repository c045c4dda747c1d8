"""Names of datasets: one spelling."""

import pytest

from models_db.values.untrusted_text import LONGEST_PLAIN_NAME, require_plain_name
from tests.refusals import refusal


@pytest.mark.parametrize("name", ["clinic", "clinic-2027", "a", "7", "a_b.c-d", "x" * LONGEST_PLAIN_NAME])
def test_plain_names_pass(name: str) -> None:
    require_plain_name("a dataset", name)


BAD = (
    "CLINIC", "Clinic", "сlinic", "clinic\u200b", "cliniс", "ｃlinic", "cafe\u0301", "café", ".", "..", "../evil",
    "/etc/x", ".hidden", "a/b", "a\\b", "a b", " a", "a ", "a\n", "a\x1b[2J", "a\u202eb", "-rf", "--help", "_a", "",
    "x" * (LONGEST_PLAIN_NAME + 1), "a:b", "a*", "1/2", "a\0",
)  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_could_be_taken_for_another_name_or_a_path_is_refused(name: str) -> None:
    with refusal("InvalidPlainName") as refused:
        require_plain_name("a dataset", name)
    assert name not in refused.value.message or len(name) < 3
