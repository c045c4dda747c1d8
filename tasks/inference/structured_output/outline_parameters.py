"""Outline of a request's texts: titles that are drawn first, and the sections that are written under them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Self

from pydantic import BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import ExactDecimal, RequestModel
from tasks.accounting.rounding import exact
from tasks.inference.structured_output.form_parameters import form_of
from tasks.inference.structured_output.schema_parameters import schema_of
from tasks.values.generated import GeneratedText

LEAST_SECTION = 8
"""Draws that every section must have on average."""
LEAD = "Outline:"
"""The public line above the titles, in what the model reads; no part of a released text."""
_WORDING_TOKENS, _SECTION_TOKENS = 16, 24
"""The most tokens of the public words of an outline, and of those around each title: one for each byte at worst."""


class Outline(RequestModel):
    """How texts are divided into sections; every field is public.

    Attributes:
        sections: S, how many titles are drawn, and sections written.
        tokens: n, draws of a text that pay for the outline: its titles have n / S tokens at most.
        share: the part of the rho of all draws that buys the first n. None: n / T, so that each draw costs the same.
        headings: whether a released section has its title above it. The list of titles is never released.
    """

    sections: Annotated[int, Field(ge=2, le=20)]
    tokens: Annotated[int, Field(ge=4, le=1_000)]
    share: Annotated[ExactDecimal, Field(gt=0, lt=1)] | None = None
    headings: bool = True

    @model_validator(mode="after")
    def _titles_have_tokens(self) -> Self:
        if self.title_tokens < 2:
            raise OutlineTooShort(self.sections, self.tokens)
        return self

    @property
    def title_tokens(self) -> int:
        """Draws of one title at most."""
        return self.tokens // self.sections

    @property
    def uncharged_tokens(self) -> int:
        """How many tokens of a text are no draws, at most: public words, and titles that are said again as headings."""
        return _WORDING_TOKENS + self.sections * (_SECTION_TOKENS + self.title_tokens)

    def share_of(self, draws: int) -> Fraction:
        """Return the part of rho that buys the first n of so many draws of a text."""
        return Fraction(self.tokens, draws) if self.share is None else exact(self.share)


class OutlineParameters(RequestModel):
    """`outline` in a system's `parameters:`; None writes texts in one go."""

    outline: Outline | None = None

    @property
    def outline_tokens(self) -> int:
        """How many tokens beyond its draws a text has at most, because it has an outline."""
        return 0 if self.outline is None else self.outline.uncharged_tokens

    @model_validator(mode="after")
    def _outline_fits(self) -> Self:
        if self.outline is None:
            return self
        others = {"form": form_of(self), "schema": schema_of(self)}
        others |= {name: getattr(self, name, None) for name in ("complete_sentence", "free_above")}
        for name, value in others.items():
            if value is not None:
                raise OutlineConflict(name)
        draws, needed = (
            getattr(self, "max_new_tokens", None),
            self.outline.tokens + self.outline.sections * LEAST_SECTION,
        )
        if draws is not None and draws < needed:
            raise OutlineTooLong(draws, needed)
        return self


def outline_of(parameters: BaseModel) -> Outline | None:
    """Return the outline that a system's parameters ask for; None if there is none."""
    return parameters.outline if isinstance(parameters, OutlineParameters) else None


def has_grammar(parameters: BaseModel) -> bool:
    """Return whether texts are held to a schema, a form or an outline while they are drawn."""
    is_held = schema_of(parameters) is not None and getattr(parameters, "constrained", False)
    return is_held or form_of(parameters) is not None or outline_of(parameters) is not None


def outline_facts(parameters: BaseModel) -> dict[str, str]:
    """Return facts about the outline, for people."""
    outline = outline_of(parameters)
    if outline is None:
        return {}
    shown = "each under its title" if outline.headings else "without their titles"
    return {
        "outline": f"{outline.sections} titles of at most {outline.title_tokens} tokens are drawn first; the sections"
        f" are drawn with it in the prompt, and released {shown}"
    }


def sections_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and the words of each section of a text as it was drawn; none of one that was cut before.

    Where a heading stands beside a broken character, a tokenizer with byte fallback may decode none: then its words
    belong to the section before.
    """
    outline, _, body = text.partition("\n\n")
    titles = [line.partition(". ")[2] for line in outline.split("\n")[1:]]
    rest = f"\n\n{body}"
    for number, title in enumerate(titles, 1):
        _, rest = _around_heading(rest, title)
        words = _around_heading(rest, titles[number])[0] if number < len(titles) else rest
        if words.strip():
            yield title, words.strip()


def without_outline(texts: Sequence[GeneratedText], parameters: BaseModel) -> list[GeneratedText]:
    """Return the texts as they are released, without the list of titles: a function of drawn tokens alone."""
    outline = outline_of(parameters)
    if outline is None:
        return list(texts)
    written = []
    for text in texts:
        parts = [f"{title}\n{words}" if outline.headings else words for title, words in sections_of(text.text)]
        written.append(replace(text, text="\n\n".join(parts)))
    return written


def _around_heading(text: str, title: str) -> tuple[str, str]:
    """Return what stands before the first heading of that title, and behind it; nothing behind where there is none."""
    found = re.search(rf"\n\n# {re.escape(title)}(\n|\Z)", text)
    return (text, "") if found is None else (text[: found.start()], text[found.end() :])


class OutlineTooShort(UsageError):
    """Titles of less than two tokens."""

    def __init__(self, sections: int, tokens: int) -> None:
        super().__init__(
            f"{tokens} tokens make no outline of {sections} titles: each needs two at least.",
            f"Set `parameters.outline.tokens` to {10 * sections}, or ask for fewer `sections`.",
            {"sections": sections, "tokens": tokens},
        )


class OutlineTooLong(UsageError):
    """An outline that leaves too few draws for its sections."""

    def __init__(self, tokens: int, needed: int) -> None:
        super().__init__(
            f"A text of this outline needs {needed} draws at least, {LEAST_SECTION} for each section beside those of"
            f" the outline; `max_new_tokens` is {tokens}.",
            f"Set `max_new_tokens` to {needed} or, better, to several times that, or ask for fewer sections.",
            {"max_new_tokens": tokens, "needed": needed},
        )


class OutlineConflict(UsageError):
    """An outline beside a parameter that decides as well what the next token is, or where a text ends."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"A release has an `outline` or `{name}`, not both: an outline says itself where sections begin and end.",
            f"Leave `parameters.{name}` or `parameters.outline` out.",
            {"parameter": name},
        )
