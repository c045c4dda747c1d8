"""Prompt specification of a release: the request's templates, completed from its preset and checked together.

A conversation (`form: chat`) has two shapes. In two turns, `public` asks for a text, the private reference stands as
the answer, and `again` asks for another. In one turn, `private` is the whole message of a private row, with
`{reference}` in it. In both, the public row gets `public`, and everything before the reference is the same for all
private rows. Public examples are earlier answers of the conversation, in every row: each is asked for by `public`, in
two turns from the second on by `again`, which then is the public row's last question, too.

A completion (`form: completion`) is a text that the model goes on with: `public`, then the examples, then in a private
row the reference, each followed by the separator, which is a line of its own.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import Prompt, PromptForm, model_to_json
from tasks.inference.prompts.presets import COMPLETION, COMPLETION_LABELLED, DEFAULT, PRESETS, SEPARATOR
from tasks.inference.prompts.separator import text_before
from tasks.inference.prompts.templates import (
    DESCRIPTION,
    LABEL,
    Template,
    bad_template,
)

Default = TypeVar("Default", str, str | None)

TEMPLATES = ("system", "public", "private", "again")
"""The templates of a prompt, in the order in which people read them."""

ONLY_IN_CHAT: Final = ("preset", "system", "private", "again", "date")
ONLY_IN_COMPLETION: Final = ("separator",)

DEFAULT_DATE: Final = "2026-01-01"
"""Date of prompts that name no day: fixed, so that a request's prompt is the same at any time."""


@dataclass(frozen=True)
class PromptSpec:
    """The complete wording of a release; all of it is public and on the card.

    Attributes:
        description: what the texts are.
        system, public: templates of every row.
        private: the message of a private row in one turn; None in two turns.
        again: the second request in two turns.
        date: the day that a chat template gets instead of today, YYYY-MM-DD.
        form: `chat` or `completion`; a completion reads `public`, `examples` and `separator` alone.
        examples: public texts of the described kind, which every row reads.
        separator: the line behind each part of a completion prompt; a text ends where it is drawn.
    """

    description: str
    system: str = DEFAULT.system
    public: str = DEFAULT.public
    private: str | None = None
    again: str = DEFAULT.again
    date: str = DEFAULT_DATE
    form: PromptForm = "chat"
    examples: tuple[str, ...] = ()
    separator: str = SEPARATOR

    @classmethod
    def of(cls, prompt: Prompt, labels: Sequence[str] = ()) -> "PromptSpec":
        """Return the wording of a request: its own, then its preset's, then the default.

        Args:
            labels: the labels that the request declares.

        Raises:
            `bad_template`: a template is unfit by itself, or does not fit the labels or the form.
        """
        spec = cls._completion(prompt, labels) if prompt.form == "completion" else cls._chat(prompt, labels)
        _require_fit(spec.templates, labelled=bool(labels))
        return spec

    @classmethod
    def _completion(cls, prompt: Prompt, labels: Sequence[str]) -> "PromptSpec":
        _require_unset(prompt, ONLY_IN_CHAT, "in `prompt.form: completion`")
        separator = _with_default(prompt.separator, SEPARATOR)
        for number, example in enumerate(prompt.examples, 1):
            if text_before(separator, f"{example}\n") is not None:
                raise bad_template(
                    "SeparatorInExample",
                    "examples",
                    f"has the line {separator!r} in its text number {number}, which is the line between texts",
                    "Remove that line, or choose another `prompt.separator`.",
                )
        return cls(
            description=prompt.description,
            public=_with_default(prompt.public, COMPLETION_LABELLED if labels else COMPLETION),
            form="completion",
            examples=prompt.examples,
            separator=separator,
        )

    @classmethod
    def _chat(cls, prompt: Prompt, labels: Sequence[str]) -> "PromptSpec":
        _require_unset(prompt, ONLY_IN_COMPLETION, "without `prompt.form: completion`")
        base = PRESETS[prompt.preset] if prompt.preset else DEFAULT
        if prompt.private is not None and prompt.again is not None:
            raise _template_unused("again", "beside `prompt.private`, which is the whole message of a private row")
        one_turn = base.private_labelled if labels else base.private
        return cls(
            description=prompt.description,
            system=_with_default(prompt.system, base.system),
            public=_with_default(prompt.public, base.labelled if labels else base.public),
            private=_with_default(prompt.private, one_turn) if prompt.again is None else None,
            again=_with_default(prompt.again, base.again),
            date=prompt.date or DEFAULT_DATE,
            examples=prompt.examples,
        )

    @property
    def day(self) -> datetime.date:
        """Return the day that a chat template gets."""
        return datetime.date.fromisoformat(self.date)

    @property
    def templates(self) -> dict[str, str]:
        """The templates that rows are shown, by name."""
        if self.form == "completion":
            return {"public": self.public}
        shown = {name: getattr(self, name) for name in TEMPLATES}
        del shown["again" if self.private is not None else "private"]
        return shown

    @property
    def wording(self) -> dict[str, str]:
        """Everything that rows are shown beside the description, by name, for people: as `wording_of`."""
        fields = self.templates | _example_fields(self) if self.form == "chat" else _completion_fields(self)
        return wording_of(fields)

    @property
    def end(self) -> str | None:
        """Return the line that ends a text; None if end tokens alone do."""
        return self.separator if self.form == "completion" else None

    def fill(self, name: str, label: str | None, reference: str = "") -> str:
        """Return a filled template; `reference` stands for the private text, which is never included here."""
        values = {DESCRIPTION: self.description.strip(), LABEL: label or "", "reference": reference}
        return Template.read(name, self.templates[name]).fill(values)


