"""Templates of prompts: text with named places, parsed once and checked before anything is priced.

A place is written `{description}`, `{label}` or `{reference}`; a literal brace is doubled, `{{` or `}}`. Nothing else
may stand between braces: no format, no conversion, no attribute. What is filled in is never read as a template again,
so braces in a description, a label or a private text are plain characters.

BadTemplate (UsageError)
├── TemplateEmpty, TemplateTooLong
├── BracesUnbalanced
├── PlaceholderUnknown
├── ReferenceMisplaced    `{reference}` where the public row would need one, or twice
├── ReferenceMissing      a private template without it
├── LabelMissing          labels are declared, and a row would not know its own
├── LabelUnexpected       `{label}`, and no labels are declared
├── TemplateUnused        a template or field that its form of prompt never shows
├── SeparatorInExample    an example that contains the line between texts
└── ControlTokens         a token that structures the conversation, spelt out
"""

from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from models_db.errors import UsageError

LONGEST_TEMPLATE = 8000
"""Characters of one template."""

REFERENCE = "reference"
LABEL = "label"
DESCRIPTION = "description"

_EVERYWHERE = (DESCRIPTION, LABEL)
PLACES: Mapping[str, tuple[str, ...]] = {
    "system": _EVERYWHERE,
    "public": _EVERYWHERE,
    "again": _EVERYWHERE,
    "private": (*_EVERYWHERE, REFERENCE),
}
"""Placeholders that each template of a prompt may contain."""


@dataclass(frozen=True)
class Template:
    """One template, cut at its places.

    Attributes:
        field: its name in the request, such as `public`.
        parts: literal text, and the place that follows it (None at the end).
    """

    field: str
    parts: tuple[tuple[str, str | None], ...]

    @classmethod
    def read(cls, field: str, text: str) -> "Template":
        """Read and check one template by itself.

        Raises:
            TemplateEmpty, TemplateTooLong, BracesUnbalanced, PlaceholderUnknown, ReferenceMisplaced, ReferenceMissing.
        """
        if not text.strip():
            raise TemplateEmpty(field)
        if len(text) > LONGEST_TEMPLATE:
            raise TemplateTooLong(field)
        template = cls(field, _parts(field, text))
        for name in template.places:
            if name == REFERENCE and name not in PLACES[field]:
                raise ReferenceMisplaced(field, "every row reads this template, also the public one")
            if name not in PLACES[field]:
                raise PlaceholderUnknown(field, name)
        _require_one_reference(template)
        return template

    @property
    def places(self) -> list[str]:
        """The names of its places, in order."""
        return [name for _, name in self.parts if name is not None]

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text with every place filled in."""
        return "".join(literal + (values[name] if name is not None else "") for literal, name in self.parts)


def _parts(field: str, text: str) -> tuple[tuple[str, str | None], ...]:
    parts: list[tuple[str, str | None]] = []
    try:
        for literal, name, form, conversion in Formatter().parse(text):
            if form or conversion:
                raise PlaceholderUnknown(field, f"{name}{'!' + conversion if conversion else ''}{':' + (form or '')}")
            parts.append((literal, name))
    except ValueError:
        raise BracesUnbalanced(field) from None
    return tuple(parts)


def _require_one_reference(template: Template) -> None:
    count = template.places.count(REFERENCE)
    if template.field == "private" and count == 0:
        raise ReferenceMissing(template.field)
    if count > 1:
        raise ReferenceMisplaced(template.field, "a private text is shown once")


class BadTemplate(UsageError):
    """A template of `prompt:` that cannot be used. Templates are public, so messages may quote them."""

    def __init__(self, field: str, reason: str, advice: str) -> None:
        what = "template" if field in PLACES else "field"
        super().__init__(
            f"The {what} `prompt.{field}` {reason}.", f"{advice} See docs/requests.md.", {"template": field}
        )


class TemplateEmpty(BadTemplate):
    """A template of white space only."""

    def __init__(self, field: str) -> None:
        super().__init__(field, "is empty", "Write it, or leave it out for the default wording.")


class TemplateTooLong(BadTemplate):
    """Beyond `LONGEST_TEMPLATE` characters."""

    def __init__(self, field: str) -> None:
        super().__init__(field, f"is longer than {LONGEST_TEMPLATE} characters", "Say it in fewer words.")


class BracesUnbalanced(BadTemplate):
    """A brace that opens or closes nothing."""

    def __init__(self, field: str) -> None:
        super().__init__(field, "has a brace that belongs to no placeholder", "Write a literal brace twice: {{ or }}.")


class PlaceholderUnknown(BadTemplate):
    """A placeholder that is none."""

    def __init__(self, field: str, name: str) -> None:
        places = ", ".join(f"{{{place}}}" for place in PLACES[field])
        super().__init__(
            field,
            f"has an unknown placeholder {{{name}}}",
            f"It may have {places}; write a literal brace twice: {{{{ or }}}}.",
        )


class ReferenceMisplaced(BadTemplate):
    """A placeholder of the private text in a wrong template, or twice."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(field, f"must not have {{reference}} there: {reason}", "Only `private` has it, once.")


class ReferenceMissing(BadTemplate):
    """A private template without a private text."""

    def __init__(self, field: str) -> None:
        super().__init__(
            field, "has no {reference}: the private rows would never see a private text", "Add it where it belongs."
        )


class LabelMissing(BadTemplate):
    """Rows of different labels would get the same prompt."""

    def __init__(self, field: str) -> None:
        super().__init__(
            field,
            "has no {label}, and the request declares labels",
            "Add it there or to `system`: every row must know its label.",
        )


class LabelUnexpected(BadTemplate):
    """A label's place without labels."""

    def __init__(self, field: str) -> None:
        super().__init__(
            field,
            "has {label}, and the request declares no labels",
            "Declare them as `parameters.labels`, or leave it.",
        )


class TemplateUnused(BadTemplate):
    """A template or field that would never be shown."""

    def __init__(
        self, field: str, where: str = "beside `prompt.private`, which is the whole message of a private row"
    ) -> None:
        super().__init__(field, f"is not used {where}", "Leave one of the two out.")


class SeparatorInExample(BadTemplate):
    """An example that the separator would cut in two."""

    def __init__(self, number: int, separator: str) -> None:
        super().__init__(
            "examples",
            f"has the line {separator!r} in its text number {number}, which is the line between texts",
            "Remove that line, or choose another `prompt.separator`.",
        )


class ControlTokens(BadTemplate):
    """A token that structures the prompt, spelt out in a template, a label, an example or a separator."""

    def __init__(self, field: str) -> None:
        super().__init__(
            field,
            "contains a control token of the model once it is filled in",
            "Write plain text: control tokens come from the model's own chat template and tokenizer.",
        )
