"""Names and descriptions of clusters, written by a public model from released keywords and nothing else.

Prompts for names and descriptions of clusters: our own wording after Urania, appendices G.2 and G.4. A small model
follows an example better than an instruction, so prompts show answers first. In them the description comes first and
repeats its keywords.

After Urania, appendix G.4, and for the reference without privacy appendix G.2; the wording is our own. The keywords
were released by a mechanism and the model is public: this is post-processing and costs nothing (PRIVACY §5).

A prompt shows five answers before it asks, because a small model follows an example better than an instruction; in the
examples descriptions come first and repeat their keywords. An answer about keywords is kept if every word of its name
that says something is a word of a keyword (`supported_words`), if the name has the first keywords, and if it does not
repeat itself: a fluent answer about something else would be worse than no name. Of its description only sentences
without other words are kept. Otherwise the model is asked once more, with the lines in reverse order, and a second
failure gives the plain form: the first keywords for a name and a sentence that lists them. `Described.plain` marks such
a topic. A topic without a supported keyword has no name.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.decoding.structured_output import Record, Schema, Write, answers
from tasks.text.output_cleaning import (
    count_mentioned,
    first_words,
    has_content_word,
    is_rambling,
    is_repetitive,
    line,
    plain_text,
    sentence_list,
    sentences,
    whole_words,
)
from tasks.text.words import unsupported_words
from tasks.values.results import UNNAMED, Topic

_BY_KEYWORDS = (
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
"""Keywords, the description after "are about", and a name."""
_BY_STATEMENTS = (
    (
        (
            "How do I sow tomatoes in spring?",
            "Which soil do tomatoes need, and how much water?",
            "My tomato seeds do not come up.",
        ),
        ("When are apple trees pruned?",),
        "growing tomatoes from seeds. They deal with soil and watering.",
        "Growing tomatoes",
    ),
    (
        (
            "Explain which invoices a self-employed person must keep.",
            "Can I deduct a desk from my taxes?",
            "Write a letter to the tax office.",
        ),
        ("How do I open a bank account?",),
        "taxes of the self-employed. They deal with invoices and deductions.",
        "Taxes of self-employed people",
    ),
    (
        ("My laptop gets hot when I play.", "Replace the battery of an old laptop", "Why does my screen flicker?"),
        ("Which phone has the best camera?",),
        "laptops with problems. They deal with batteries, heat and screens.",
        "Laptop hardware problems",
    ),
)
"""Statements inside a group and near it, the description after "are about", and a name."""

SHOWN = frozenset(plain_text(name) for _, _, name in _BY_KEYWORDS)
"""The names of all examples, as plain text."""
_SENTENCES = frozenset(
    plain_text(sentence)
    for about in (*(e[1] for e in _BY_KEYWORDS), *(e[2] for e in _BY_STATEMENTS))
    for sentence in about.split(". ")
)


def is_borrowed(description: str) -> bool:
    """Return whether a description repeats a sentence of an example."""
    words = plain_text(description)
    return any(sentence in words for sentence in _SENTENCES)


@dataclass(frozen=True)
class Wording:
    """The part of the prompts that may differ between releases.

    Attributes:
        kind: the kind of texts, one plain word in the plural.
    """

    kind: str = "texts"


DEFAULT = Wording()


def of_keywords(wording: Wording, keywords: Sequence[str]) -> str:
    """Return the prompt for a list of keywords."""
    lines = [f"Say what groups of {wording.kind} are about, from their keywords alone.", ""]
    for example, about, name in _BY_KEYWORDS:
        lines += [f"Keywords: {example}", _answer(wording, about, name)]
    return "\n".join([*lines, f"Keywords: {', '.join(keywords)}", "Answer:"])


def of_statements(wording: Wording, inside: Sequence[str], outside: Sequence[str]) -> str:
    """Return the prompt for statements of a group, and of others near it if there are any."""
    lines = [f"Say what the {wording.kind} of each group have in common, which other {wording.kind} do not have.", ""]
    for own, others, about, name in _BY_STATEMENTS:
        lines += [*_definition_statements(own, others if outside else ()), _answer(wording, about, name), ""]
    return "\n".join([*lines, *_definition_statements(inside, outside), "Answer:"])


def _answer(wording: Wording, about: str, name: str) -> str:
    """Return an example's answer in the form of a prompt."""
    return "Answer: " + json.dumps({"description": f"These {wording.kind} are about {about}", "name": name})