def prompt_json(prompt: Prompt, labels: Sequence[str] = ()) -> dict[str, Json]:
    """Return the prompt as a request stores it: written out in full, so that its words are approved and never change.

    A prompt in the default wording is stored as its description alone, as it always was.

    Raises:
        `bad_template`: as `PromptSpec.of`.
    """
    spec = PromptSpec.of(prompt, labels)
    written = model_to_json(prompt)
    if not isinstance(written, dict):
        raise TypeError("a prompt is stored as an object")
    if spec.form == "completion":
        return written | _completion_fields(spec)
    if set(written) == {"description"} and not labels:
        return written
    return written | spec.templates


def wording_of(stored: Mapping[str, Any]) -> dict[str, str]:
    """Return the words of a stored prompt beside its description, by name, in the order in which people read them."""
    examples = stored.get("examples") or ()
    words = {
        **{name: stored.get(name) for name in ("form", *TEMPLATES)},
        **{f"example {number}": text for number, text in enumerate(examples, 1)},
        **{name: stored.get(name) for name in ("separator", "date")},
    }
    return {name: str(text) for name, text in words.items() if text is not None}


def _completion_fields(spec: PromptSpec) -> dict[str, Json]:
    """Return the fields of a completion prompt as a request stores them."""
    return {"form": spec.form, **spec.templates, **_example_fields(spec), "separator": spec.separator}


def _example_fields(spec: PromptSpec) -> dict[str, Json]:
    """Return the examples as a request stores them; a list that is empty is absent."""
    return {"examples": list(spec.examples)} if spec.examples else {}


def _template_unused(field: str, where: str) -> UsageError:
    return bad_template("TemplateUnused", field, f"is not used {where}", "Leave one of the two out.")


def _require_unset(prompt: Prompt, names: Sequence[str], where: str) -> None:
    for name in names:
        if getattr(prompt, name):
            raise _template_unused(name, where)


def _with_default(value: str | None, default: Default) -> str | Default:
    return default if value is None else value


def _require_fit(templates: dict[str, str], *, labelled: bool) -> None:
    """Check each template, and that the prompts of all rows or of none name the label."""
    read = {name: Template.read(name, text) for name, text in templates.items()}
    having = {name for name, template in read.items() if LABEL in template.places}
    if not labelled:
        for name in sorted(having):
            raise bad_template(
                "LabelUnexpected",
                name,
                "has {label}, and the request declares no labels",
                "Declare them as `parameters.labels`, or leave it.",
            )
        return
    for template_name in ("public", "private" if "private" in read else "public"):
        if not having & {"system", template_name}:
            raise bad_template(
                "LabelMissing",
                template_name,
                "has no {label}, and the request declares labels",
                "Add it there or to `system`: every row must know its label.",
            )
