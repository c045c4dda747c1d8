"""Answers by words: a public function of one text and of public lists, without a model.

Text and keywords are cut into words and signs alike, case folded and without English plural endings; a keyword of
several words matches where they follow each other. Every place of a text at which a keyword of an answer begins is one
match of that answer.

A rule may label the documents of a corpus that has no field for it. **The label of a document is a
function of its own text and of the request**, as that of a field is of its own record. So every statement about labels
holds as it is: those that a unit carries, the one that it is read under (`BatchSplit.labels_of`) and its batch depend
on its own documents, its id, a key and public numbers alone. Of two neighbouring datasets, one has one unit more: the
rows and counts of one label differ by that unit, and those of every other label are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import model_validator

from models_db.values.requests import normalise_spelling
from tasks.planning.closed_answers import AnswerName, ClosedAnswers, require_distinct_names
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


class LabelRule(ClosedAnswers):
    """`label_rule` of a request: the answers are the labels, and their keywords decide which one a document has.

    Attributes:
        default: the label of documents without any keyword; None leaves them without label.
    """

    default: AnswerName | None = None

    @model_validator(mode="after")
    def _default_is_another(self) -> Self:
        if self.default is not None:
            require_distinct_names(self.described, [answer.name for answer in self.answers] + [self.default])
        return self

    @property
    def described(self) -> str:
        """The rule, as errors name it."""
        return "`label_rule`"

    @property
    def labels(self) -> tuple[str, ...]:
        """The public label set: the answers, then the default if there is one."""
        named = (*(answer.name for answer in self.answers), *([] if self.default is None else [self.default]))
        return tuple(map(normalise_spelling, named))


@dataclass(frozen=True)
class DocumentLabeller:
    """Function from the text of one document to its label; the rule of `tasks.corpus.store.Corpus`.

    Attributes:
        names: the label of each bin of the rule; the last one is that of no keyword.
    """

    rule: KeywordRule
    names: tuple[str | None, ...]

    @classmethod
    def of(cls, rule: LabelRule) -> "DocumentLabeller":
        """Build the function."""
        return cls(KeywordRule.of(rule), rule.labels if rule.default is not None else (*rule.labels, None))

    def __call__(self, text: str) -> str | None:
        """Return the label of a document; None without one."""
        return self.names[self.rule([text])[0]]


def _phrase(text: str) -> Phrase:
    return tuple(map(singular, words(text)))