def _definition_statements(inside: Sequence[str], outside: Sequence[str]) -> list[str]:
    return [*([f"Others: {' / '.join(outside)}"] if outside else []), f"Group: {' / '.join(inside)}"]


SENTENCES = (of_keywords(DEFAULT, ()), of_statements(DEFAULT, ("-",), ("-",)))
"""The words of both prompts, without anything released."""


MOST_WORDS = 10
"""Most words of a name."""
LONGEST_NAME = 70
"""Most characters of a name that the model writes."""
MOST_SENTENCES = 2
"""Most sentences of a description."""
MOST_KEYWORDS = 20
"""Most keywords of one cluster in the prompt."""
LONGEST_KEYWORD = 80
"""Most characters of one keyword in the prompt."""
LONGEST_STATEMENT = 100
"""Most characters of one statement in the prompt."""
IN_PLAIN_NAME = 3
"""Most keywords in the name of a plain form."""
_FRAME = ("deals", "concerns", "discusses", "mentions")
"""Words of a description that say nothing about its subject, beside stop words and vague ones."""

TOPIC: Schema = {
    "type": "object",
    "properties": {
        "description": {"type": "string", "minLength": 10, "maxLength": 240},
        "name": {"type": "string", "minLength": 3, "maxLength": LONGEST_NAME},
    },
    "required": ["description", "name"],
    "additionalProperties": False,
}
"""Schema of an answer. The description comes first, so that the name follows from it."""
SCHEMAS: tuple[Schema, ...] = (TOPIC,)
"""All schemas of this module, for which a `Writer` is prepared."""


@dataclass(frozen=True)
class Described(Topic):
    """A topic with a mark whether the model wrote it.

    Attributes:
        plain: True for the plain form: two answers of the model were unusable.
    """

    plain: bool = False


def is_plain(topic: Topic) -> bool:
    """Return whether the topic has the plain form, because the model's answers were unusable."""
    return isinstance(topic, Described) and topic.plain


@dataclass(frozen=True)
class Statements:
    """Summaries of units, without any protection: for public data alone.

    Attributes:
        inside: of units in the group.
        outside: of units near the group, as a contrast.
    """

    inside: tuple[str, ...]
    outside: tuple[str, ...]


def describe(write: Write, keyword_lists: Sequence[Sequence[str]], wording: Wording = DEFAULT) -> list[Topic]:
    """Write a name of at most ten words and a description of at most two sentences for each list of keywords.

    A list without keywords gets the plain form without a prompt.

    Args:
        keyword_lists: released keywords with support, the most telling first. The prompt has the first 20 of each.
    """
    prompt_lines = [mentioned_keywords(keywords, MOST_KEYWORDS, LONGEST_KEYWORD) for keywords in keyword_lists]
    return topics(
        write,
        prompt_lines,
        lambda _, keywords: of_keywords(wording, keywords),
        lambda record, keywords: supported_topic(record, keywords, wording),
        plain_topic,
    )


def describe_statements(write: Write, groups: Sequence[Statements], wording: Wording = DEFAULT) -> list[Topic]:
    """Describe as `describe` does, from statements of each group and, as a contrast, of its neighbours (G.2).

    A topic must mention two of a group's statements: one statement does not represent it. Statements are private,
    so this is for public data alone. A group's plain form is its first statement, cut.
    """
    inside = [mentioned_keywords(group.inside, len(group.inside), LONGEST_STATEMENT) for group in groups]
    outside = [mentioned_keywords(group.outside, len(group.outside), LONGEST_STATEMENT) for group in groups]
    return topics(
        write,
        inside,
        lambda n, lines: of_statements(wording, lines, outside[n]),
        lambda record, lines: topic_in(record, lines, 2),
        _plain_statement,
    )


