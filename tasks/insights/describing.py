"""Names and descriptions of clusters, written by a public model from released keywords and nothing else.

After Urania, appendix G.4, and for the reference without privacy appendix G.2; the wording is our own. The keywords are
what a mechanism released and the model is public: this is post-processing and costs nothing (PRIVACY §5).

A prompt shows five answers before it asks, because a small model follows an example better than an instruction; in the
examples descriptions come first and repeat their keywords. An answer is kept if it speaks of what it was asked about
and does not go round in circles: what is fluent and about something else would be worse than no name. What is not kept
is asked for once more, with its lines in reverse order, and what fails again has the plain form: the first keywords
for a name and a sentence that lists them. Such a topic says so (`Described.plain`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.insights.lines import first_words, line, rambles, sentences, speaks_of
from tasks.insights.values import Topic
from tasks.insights.writing import Record, Schema, Write, answers

MOST_WORDS = 10
"""Words of a name."""
MOST_SENTENCES = 2
"""Sentences of a description."""
MOST_KEYWORDS = 20
"""Keywords of one cluster that the model is told."""
LONGEST_KEYWORD = 80
"""Characters of one keyword that the model is told."""
LONGEST_STATEMENT = 300
"""Characters of one statement that the model is told."""
IN_PLAIN_NAME = 3
"""Keywords in the name of a plain form, at most."""
NOTHING = "Without keywords"
"""The name of a cluster that nothing was released about."""

TOPIC: Schema = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "minLength": 10, "maxLength": 240},
        "name": {"type": "string", "minLength": 3, "maxLength": 70},
    },
    "required": ["description", "name"],
    "additionalProperties": False,
}
"""What the model writes. The description comes first, so that the name is drawn from it."""
SCHEMAS: tuple[Schema, ...] = (TOPIC,)
"""Everything that is asked for here: a `Writer` is made for it."""

_EXAMPLES = (
    (
        "tomato, soil, watering, seeds",
        "growing tomatoes from seeds. They deal with soil and watering.",
        "Growing tomatoes",
    ),
    (
        "tax, invoice, deduction, self-employed",
        "taxes of the self-employed. They deal with invoices and deductions.",
        "Taxes of self-employed people",
    ),
    (
        "laptop, battery, overheating, screen",
        "laptops with problems. They deal with batteries, overheating and screens.",
        "Laptop hardware problems",
    ),
    (
        "whale, ocean, plankton, shark",
        "whales and sharks. They deal with the ocean and its plankton.",
        "Whales and life in the ocean",
    ),
    (
        "divorce, custody, lawyer, children",
        "divorce and the custody of children. They deal with lawyers.",
        "Divorce and custody of children",
    ),
)
"""Keywords, what a description says after "are about", and a name."""
_INSIDE = ("How tomatoes are sown in spring.", "Which soil and how much water tomatoes need.")
_OUTSIDE = ("Pruning apple trees in winter.",)


@dataclass(frozen=True)
class Wording:
    """What may differ from release to release in what the model is told.

    Attributes:
        kind: what the texts are, one plain word in the plural.
    """

    kind: str = "texts"


DEFAULT = Wording()


@dataclass(frozen=True)
class Described(Topic):
    """A topic that knows whether the model wrote it.

    Attributes:
        plain: True for the plain form: two answers of the model were of no use.
    """

    plain: bool = False


@dataclass(frozen=True)
class Statements:
    """Summaries of units, without any protection: for public data alone.

    Attributes:
        inside: of the group.
        outside: near the group, to tell it from.
    """

    inside: tuple[str, ...]
    outside: tuple[str, ...]


def describe(write: Write, keyword_lists: Sequence[Sequence[str]], wording: Wording = DEFAULT) -> list[Topic]:
    """A name of at most ten words and a description of at most two sentences for each list of keywords.

    A list without keywords is not asked about: its topic has the plain form.

    Args:
        keyword_lists: released, the most frequent first. The model is told of the first 20 of each.
    """
    told = [told_of(keywords, MOST_KEYWORDS, LONGEST_KEYWORD) for keywords in keyword_lists]
    return topics(write, told, lambda _, keywords: _of_keywords(wording, keywords), plain_topic)


def describe_statements(write: Write, groups: Sequence[Statements], wording: Wording = DEFAULT) -> list[Topic]:
    """As `describe`, from statements of each group and, to tell it from its neighbours, some of theirs (G.2).

    Statements are private, so this is for public data alone. A group's plain form is its first statement, cut.
    """
    inside = [told_of(group.inside, len(group.inside), LONGEST_STATEMENT) for group in groups]
    outside = [told_of(group.outside, len(group.outside), LONGEST_STATEMENT) for group in groups]
    return topics(write, inside, lambda n, lines: _of_statements(wording, lines, outside[n]), _plain_statement)


def topics(
    write: Write,
    told: Sequence[Sequence[str]],
    prompt: Callable[[int, Sequence[str]], str],
    plain: Callable[[Sequence[str]], Topic],
) -> list[Topic]:
    """A topic for each list of lines; one without lines is not asked about, and has its plain form.

    Args:
        prompt: of a list's number and its lines, in the order in which they are shown.
    """
    asked = [number for number, lines in enumerate(told) if lines]
    rounds = [[prompt(number, told[number][::way]) for number in asked] for way in (1, -1)]
    found = answers(write, rounds, TOPIC, lambda place, record: topic_in(record, told[asked[place]]))
    written = dict(zip(asked, found, strict=True))
    return [written.get(number) or plain(lines) for number, lines in enumerate(told)]


def topic_in(record: Record, lines: Sequence[str]) -> Topic | None:
    """The topic that an answer holds; None if it is none, goes round in circles, or speaks of something else."""
    name = first_words(line(record.get("name")).strip(" .,;:-\"'"), MOST_WORDS)
    description = sentences(line(record.get("description")), MOST_SENTENCES)
    if not any(map(str.isalpha, name)) or not description or rambles(name) or rambles(description):
        return None
    return Described(name, description) if speaks_of(name, description, lines) else None


def plain_topic(keywords: Sequence[str]) -> Topic:
    """The plain form of a cluster of which no answer was of use."""
    if not keywords:
        return Described(NOTHING, "No keyword of this group was released.", plain=True)
    name = first_words(", ".join(keywords[:IN_PLAIN_NAME]), MOST_WORDS)
    return Described(name, f"Keywords: {', '.join(keywords)}.", plain=True)


def told_of(lines: Sequence[str], most: int, longest: int) -> tuple[str, ...]:
    """What of `lines` the model is told: the first of them, each on one line, cut, without empty ones."""
    plain = (line(text, longest) for text in lines[:most])
    return tuple(text for text in plain if text)


def _plain_statement(statements: Sequence[str]) -> Topic:
    if not statements:
        return plain_topic([])
    return Described(first_words(statements[0], MOST_WORDS), sentences(statements[0], MOST_SENTENCES), plain=True)


def _of_keywords(wording: Wording, keywords: Sequence[str]) -> str:
    lines = [f"Say what groups of {wording.kind} are about, from their keywords alone.", ""]
    for example, about, name in _EXAMPLES:
        lines += [f"Keywords: {example}", answer(wording, about, name)]
    return "\n".join([*lines, f"Keywords: {', '.join(keywords)}", "Answer:"])


def _of_statements(wording: Wording, inside: Sequence[str], outside: Sequence[str]) -> str:
    """One example alone: statements are long."""
    _, about, name = _EXAMPLES[0]
    return "\n".join([
        f"Say what groups of {wording.kind} are about, from statements about them. Be specific: say what is common to",
        "a group and not true of the others.",
        "",
        *_statements(_INSIDE, _OUTSIDE),
        answer(wording, about, name),
        "",
        *_statements(inside, outside),
        "Answer:",
    ])  # fmt: skip


def answer(wording: Wording, about: str, name: str) -> str:
    """An example's answer, as a prompt shows it."""
    return "Answer: " + json.dumps({"description": f"These {wording.kind} are about {about}", "name": name})


def _statements(inside: Sequence[str], outside: Sequence[str]) -> list[str]:
    others = ["Statements about others:", *(f"- {text}" for text in outside)] if outside else []
    return [*others, "Statements about the group:", *(f"- {text}" for text in inside)]
