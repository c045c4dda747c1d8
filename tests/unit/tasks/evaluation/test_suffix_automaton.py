"""The longest shared runs, against a brute force that cannot be wrong."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.algorithms import SuffixAutomaton

WORDS = st.lists(st.sampled_from("abc"), max_size=12)
FEW = st.lists(WORDS, max_size=6)


def brute_force(text: Sequence[str], documents: Sequence[Sequence[str]]) -> int:
    runs = {tuple(d[i:j]) for d in documents for i in range(len(d)) for j in range(i + 1, len(d) + 1)}
    return max(
        (j - i for i in range(len(text)) for j in range(i, len(text) + 1) if tuple(text[i:j]) in runs), default=0
    )


@given(FEW, FEW)
def test_equals_brute_force(texts, documents):
    assert SuffixAutomaton(texts).longest_shared(documents) == [brute_force(text, documents) for text in texts]


def test_a_run_does_not_cross_from_one_text_into_the_next():
    assert SuffixAutomaton([["a", "b"], ["c", "d"]]).longest_shared([["a", "b", "c", "d"]]) == [2, 2]


def test_one_automaton_serves_many_streams():
    automaton = SuffixAutomaton([["a", "b", "c"]])
    assert automaton.longest_shared([["b", "c"]]) == [2]
    assert automaton.longest_shared([["c"]]) == [1]


def test_documents_are_streamed():
    opened = []

    def stream():
        for number in range(3):
            opened.append(number)
            yield ["a"] * number

    assert SuffixAutomaton([["a", "a", "b"]]).longest_shared(stream()) == [2]
    assert opened == [0, 1, 2]