def topics(
    write: Write,
    line_lists: Sequence[Sequence[str]],
    prompt: Callable[[int, Sequence[str]], str],
    read: Callable[[Record, Sequence[str]], Topic | None],
    plain: Callable[[Sequence[str]], Topic],
) -> list[Topic]:
    """Write a topic for each list of lines; a list without lines gets the plain form without a prompt.

    Args:
        prompt: builds the prompt from a list's number and its lines, in the order in which they are shown.
        read: parses an answer about lines; None if it is of no use.
        plain: the topic of lines without a useful answer.
    """
    prompted = [number for number, lines in enumerate(line_lists) if lines]
    rounds = [[prompt(number, line_lists[number][::way]) for number in prompted] for way in (1, -1)]
    parsed = answers(write, rounds, TOPIC, lambda place, record: read(record, line_lists[prompted[place]]))
    topic_by_number = dict(zip(prompted, parsed, strict=True))
    return [topic_by_number.get(number) or plain(lines) for number, lines in enumerate(line_lists)]


def supported_topic(record: Record, keywords: Sequence[str], wording: Wording = DEFAULT) -> Topic | None:
    """Return the topic of `topic_in`; None also if its name has an unsupported word, or lacks a plain keyword.

    The plain name has the keywords with the best evidence: without one of them a name is true of fewer units. Sentences
    of the description that have a word without support are left out; without any left it lists the keywords.
    """
    topic = topic_in(record, keywords)
    if topic is None or unsupported_words(topic.name, keywords):
        return None
    if any(unsupported_words(keyword, [topic.name]) for keyword in keywords[:IN_PLAIN_NAME]):
        return None
    words = (*keywords, *_FRAME, wording.kind)
    kept = [part for part in sentence_list(topic.description) if not unsupported_words(part, words)]
    return Described(topic.name, " ".join(kept) or _keyword_line(keywords))


def topic_in(record: Record, lines: Sequence[str], least: int = 1) -> Topic | None:
    """Parse the topic of an answer; None if it is empty, repeats itself, or does not mention its lines.

    An answer that repeats a sentence of an example is rejected too.
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
    """Return whether a topic mentions `lines`: its name has words of `least` of them, or its description of a third.

    So a name may be wider than all lines. A name from an example must have half of its words in the lines.
    """
    if plain_text(name) in SHOWN:
        words = name.split()
        return 2 * count_mentioned(" ".join(lines), words) >= len(words)
    least = min(least, len(lines))
    return count_mentioned(name, lines) >= least or count_mentioned(description, lines) >= max(least, len(lines) / 3)


def plain_topic(keywords: Sequence[str]) -> Topic:
    """Return the plain form of a cluster without a usable answer."""
    if not keywords:
        return Described(UNNAMED, "No keyword has enough support to name this topic.", plain=True)
    name = first_words(", ".join(keywords[:IN_PLAIN_NAME]), MOST_WORDS)
    return Described(name, _keyword_line(keywords), plain=True)


def mentioned_keywords(lines: Sequence[str], most: int, longest: int) -> tuple[str, ...]:
    """Return the `lines` of a prompt: the first `most`, each on one line, cut, without empty ones."""
    plain = (line(text, longest) for text in lines[:most])
    return tuple(text for text in plain if text)


def _keyword_line(keywords: Sequence[str]) -> str:
    return f"Keywords: {', '.join(keywords)}."


def _plain_statement(statements: Sequence[str]) -> Topic:
    if not statements:
        return plain_topic([])
    return Described(first_words(statements[0], MOST_WORDS), sentences(statements[0], MOST_SENTENCES), plain=True)
