"""What changed since the release before."""

from flows.difference import ABSENT, NOT_COMPARED, differences
from tests.unit.tasks.publishing.builders import a_request


def test_the_same_request_with_another_nonce_differs_in_nothing():
    assert differences(a_request(), a_request(nonce="88" * 16)) == ()


def test_only_changed_fields_are_named_with_then_and_now():
    then, now = a_request(), a_request(epsilon="5", prompt={"description": "Letters."})
    told = {name: (before, after) for name, before, after in differences(then, now)}
    assert told["epsilon"] == ("4", "5")
    assert told["prompt.description"] == ("Short dialogues between a doctor and a patient.", "Letters.")
    assert all(name.startswith(("plan.facts", "epsilon", "prompt")) for name in told)


def test_what_came_and_what_went_is_named():
    assert differences({"a": 1}, {"b": 2}) == (("b", ABSENT, "2"), ("a", "1", ABSENT))
    assert differences({"a": None, "l": []}, {"a": None, "l": ["x", "y"]}) == (("l", ABSENT, "x, y"),)


def test_every_field_of_a_request_is_compared_but_the_named_ones():
    """Whatever a later format adds is shown without being asked for."""
    for path in ("unit", "population", "model.sha256", "parameters.top_k", "policy", "code", "something.new"):
        head, _, tail = path.partition(".")
        body = a_request()
        changed = body | {head: {**body.get(head, {}), tail: "changed"} if tail else "changed"}
        assert [row[0] for row in differences(body, changed)] == [path]
    assert set(NOT_COMPARED) == {"format", "nonce", "dataset.uid", "plan.invocations"}
