"""Form parameters of a request: public text with slots, and the longest slot."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import RequestModel
from tasks.inference.structured_output.form import Form
from tasks.inference.structured_output.schema_parameters import schema_of


def _usable(form: str | None) -> str | None:
    if form is not None:
        Form.read(form)
    return form


class FormParameters(RequestModel):
    """The part of a system's `parameters:` that is about forms; every one is public.

    Attributes:
        form: the text with slots that every text of the release follows (docs/forms.md); a refusal is `FormInvalid`.
        slot_tokens: tokens that a slot has at most.
    """

    form: Annotated[str | None, AfterValidator(_usable)] = None
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
