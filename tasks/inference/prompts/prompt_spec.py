"""Prompt specification of a release: the request's templates, completed from its preset and checked together.

Two forms. In two turns, `public` asks for a text, the private reference stands as the answer, and `again` asks for
another. In one turn, `private` is the whole message of a private row, with `{reference}` in it. Either way the public
row is told `public`, and everything before the reference is the same for all private rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from models_db.values.canonical_json import Json
from models_db.values.requests import Prompt, model_to_json
from tasks.inference.prompts.presets import DEFAULT, PRESETS
from tasks.inference.prompts.templates import (
    DESCRIPTION,
    LABEL,
    LabelMissing,
    LabelUnexpected,
    Template,
    TemplateUnused,
)

Default = TypeVar("Default", str, str | None)

TEMPLATES = ("system", "public", "private", "again")
"""The templates of a prompt, in the order in which people read them."""


@dataclass(frozen=True)
class PromptSpec:
    """The complete wording of a release; all of it is public and on the card.

    Attributes:
        description: what the texts are.
        system, public: templates of every row.
        private: the message of a private row in one turn; None in two turns.
        again: the second request in two turns.
    """

    description: str
    system: str = DEFAULT.system
    public: str = DEFAULT.public
    private: str | None = None
    again: str = DEFAULT.again

    @classmethod
    def of(cls, prompt: Prompt, labels: Sequence[str] = ()) -> "PromptSpec":
        """The wording that a request asks for: what it writes itself, then its preset's, then the default.

        Args:
            labels: the labels that the request declares.

        Raises:
            BadTemplate: a template is unfit by itself, or does not fit the labels.
        """
        base = PRESETS[prompt.preset] if prompt.preset else DEFAULT
        if prompt.private is not None and prompt.again is not None:
            raise TemplateUnused("again")
        one_turn = base.private_labelled if labels else base.private
        prompt_spec = cls(
            description=prompt.description,
            system=_first(prompt.system, base.system),
            public=_first(prompt.public, base.labelled if labels else base.public),
            private=_first(prompt.private, one_turn) if prompt.again is None else None,
            again=_first(prompt.again, base.again),
        )
        _require_fit(prompt_spec.templates, labelled=bool(labels))
        return prompt_spec

    @property
    def templates(self) -> dict[str, str]:
        """The templates that rows are shown, by name."""
        shown = {name: getattr(self, name) for name in TEMPLATES}
        del shown["again" if self.private is not None else "private"]
        return shown

    def fill(self, name: str, label: str | None, reference: str = "") -> str:
        """One template with everything filled in; `reference` stands for the private text, which is never put here."""
        values = {DESCRIPTION: self.description.strip(), LABEL: label or "", "reference": reference}
        return Template.read(name, self.templates[name]).fill(values)


def prompt_json(prompt: Prompt, labels: Sequence[str] = ()) -> dict[str, Json]:
    """The prompt as a request stores it: written out in full, so that its words are approved and never change.

    A prompt in the default wording is stored as its description alone, as it always was.

    Raises:
        BadTemplate: as `PromptSpec.of`.
    """
    spec = PromptSpec.of(prompt, labels)
    written = model_to_json(prompt)
    if not isinstance(written, dict):
        raise TypeError("a prompt is stored as an object")
    if set(written) == {"description"} and not labels:
        return written
    return written | spec.templates


def _first(asked: str | None, default: Default) -> str | Default:
    return default if asked is None else asked


def _require_fit(templates: dict[str, str], *, labelled: bool) -> None:
    """Check each template, and that all rows or none of them are told their label."""
    read = {name: Template.read(name, text) for name, text in templates.items()}
    having = {name for name, template in read.items() if LABEL in template.places}
    if not labelled:
        for name in sorted(having):
            raise LabelUnexpected(name)
        return
    for told in ("public", "private" if "private" in read else "public"):
        if not having & {"system", told}:
            raise LabelMissing(told)
