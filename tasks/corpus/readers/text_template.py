r"""Template of a document's text: one field, or several between literal characters.

`note` is the field `note`. `{title}\n\n{body}` is the fields `title` and `body` with an empty line between them: `\n`
is a line break, `{{` and `}}` are braces. A template is public; the dataset's registration fixes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import Formatter

from models_db.errors import UsageError
from models_db.values.printable_text import is_visible
from tasks.corpus.identity.null_spellings import spells_missing_text


@dataclass(frozen=True)
class TextTemplate:
    """Template of a text.

    Attributes:
        written: the template as it was written.
        parts: the literal characters before a field, and the field's name; None after the last field.
        composed: whether it is a template, and not the name of a field.
    """

    written: str
    parts: tuple[tuple[str, str | None], ...]
    composed: bool

    @classmethod
    def parse(cls, written: str) -> "TextTemplate":
        """Parse the name of a field or a template.

        Raises:
            TextTemplateInvalid: it has a brace that is neither part of a place nor written twice, or no place.
        """
        if "{" not in written and "}" not in written:
            return cls(written, (("", written),), composed=False)
        try:
            parts = tuple(Formatter().parse(written.replace("\\n", "\n")))
        except ValueError:
            raise _text_template_invalid(written) from None
        if any(name == "" or form or conversion for _, name, form, conversion in parts):
            raise _text_template_invalid(written)
        template = cls(written, tuple((literal, name) for literal, name, _, _ in parts), composed=True)
        if not template.fields:
            raise _text_template_invalid(written)
        return template

    def __str__(self) -> str:
        return self.written

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of its fields, each once, in the order of the template."""
        return tuple(dict.fromkeys(name for _, name in self.parts if name is not None))

    @cached_property
    def optional_fields(self) -> frozenset[str]:
        """The fields that a record may lack: those of a template, which are empty then."""
        return frozenset(self.fields if self.composed else ())

    def text_of(self, record: Mapping[str, object]) -> str | None:
        """Return the text of a record; None if it has none.

        The text of a field stands as it is in the source. In a template a missing field is empty, an integer is its
        digits, and white space around the whole is removed; without one field that is filled there is no text. A
        field is filled if a reader sees something in it that is no word for a missing value.
        """
        if not self.composed:
            text = record.get(self.fields[0])
            return text if isinstance(text, str) and _is_filled(text) else None
        values = {name: _value_text(record.get(name)) for name in self.fields}
        if None in values.values() or not any(value and _is_filled(value) for value in values.values()):
            return None
        return "".join(literal + (values[name] or "" if name else "") for literal, name in self.parts).strip()


def _is_filled(text: str) -> bool:
    return is_visible(text) and not spells_missing_text(text)


def _value_text(value: object) -> str | None:
    """Return a value as text; None if it is neither a string nor an integer nor missing."""
    if value is None:
        return ""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _text_template_invalid(written: str) -> UsageError:
    return UsageError(
        f"The text {written!r} is neither the name of a field nor a template with places such as {{title}}.",
        "Write a field's name, or for instance '{title}\\n\\n{body}'; a literal brace is written twice.",
        {"text": written},
        code="TextTemplateInvalid",
    )
