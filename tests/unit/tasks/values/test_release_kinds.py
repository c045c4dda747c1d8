"""The kinds of releases are those that a request may name."""

from typing import get_args

from models_db.values.requests import RequestKind
from tasks.values.results import TEXT_KINDS, ReleaseKind


def test_a_request_may_name_every_kind_and_no_other() -> None:
    assert {kind.value for kind in ReleaseKind} == set(get_args(RequestKind))
    assert set(TEXT_KINDS) < set(ReleaseKind)
