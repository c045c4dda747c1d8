"""What proposals say in the end, and proposals as programs read them."""

from cli.framework.review_screen import approve_hint, as_data, waiting_sentence
from models_db.values.amounts import Amount
from tests.unit.flows.approvals.test_propose_change import a_row


def test_a_proposal_names_the_next_command() -> None:
    told = [str(line) for line in waiting_sentence(3, 2)]
    assert told == [
        "Proposed as proposal 3; it takes effect when 2 different stewards have approved it.",
        approve_hint(3),
    ]
    assert "`almoner approve 3 --gate proposal --reason" in told[1]


def test_a_dry_run_proposes_nothing() -> None:
    (told,) = waiting_sentence(None, 1)
    assert told == "It would need the approval of 1 steward. Dry run: no proposal was recorded."


def test_amounts_are_texts_and_what_its_kind_lacks_is_null() -> None:
    found = as_data(a_row("cap", epsilon="9", rho=Amount(5 * 10**11, 7)))
    assert (found["proposal"], found["rho"], found["delta_fail"]) == (1, "0.5", "0.000000000000000007")
    assert (found["runs"], found["until"], found["request_id"]) == (None, None, None)
    assert as_data(a_row("retraction", request_id=4))["rho"] is None
