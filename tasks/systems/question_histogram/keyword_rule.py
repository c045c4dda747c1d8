"""Answers by words: a public function of one text and of public lists, without a model.

Text and keywords are cut into words and signs alike, case folded and without English plural endings; a keyword of
several words matches where they follow each other. Every place of a text at which a keyword of an answer begins is one
match of that answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.systems.question_histogram.closed_answers import ClosedAnswers
from tasks.text.keyword_normalisation import singular
from tasks.text.words import words

Phrase = tuple[str, ...]


@dataclass(frozen=True)
class KeywordRule:
    """Function from texts to one answer each, by public words.

    `most`: the answer with the most matches; of equals the one that the request names first. `first`: that of the first
    match in the text; of several at one place the longest, then the one that the request names first.

    Attributes:
        closed: the answers with their keywords.
        starting: by first word, the keywords with the numbers of their answers.
    """

    closed: ClosedAnswers
    starting: dict[str, list[tuple[Phrase, int]]]

    @classmethod
    def of(cls, closed: ClosedAnswers) -> "KeywordRule":
        """Build the rule; a keyword that an answer has twice, but for case and plural, is one."""
        starting: dict[str, list[tuple[Phrase, int]]] = {}
        for number, answer in enumerate(closed.answers):
            for phrase in dict.fromkeys(_phrase(keyword) for keyword in answer.keywords):
                starting.setdefault(phrase[0], []).append((phrase, number))
        return cls(closed, starting)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return the number of the bin of each text; behind the last answer it is that of none."""
        return [self._answer(_phrase(text)) for text in texts]

    def _answer(self, text: Phrase) -> int:
        found = list(self._matches(text))
        if not found:
            return len(self.closed.answers)
        if self.closed.match == "first":
            return min(found, key=lambda match: (match[0], -match[1], match[2]))[2]
        counts = [0] * len(self.closed.answers)
        for _, answer in {(place, answer) for place, _, answer in found}:
            counts[answer] += 1
        return counts.index(max(counts))

    def _matches(self, text: Phrase) -> Iterator[tuple[int, int, int]]:
        """Yield place, length and answer of every match."""
        for place, word in enumerate(text):
            for phrase, answer in self.starting.get(word, ()):
                if text[place : place + len(phrase)] == phrase:
                    yield place, len(phrase), answer


def _phrase(text: str) -> Phrase:
    return tuple(map(singular, words(text)))
