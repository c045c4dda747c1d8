"""Templates of prompts: text with named places, parsed once and checked before anything is priced.

A place is written `{description}`, `{label}` or `{reference}`; a literal brace is doubled, `{{` or `}}`. Nothing else
may stand between braces: no format, no conversion, no attribute. What is filled in is never read as a template again,
so braces in a description, a label or a private text are plain characters.

The errors of `bad_template` have these codes:

    TemplateEmpty, TemplateTooLong
    BracesUnbalanced
    PlaceholderUnknown
    ReferenceMisplaced    `{reference}` where the public row would need one, or twice
    ReferenceMissing      a private template without it
    LabelMissing          labels are declared, and a row would not know its own
    LabelUnexpected       `{label}`, and no labels are declared
    TemplateUnused        a template or field that its form of prompt never shows
    SeparatorInExample    an example that contains the line between texts
    ControlTokens         a token that structures the conversation, spelt out
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
            raise bad_template("TemplateEmpty", field, "is empty", "Write it, or leave it out for the default wording.")
        if len(text) > LONGEST_TEMPLATE:
            raise bad_template(
                "TemplateTooLong", field, f"is longer than {LONGEST_TEMPLATE} characters", "Say it in fewer words."
            )
        template = cls(field, _parts(field, text))
        for name in template.places:
            if name == REFERENCE and name not in PLACES[field]:
                raise _reference_misplaced(field, "every row reads this template, also the public one")
            if name not in PLACES[field]:
                raise _placeholder_unknown(field, name)
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
                raise _placeholder_unknown(field, f"{name}{'!' + conversion if conversion else ''}{':' + (form or '')}")
            parts.append((literal, name))
    except ValueError:
        raise bad_template(
            "BracesUnbalanced",
            field,
            "has a brace that belongs to no placeholder",
            "Write a literal brace twice: {{ or }}.",
        ) from None
    return tuple(parts)


def _require_one_reference(template: Template) -> None:
    count = template.places.count(REFERENCE)
    if template.field == "private" and count == 0:
        raise bad_template(
            "ReferenceMissing",
            template.field,
            "has no {reference}: the private rows would never see a private text",
            "Add it where it belongs.",
        )
    if count > 1:
        raise _reference_misplaced(template.field, "a private text is shown once")


def bad_template(code: str, field: str, reason: str, advice: str) -> UsageError:
    """Return the error of a template of `prompt:` that cannot be used; templates are public, so it may quote them."""
    what = "template" if field in PLACES else "field"
    return UsageError(
        f"The {what} `prompt.{field}` {reason}.", f"{advice} See docs/requests.md.", {"template": field}, code=code
    )


def _placeholder_unknown(field: str, name: str) -> UsageError:
    places = ", ".join(f"{{{place}}}" for place in PLACES[field])
    return bad_template(
        "PlaceholderUnknown",
        field,
        f"has an unknown placeholder {{{name}}}",
        f"It may have {places}; write a literal brace twice: {{{{ or }}}}.",
    )


def _reference_misplaced(field: str, reason: str) -> UsageError:
    return bad_template(
        "ReferenceMisplaced", field, f"must not have {{reference}} there: {reason}", "Only `private` has it, once."
    )


def control_token_written(field: str) -> UsageError:
    """Return the error of a token that structures the prompt, spelt out in a template, label, example or separator."""
    return bad_template(
        "ControlTokens",
        field,
        "contains a control token of the model once it is filled in",
        "Write plain text: control tokens come from the model's own chat template and tokenizer.",
    )
