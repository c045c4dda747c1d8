"""Form: public text with slots, and its parameters in a request. A constrained text has words of its own in the slots.

`The product is a {type}. Customers praise its {strength}, but some complain about {weakness}.`

A slot is written `{name}`; a literal brace is doubled, `{{` or `}}`. Only the tokens of the slots are a choice; all
others follow from the form, which is public, and from where the slots before them have ended (DP summarization,
section 4, guides its decoder with such templates). The request also says how long a slot may be.

FormInvalid (UsageError), FormTooLong (UsageError)
"""

import re
import unicodedata
from dataclasses import dataclass
from string import Formatter
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel
from tasks.inference.structured_output.json_schema import schema_of

LONGEST_FORM = 4000
"""Characters of a form at most."""
MOST_SLOTS = 64
"""Slots of a form at most."""

_NAME = re.compile(r"[A-Za-z0-9_]{1,40}")


@dataclass(frozen=True)
class Form:
    """The literal text of a form, and the slots in it.

    Attributes:
        literals: what stands before, between and after the slots; one more than there are slots. The first and the
            last may be empty.
        slots: the names of the slots, in order; a name may come more than once, and means nothing to the machine.
    """

    literals: tuple[str, ...]
    slots: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "Form":
        """Read a form and check it. Space around it does not count.

        Raises:
            FormInvalid: too long, braces that do not match, what is no name, no slot, too many, no literal text, two
                slots with nothing but spaces between, or characters that nobody can see.
        """
        if len(text) > LONGEST_FORM:
            raise _form_invalid(f"it is longer than {LONGEST_FORM} characters")
        literals, slots = _cut(unicodedata.normalize("NFC", text).strip())
        if not slots:
            raise _form_invalid("it has no slot")
        if len(slots) > MOST_SLOTS:
            raise _form_invalid(f"it has more than {MOST_SLOTS} slots")
        form = cls(tuple(literals), tuple(slots))
        form._check_literals()
        return form

    def _check_literals(self) -> None:
        for before, literal in zip(self.slots, self.literals[1:-1], strict=False):
            if not literal.strip(" "):
                raise _form_invalid(f"nothing stands between the slot {{{before}}} and the next one")
        if not "".join(self.literals):
            raise _form_invalid("it has no text beside its slots")
        if not all(letter.isprintable() or letter == "\n" for literal in self.literals for letter in literal):
            raise _form_invalid("it has a character that cannot be printed")

    def draws(self, slot_tokens: int) -> int:
        """Return how many tokens of a text are a choice, at most, when a slot has at most `slot_tokens` tokens.

        The token that ends a slot is a choice too, but after `slot_tokens` others it is forced: so a slot never makes
        more than `slot_tokens` choices.
        """
        return len(self.slots) * slot_tokens

    def filled(self, contents: "tuple[str, ...] | list[str]") -> str:
        """Return the text with `contents` in the slots, one for each."""
        pairs = zip(self.literals, (*contents, ""), strict=True)
        return "".join(literal + content for literal, content in pairs)


def _cut(text: str) -> tuple[list[str], list[str]]:
    """Literals and slot names; one literal more than slots."""
    literals, slots = [""], []
    try:
        for literal, name, form, conversion in Formatter().parse(text):
            literals[-1] += literal
            if name is None:
                continue
            if form or conversion or not _NAME.fullmatch(name):
                raise _form_invalid("a slot's name has letters, digits and _ only, at most 40 of them")
            slots.append(name)
            literals.append("")
    except ValueError:
        raise _form_invalid("it has a brace that belongs to no slot") from None
    return literals, slots


def _form_invalid(reason: str) -> UsageError:
    """Return the error of a form that cannot be used; forms are public, so the message may quote them."""
    return UsageError(
        f"The form `parameters.form` cannot be used: {reason}.",
        "Write text with slots, such as `It is a {type}.`, and a literal brace twice: {{ or }}. See docs/forms.md.",
        {"reason": reason},
        code="FormInvalid",
    )


def form_too_long(needed: int, limit: int) -> UsageError:
    """Return the error of a form whose longest text does not fit into the token limit."""
    return UsageError(
        f"A text of this form has up to {needed} tokens, its end included; `max_new_tokens` is {limit}.",
        f"Set `max_new_tokens` to {needed} (tokens of the form cost nothing), or shorten the form or its slots.",
        {"needed": needed, "max_new_tokens": limit},
        code="FormTooLong",
    )


def _usable_form(form: str | None) -> str | None:
    if form is not None:
        Form.read(form)
    return form


class FormParameters(RequestModel):
    """The part of a system's `parameters:` that is about forms; every one is public.

    Attributes:
        form: the text with slots that every text of the release follows (docs/forms.md); a refusal is `FormInvalid`.
        slot_tokens: tokens that a slot has at most.
    """

    form: Annotated[str | None, AfterValidator(_usable_form)] = None
    slot_tokens: Annotated[int, Field(ge=1, le=64)] = 6

    @model_validator(mode="after")
    def _one_grammar(self) -> Self:
        require_one_grammar(self)
        return self


def form_of(parameters: BaseModel) -> Form | None:
    """Return the form that a system's parameters declare; None if there is none."""
    if not isinstance(parameters, FormParameters) or parameters.form is None:
        return None
    return Form.read(parameters.form)


def form_facts(settings: BaseModel) -> dict[str, str]:
    """Return facts about the use of a form, for people."""
    form = form_of(settings)
    if form is None or not isinstance(settings, FormParameters):
        return {}
    slots = f"{len(form.slots)} slot{'s' if len(form.slots) > 1 else ''} of at most {settings.slot_tokens} tokens"
    return {"form": f"{slots}; all other tokens are the form's and are not drawn"}


def has_grammar(parameters: BaseModel) -> bool:
    """Return whether texts are held to a schema or a form while they are drawn."""
    is_held = schema_of(parameters) is not None and getattr(parameters, "constrained", False)
    return is_held or form_of(parameters) is not None


def require_one_grammar(parameters: BaseModel) -> None:
    """Check that texts are held to a schema or to a form, not to both.

    Raises:
        FormAndSchema: they are.
    """
    if form_of(parameters) is not None and schema_of(parameters) is not None:
        raise UsageError(
            "A release has a `schema` or a `form`, not both.",
            "Leave out `parameters.form` for records, and `parameters.schema` for texts.",
            code="FormAndSchema",
        )
