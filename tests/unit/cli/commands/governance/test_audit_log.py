"""The table of `almoner audit log`: what a link says in one line."""

from typing import cast

import pytest

from cli.commands.governance.audit import LinkData, _link_summary


def link(kind: str, body: dict[str, object] | None) -> LinkData:
    return cast(LinkData, {"kind": kind, "body": body, "unreadable": "link 3"})


@pytest.mark.parametrize("rho", [266312971361, "266312971361"])
def test_amounts_of_the_ledger_are_decimals(rho: object) -> None:
    assert _link_summary(link("ledger.arm", {"rho": rho, "delta": 0})) == "rho=0.266312971361, delta=0"


@pytest.mark.parametrize("rho", ["1e9", "-1", "9" * 400, True, None, ["0"]])
def test_altered_amounts_are_shown_and_break_nothing(rho: object) -> None:
    assert "attempt=1" in _link_summary(link("ledger.arm", {"rho": rho, "attempt": 1}))


def test_other_links_stay_as_they_are() -> None:
    assert _link_summary(link("request.submitted", {"rho": "5"})) == "rho=5"
    assert _link_summary(link("ledger.arm", None)) == "UNREADABLE: link 3"
