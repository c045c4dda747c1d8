"""What a request file says of cohorts."""

import pytest

from models_db.requests import MOST_COHORTS, FileInvalid, ReleaseRequest, as_json, parse

WRITTEN = {
    "dataset": "clinic",
    "kind": "synthetic_corpus",
    "mechanism": "invisible_ink",
    "model": "a-model",
    "prompt": {"description": "Notes."},
}


def asked(cohorts: object) -> ReleaseRequest:
    return parse(ReleaseRequest, WRITTEN | {"cohorts": cohorts}, "The request")


@pytest.mark.parametrize("cohorts", ["newest", [1], [2, 5], None])
def test_cohorts_are_named_by_a_word_or_by_their_numbers(cohorts: object) -> None:
    stored = as_json(asked(cohorts))
    assert isinstance(stored, dict)
    assert stored.get("cohorts") == cohorts


@pytest.mark.parametrize(
    "cohorts",
    [[], [2, 1], [1, 1], [0], [-1], [True], [1.0], ["1"], [[1]], 1, "oldest", {}, [*range(1, MOST_COHORTS + 2)]],
)
def test_what_names_no_cohorts_is_told_in_one_sentence(cohorts: object) -> None:
    """And not once for each form that it could have had."""
    with pytest.raises(FileInvalid) as invalid:
        asked(cohorts)
    problems = invalid.value.facts["problems"]
    assert problems == [
        "cohorts: `newest`, or the numbers of cohorts, once each and in ascending order, such as [1, 3]"
    ]
