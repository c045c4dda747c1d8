"""Prompt specification of a release: the request's templates, completed from its preset and checked together.

A conversation (`form: chat`) has two shapes. In two turns, `public` asks for a text, the private reference stands as
the answer, and `again` asks for another. In one turn, `private` is the whole message of a private row, with
`{reference}` in it. In both, the public row gets `public`, and everything before the reference is the same for all
private rows. Public examples are earlier answers of the conversation, in every row: each is asked for by `public`, in
two turns from the second on by `again`, which then is the public row's last question, too.

A completion (`form: completion`) is a text that the model goes on with: `public`, then the examples, then in a private
row the reference, each followed by the separator, which is a line of its own. A text that is written ends at such a
line, too. That is a function of the text alone: applied to what was drawn it is post-processing of released tokens, so
the rule by which a text ends costs nothing and says nothing that its tokens do not say.

Presets are the default wording, a shorter one, and one for each common kind of text. Nearly all of them have two turns;
the wording for summaries has one: what one unit wrote, and the task. The words are ours; the idea of a wording per
domain is InvisibleInk's (App. C). The default wording never changes: requests that name neither templates nor a preset
are stored without any. Whatever else is used is written out in the request, so a better word here changes no request
that is stored.

A template is text with named places, parsed once and checked before anything is priced. A place is written
`{description}`, `{label}` or `{reference}`; a literal brace is doubled, `{{` or `}}`. Nothing else may stand between
braces: no format, no conversion, no attribute. What is filled in is never read as a template again, so braces in a
description, a label or a private text are plain characters. The errors of `bad_template` have these codes:

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

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final, TypeVar

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import Preset, Prompt, PromptForm, model_to_json


@dataclass(frozen=True)
class PromptWording:
    """The templates of a prompt in two turns, or in one.

    Attributes:
        system: the system message of every row.
        public: the request; all that a public row is asked.
        labelled: the request where labels are declared.
        again: the second request of a private row, after the reference, in two turns.
        private, private_labelled: all that a private row is asked, in one turn; None in two.
    """

    system: str
    public: str
    labelled: str
    again: str
    private: str | None = None
    private_labelled: str | None = None


DEFAULT_WORDING = PromptWording(
    system="You write realistic texts. Reply with the text alone.",
    public="{description}\n\nWrite one.",
    labelled="{description}\n\nCategory: {label}\n\nWrite one of this category.",
    again="Write another.",
)

COMPLETION, COMPLETION_LABELLED = "{description}", "{description}\n\nCategory: {label}"
"""Default beginning of a completion prompt, without labels and with them."""

DEFAULT_SEPARATOR = "###"
"""Default line between the texts of a completion prompt."""

PRESETS: Mapping[Preset, PromptWording] = {
    "brief": PromptWording(
        system="Reply with the text alone.",
        public="{description}\n\nOne:",
        labelled="{description}\n\nCategory: {label}\n\nOne of this category:",
        again="Another:",
    ),
    "clinical": PromptWording(
        system=(
            "You write fictional clinical records as health professionals write them: terse, with the usual headings,"
            " abbreviations, doses and values. Every person in them is invented. Reply with the record alone."
        ),
        public="Kind of record: {description}\n\nWrite one complete record of this kind.",
        labelled="Kind of record: {description}\nCategory: {label}\n\nWrite one complete record of this category.",
        again="Write the record of another patient, in the same style and of about the same length.",
    ),
    "court": PromptWording(
        system=(
            "You write fictional passages of court documents: formal, in numbered paragraphs, with procedure, facts and"
            " reasoning in the usual order. Parties, places and dates are invented. Reply with the passage alone."
        ),
        public="Kind of document: {description}\n\nWrite one such passage.",
        labelled="Kind of document: {description}\nCategory: {label}\n\nWrite one such passage of this category.",
        again="Write the passage of another case, in the same style and of about the same length.",
    ),
    "review": PromptWording(
        system=(
            "You write reviews as customers write them: in the first person, about one visit or purchase, with an"
            " opinion and its reasons, in everyday language. Reply with the review alone."
        ),
        public="What is reviewed: {description}\n\nWrite one review.",
        labelled="What is reviewed: {description}\nCategory: {label}\n\nWrite one review of this category.",
        again="Write a review by another customer, in the same style and of about the same length.",
    ),
    "chat": PromptWording(
        system=(
            "You write conversations and messages as people type them: short turns, each behind the name of who speaks,"
            " with the slips and shortcuts of everyday talk. Everybody is invented. Reply with the conversation alone."
        ),
        public="Kind of conversation: {description}\n\nWrite one.",
        labelled="Kind of conversation: {description}\nCategory: {label}\n\nWrite one of this category.",
        again="Write a conversation between other people, in the same style and of about the same length.",
    ),
    "summary": PromptWording(
        system="You summarise what many people wrote. Reply with the summary alone.",
        public="Many people wrote about one thing. Write {description}.",
        labelled="Many people wrote about this: {label}\n\nWrite {description}.",
        again=DEFAULT_WORDING.again,
        private="{reference}\n\nThis and more was written about one thing. Write {description}.",
        private_labelled="{reference}\n\nThis and more was written about: {label}\n\nWrite {description}.",
    ),
}


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
    system: str = DEFAULT_WORDING.system
    public: str = DEFAULT_WORDING.public
    private: str | None = None
    again: str = DEFAULT_WORDING.again
    date: str = DEFAULT_DATE
    form: PromptForm = "chat"
    examples: tuple[str, ...] = ()
    separator: str = DEFAULT_SEPARATOR

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
        separator = _with_default(prompt.separator, DEFAULT_SEPARATOR)
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
        base = PRESETS[prompt.preset] if prompt.preset else DEFAULT_WORDING
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


def text_before(separator: str, text: str) -> str | None:
    """Return the text before the first line that is `separator`; None if no line is.

    A line ends with a line feed: the last characters of a text may be the beginning of a longer line.
    """
    before, line, _ = f"\n{text}".partition(f"\n{separator}\n")
    return before[1:] if line else None


def escape_braces(text: str) -> str:
    """Return a text whose braces are none of a template's."""
    return text.replace("{", "{{").replace("}", "}}")
