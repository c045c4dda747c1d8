"""The contamination probe, with models that know texts by heart, understand them, or neither."""

from collections.abc import Callable, Sequence

import pytest

from tasks.evaluation.contamination import BEGINNING, CONTINUATION, FRESH, KNOWN, contamination
from tasks.evaluation.evaluation_input import EvaluationInput

DOCUMENTS = [" ".join(f"d{number}w{word}" for word in range(60)) for number in range(20)]
Score = Callable[[Sequence[str]], list[tuple[float, int]]]


def who_has_read(*texts: str) -> Score:
    """A model that gives a word behind the words before it in one of these texts 0.1 nats, and any other 3."""
    heard = [" ".join(text.split()) for text in texts]

    def loss(text: str) -> float:
        said = text.split()
        begun = " ".join(said[:BEGINNING])
        return sum(
            0.1 if any(begun in each and " ".join(said[: place + 1]) in each for each in heard) else 3.0
            for place in range(len(said))
        )

    return lambda given: [(-loss(text), len(text.split())) for text in given]


def subject(score: Score, documents: Sequence[str] = DOCUMENTS) -> EvaluationInput:
    return EvaluationInput([], score=score, documents=lambda: documents)


def test_a_model_that_has_read_the_corpus_is_found() -> None:
    found = contamination(subject(who_has_read(*DOCUMENTS, *KNOWN)))
    assert found.exposure == "internal"
    assert (found.values["documents"], found.values["by_heart"]) == (20, 20)
    assert (found.values["known_by_heart"], found.values["fresh_by_heart"]) == (12, 0)
    assert found.values["gain"] == "2.900"
    assert found.line.startswith("20 of 20 documents are known by heart; of 12 passages that models have read, 12")


def test_the_null_control_is_a_model_that_has_read_other_texts() -> None:
    found = contamination(subject(who_has_read(*KNOWN)))
    assert (found.values["by_heart"], found.values["gain"], found.values["known_by_heart"]) == (0, "0.000", 12)
    assert str(found.values["known_gain"]) > "2.8"


def test_a_probe_that_does_not_find_known_passages_says_so() -> None:
    found = contamination(subject(who_has_read()))
    assert found.values["by_heart"] == 0
    assert "which says nothing" in found.line


def test_documents_that_begin_alike_and_go_on_alike_are_not_known_by_heart() -> None:
    """A form that everybody fills in is likely behind its beginning, whoever wrote it."""
    found = contamination(subject(who_has_read(DOCUMENTS[0]), [DOCUMENTS[0]] * 5))
    assert (found.values["documents"], found.values["by_heart"]) == (5, 0)


def test_short_documents_are_left_out_and_without_two_nothing_is_measured() -> None:
    short = " ".join(DOCUMENTS[0].split()[: BEGINNING + CONTINUATION - 1])
    found = contamination(subject(who_has_read(), [short, short, DOCUMENTS[0]]))
    assert (found.values["documents"], found.values["by_heart"], found.values["gain"]) == (0, None, None)
    assert found.line.startswith("not measured")
    with pytest.raises(ValueError, match="private documents"):
        contamination(EvaluationInput([]))
    with pytest.raises(ValueError, match="public model"):
        contamination(EvaluationInput([], documents=lambda: DOCUMENTS))


def test_every_passage_is_long_enough_and_twice_none() -> None:
    assert len(set(KNOWN + FRESH)) == len(KNOWN) + len(FRESH) == 24
    assert min(len(text.split()) for text in KNOWN + FRESH) >= BEGINNING + CONTINUATION
