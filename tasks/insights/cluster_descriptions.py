"""Names and descriptions of clusters, written by a public model from released keywords and nothing else.

After Urania, appendix G.4, and for the reference without privacy appendix G.2; the wording is our own. The keywords are
what a mechanism released and the model is public: this is post-processing and costs nothing (PRIVACY §5).

A prompt shows five answers before it asks, because a small model follows an example better than an instruction; in the
examples descriptions come first and repeat their keywords. An answer is kept if it speaks of what it was asked about
and does not go round in circles: what is fluent and about something else would be worse than no name. What is not kept
is asked for once more, with its lines in reverse order, and what fails again has the plain form: the first keywords
for a name and a sentence that lists them. Such a topic says so (`Described.plain`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.generation.decoding.structured_output import Record, Schema, Write, answers
from tasks.insights.prompts import DEFAULT, SHOWN, Wording, is_borrowed, of_keywords, of_statements
from tasks.text.output_cleaning import (
    count_mentioned,
    first_words,
    has_content_word,
    is_rambling,
    is_repetitive,
    line,
    plain_text,
    sentences,
    whole_words,
)
from tasks.values.insight import Topic

MOST_WORDS = 10
"""Words of a name."""
LONGEST_NAME = 70
"""Characters of a name as the model writes it."""
MOST_SENTENCES = 2
"""Sentences of a description."""
MOST_KEYWORDS = 20
"""Keywords of one cluster that the model is told."""
LONGEST_KEYWORD = 80
"""Characters of one keyword that the model is told."""
LONGEST_STATEMENT = 100
"""Characters of one statement that the model is told."""
IN_PLAIN_NAME = 3
"""Keywords in the name of a plain form, at most."""
NOTHING = "Without keywords"
"""The name of a cluster that nothing was released about."""

TOPIC: Schema = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "minLength": 10, "maxLength": 240},
        "name": {"type": "string", "minLength": 3, "maxLength": LONGEST_NAME},
    },
    "required": ["description", "name"],
    "additionalProperties": False,
}
"""What the model writes. The description comes first, so that the name is drawn from it."""
SCHEMAS: tuple[Schema, ...] = (TOPIC,)
"""Everything that is asked for here: a `Writer` is made for it."""


@dataclass(frozen=True)
class Described(Topic):
    """A topic that knows whether the model wrote it.

    Attributes:
        plain: True for the plain form: two answers of the model were of no use.
    """

    plain: bool = False


def is_plain(topic: Topic) -> bool:
    """Whether the model's answers about it were of no use."""
    return isinstance(topic, Described) and topic.plain


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
    told = [mentioned_keywords(keywords, MOST_KEYWORDS, LONGEST_KEYWORD) for keywords in keyword_lists]
    return topics(write, told, lambda _, keywords: of_keywords(wording, keywords), plain_topic)


def describe_statements(write: Write, groups: Sequence[Statements], wording: Wording = DEFAULT) -> list[Topic]:
    """As `describe`, from statements of each group and, to tell it from its neighbours, some of theirs (G.2).

    A topic must be about two of a group's statements: what one of them says is not the group's. Statements are private,
    so this is for public data alone. A group's plain form is its first statement, cut.
    """
    inside = [mentioned_keywords(group.inside, len(group.inside), LONGEST_STATEMENT) for group in groups]
    outside = [mentioned_keywords(group.outside, len(group.outside), LONGEST_STATEMENT) for group in groups]
    return topics(write, inside, lambda n, lines: of_statements(wording, lines, outside[n]), _plain_statement, 2)


def topics(
    write: Write,
    told: Sequence[Sequence[str]],
    prompt: Callable[[int, Sequence[str]], str],
    plain: Callable[[Sequence[str]], Topic],
    least: int = 1,
) -> list[Topic]:
    """A topic for each list of lines; one without lines is not asked about, and has its plain form.

    Args:
        prompt: of a list's number and its lines, in the order in which they are shown.
        least: how many lines a name has to speak of, if there are so many.
    """
    asked = [number for number, lines in enumerate(told) if lines]
    rounds = [[prompt(number, told[number][::way]) for number in asked] for way in (1, -1)]
    found = answers(write, rounds, TOPIC, lambda place, record: topic_in(record, told[asked[place]], least))
    written = dict(zip(asked, found, strict=True))
    return [written.get(number) or plain(lines) for number, lines in enumerate(told)]


def topic_in(record: Record, lines: Sequence[str], least: int = 1) -> Topic | None:
    """The topic that an answer holds; None if it is none, goes round in circles, or speaks of something else.

    What repeats a sentence of an example speaks of the example.
    """
    name = line(record.get("name")).strip(" .,;:-\"'")
    name = first_words(whole_words(name, LONGEST_NAME), MOST_WORDS)
    description = sentences(line(record.get("description")), MOST_SENTENCES)
    if not has_content_word(name) or not description or is_borrowed(description):
        return None
    if is_repetitive(name) or is_rambling(description) or not mentions(name, description, lines, least):
        return None
    return Described(name, description)


def mentions(name: str, description: str, lines: Sequence[str], least: int = 1) -> bool:
    """Whether a topic is about `lines`: its name has words of so many, or its description words of a third of them.

    So a name may be wider than all of them. Of an example's name, half of the words must be theirs.
    """
    if plain_text(name) in SHOWN:
        words = name.split()
        return 2 * count_mentioned(" ".join(lines), words) >= len(words)
    least = min(least, len(lines))
    return count_mentioned(name, lines) >= least or count_mentioned(description, lines) >= max(least, len(lines) / 3)


def plain_topic(keywords: Sequence[str]) -> Topic:
    """The plain form of a cluster of which no answer was of use."""
    if not keywords:
        return Described(NOTHING, "No keyword of this group was released.", plain=True)
    name = first_words(", ".join(keywords[:IN_PLAIN_NAME]), MOST_WORDS)
    return Described(name, f"Keywords: {', '.join(keywords)}.", plain=True)


def mentioned_keywords(lines: Sequence[str], most: int, longest: int) -> tuple[str, ...]:
    """What of `lines` the model is told: the first of them, each on one line, cut, without empty ones."""
    plain = (line(text, longest) for text in lines[:most])
    return tuple(text for text in plain if text)


def _plain_statement(statements: Sequence[str]) -> Topic:
    if not statements:
        return plain_topic([])
    return Described(first_words(statements[0], MOST_WORDS), sentences(statements[0], MOST_SENTENCES), plain=True)
