"""Prompts for names and descriptions of clusters: our own wording after Urania, appendices G.2 and G.4.

A small model follows an example better than an instruction, so prompts show answers first. In them the description
comes first and repeats its keywords.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.text.output_cleaning import plain_text

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
