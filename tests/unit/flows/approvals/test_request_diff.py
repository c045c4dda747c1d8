"""What changed since the release before."""

from flows.approvals.review import ABSENT_VALUE, IGNORED_FIELDS, request_differences
from tests.unit.tasks.publishing.builders import a_request


def test_the_same_request_with_another_nonce_differs_in_nothing():
    assert request_differences(a_request(), a_request(nonce="88" * 16)) == ()


def test_only_changed_fields_are_named_with_then_and_now():
    then, now = a_request(), a_request(epsilon="5", prompt={"description": "Letters."})
    told = {name: (before, after) for name, before, after in request_differences(then, now)}
    assert told["epsilon"] == ("4", "5")
    assert told["prompt.description"] == ("Short dialogues between a doctor and a patient.", "Letters.")
    assert all(name.startswith(("plan.facts", "epsilon", "prompt")) for name in told)


def test_what_came_and_what_went_is_named():
    assert request_differences({"a": 1}, {"b": 2}) == (("b", ABSENT_VALUE, "2"), ("a", "1", ABSENT_VALUE))
    assert request_differences({"a": None, "l": []}, {"a": None, "l": ["x", "y"]}) == (("l", ABSENT_VALUE, "x, y"),)


def test_every_field_of_a_request_is_compared_but_the_named_ones():
    """Whatever a later format adds is shown without being asked for."""
    for path in ("unit", "population", "model.sha256", "parameters.top_k", "policy", "code", "something.new"):
        head, _, tail = path.partition(".")
        body = a_request()
        changed = body | {head: {**body.get(head, {}), tail: "changed"} if tail else "changed"}
        assert [row[0] for row in request_differences(body, changed)] == [path]
    assert set(IGNORED_FIELDS) == {"format", "nonce", "dataset.uid", "plan.invocations"}


def test_of_a_group_only_what_changed_is_told():
    then = {"parameters": {"groups": [{"id": "b7", "title": "Kettle"}, {"id": "b8"}]}}
    now = {"parameters": {"groups": [{"id": "b7", "title": "Pot", "about": ["tea"]}, {"id": "b9"}]}}
    assert request_differences(then, now) == (
        ("parameters.groups", "b7, b8", "b7, b9"),
        ("parameters.groups.b7.title", "Kettle", "Pot"),
        ("parameters.groups.b7.about", ABSENT_VALUE, "tea"),
    )
    turned = {"parameters": {"groups": then["parameters"]["groups"][::-1]}}
    assert request_differences(then, turned) == (("parameters.groups", "b7, b8", "b8, b7"),)


def test_another_adapter_is_one_line_and_a_changed_description_of_the_same_is_told():
    def asked(digest, name):
        return {"parameters": {"adapter": {"sha256": digest, "meta": {"name": name}}}}

    assert request_differences({}, asked("ab", "x")) == (("parameters.adapter.sha256", ABSENT_VALUE, "ab"),)
    assert request_differences(asked("ab", "x"), asked("cd", "y")) == (("parameters.adapter.sha256", "ab", "cd"),)
    assert request_differences(asked("ab", "x"), asked("ab", "y")) == (("parameters.adapter.meta.name", "x", "y"),)
