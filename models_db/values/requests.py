"""A release request as its author writes it (`request.yaml`), validated; and how files of that kind are read.

Numbers that matter are decimals read from their text, never binary floats. A mechanism's own `parameters` are
checked by that mechanism.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import ErrorDetails

from models_db.errors import EnvironmentProblem, UsageError
from models_db.values.canonical_json import Json
from models_db.values.untrusted_text import JOINERS, is_storable, plain_spelling

REMOVED_SETTINGS: Mapping[str, str] = {
    "label_rule": "ingest the corpus with `--label-field`",
    "free_above": "it made texts longer and no better; raise `max_new_tokens` for longer texts",
    "internal_figures": "every later card, price and gate states who looked, and nobody is barred",
    "presence_penalty": "it made real next tokens no likelier; leave it out",
    "scope": "a dataset has one lifetime budget; a standing authorisation bounds what a series of releases spends",
    "selection": "every drawn text is published",
    "delegation_days": "a deputy is a steward for a time, by `almoner user grant NAME steward --until DAY`",
    "pacing": "limit what one release may claim with `release`; the lifetime budget limits them all",
    "mechanism: steering_vector": "of four releases it helped one and harmed one; take `invisible_ink`",
    "complete_sentence": "by default the public model finishes a text's last sentence with at most 24 tokens",
    "label_allocation": "each label has equally many texts",
    "sampler": "tokens are drawn from the exact integer table",
    "rotate_over": "a request reads every block of its cohorts; `cohorts` chooses them",
    "outline": "longer texts are drawn without one",
}
"""The name of each removed setting or value, and the end of the sentence "it was removed: ..."."""


def explain_removed(setting: object) -> str | None:
    """Return what takes the place of a removed setting; None for a name that never was one."""
    replacement = REMOVED_SETTINGS.get(str(setting))
    return None if replacement is None else f"it was removed: {replacement}"


RequestKind = Literal["synthetic_corpus", "summaries", "insights", "demonstrations", "records"]
_MECHANISM_NAME = "^[a-z][a-z0-9_]*([.][a-z][a-z0-9_]*)*$"


def _require_mechanism(name: str) -> str:
    if removed := explain_removed(f"mechanism: {name}"):
        raise ValueError(removed)
    if not re.fullmatch(_MECHANISM_NAME, name, re.ASCII):
        raise ValueError("a name of lower-case letters, digits and _ is needed, with dots if an extension gives it")
    return name


MechanismName = Annotated[
    str,
    Field(max_length=80),
    AfterValidator(_require_mechanism),
    WithJsonSchema({"pattern": _MECHANISM_NAME, "type": "string"}),
]
"""Name of a system; one with a dot is of an installed extension, as no name of almoner's own has one.

Which names there are is in `tasks.systems.registry`, which pricing a request and reading a policy ask.
"""


def _exact_decimal(value: object) -> object:
    """YAML gives 1.0e-7 as a float and 1e-7 as text; both mean the decimal that was written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise ValueError("a number is needed")
    text = str(value).strip()
    if len(text) > _MOST_DECIMAL_CHARACTERS or not text.isascii() or "_" in text:
        raise ValueError(f"a decimal number of at most {_MOST_DECIMAL_CHARACTERS} characters is needed")
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError("a number is needed") from None
    if number.is_finite() and not -_MOST_DECIMAL_PLACES <= number.adjusted() <= _MOST_DECIMAL_PLACES:
        raise ValueError("a number of a usual size is needed")  # written out it would fill the memory
    return number


_MOST_DECIMAL_CHARACTERS = 100
_MOST_DECIMAL_PLACES = 100


Preset = Literal["brief", "clinical", "court", "review", "chat", "summary"]

MOST_COHORTS = 1000

ExactDecimal = Annotated[Decimal, BeforeValidator(_exact_decimal), Field(allow_inf_nan=False)]


class RequestModel(BaseModel):
    """Base of models of files that people write: unknown fields are errors, and values are frozen.

    What is stored, and hashed or signed, has one form: a field that is empty by default (null, an empty list or
    object) is left out while it is; every other field is written out, its default too. So two values have the same
    bytes exactly if they are equal, and a field that is absent means the empty value, which is its default.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, defer_build=True)

    @property
    def stored_fields(self) -> list[str]:
        """Return the fields of the stored form: all but those that are empty by default."""
        return [name for name in type(self).model_fields if not self._is_empty_by_default(name)]

    def _is_empty_by_default(self, name: str) -> bool:
        value = getattr(self, name)
        default = type(self).model_fields[name].get_default(call_default_factory=True)
        return value == default and model_to_json(value) in (None, [], {})

    @model_serializer(mode="plain")
    def _omit_unset_fields(self) -> dict[str, Any]:
        return {self.written_name(name): model_to_json(getattr(self, name)) for name in self.stored_fields}

    @classmethod
    def written_name(cls, name: str) -> str:
        """Return the name of a field in files: its alias, where pydantic keeps the name for itself."""
        return cls.model_fields[name].alias or name


def _require_calendar_day(day: str) -> str:
    date.fromisoformat(day)
    return day


Day = Annotated[str, Field(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_require_calendar_day)]
"""A day of the calendar, YYYY-MM-DD."""


PromptForm = Literal["chat", "completion"]
"""Prompting mode: a conversation in the model's chat template, or a text that the model continues."""


def _omit_default_form(form: PromptForm | None) -> PromptForm | None:
    """Return no form for the default one: a request that writes it out and one that does not are the same request."""
    return None if form == "chat" else form


EXAMPLE_PLACEHOLDER = "REPLACE THIS EXAMPLE"
"""How an example begins that the author of a request has yet to write (`almoner plan --write`)."""


def _require_written_example(text: str) -> str:
    if text.startswith(EXAMPLE_PLACEHOLDER):
        raise UsageError(
            f"An example in the prompt still begins with {EXAMPLE_PLACEHOLDER!r}.",
            "Write a short text of the kind you want in its place. Invent it, because examples are public.",
            code="ExampleNotWritten",
        )
    return text


PromptExample = Annotated[str, Field(min_length=1, max_length=8000), AfterValidator(_require_written_example)]


class Prompt(RequestModel):
    """Wording of the model's prompt. Public by declaration: it appears on the card.

    Templates are checked together with the request's labels (`tasks.inference.prompt_spec`). `form` is stored
    where it is `completion`; `separator` belongs to that form.
    """

    description: Annotated[str, Field(min_length=1, max_length=4000)]
    form: Annotated[PromptForm | None, AfterValidator(_omit_default_form)] = None
    preset: Preset | None = None
    system: str | None = None
    public: str | None = None
    private: str | None = None
    again: str | None = None
    examples: Annotated[tuple[PromptExample, ...], Field(max_length=20)] = ()
    separator: Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\r\n]+$")] | None = None
    date: Day | None = None


TextLine = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\r\n]+$")]
ProseText = Annotated[str, Field(min_length=1, max_length=4000)]
LanguageTag = Annotated[str, Field(pattern="^[a-z]{2,3}(-[A-Za-z0-9]{2,8})*$")]
WebAddress = Annotated[str, Field(max_length=2000, pattern=r"^https?://[^\s<>\"]+$")]


def _as_list(value: object) -> object:
    """Return a list; a single name becomes a list of one."""
    return [value] if isinstance(value, str) else value


def normalise_spelling(name: str | int) -> str:
    """Return the one spelling of a label or of a group's id (`plain_spelling`); 7 and "7" are one.

    Raises:
        HiddenCharacter: a character that nobody sees is inside, and does not join letters or emoji.
    """
    return plain_spelling(str(name), JOINERS)


class PublicGroup(RequestModel):
    """A group that a release may summarise: a product, a ward, a court. All of it is public.

    `id` is what its documents carry as their label; `title` and `about` (such as its categories) are shown to the
    model.
    """

    id: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")]
    title: TextLine | None = None
    about: Annotated[tuple[TextLine, ...], BeforeValidator(_as_list), Field(max_length=20)] = ()

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """A name stands for a group of which nothing is said; like a label's, it may be a whole number."""
        identifier = value["id"] if isinstance(value, dict) and "id" in value else value
        if isinstance(identifier, str | int) and not isinstance(identifier, bool):
            return {**(value if isinstance(value, dict) else {}), "id": normalise_spelling(identifier)}
        return value

    @property
    def shown(self) -> str:
        """Return the description of the group for the model: its title and subjects, or its id if it has neither."""
        return " - ".join(part for part in (self.title, ", ".join(self.about)) if part) or self.id


def require_distinct_groups(groups: tuple[PublicGroup, ...]) -> tuple[PublicGroup, ...]:
    """Return the groups, each with an id of its own."""
    if len({group.id for group in groups}) != len(groups):
        raise ValueError("each group once")
    return groups


class PublicMetadata(RequestModel):
    """Metadata of published releases, declared by the owner of the data. None of it is derived from the data.

    `licence` is an SPDX identifier, an address, or a name; `language` BCP 47 codes; `publication_date` a day that
    the owner chose (a bundle has no date of its own). `groups` is a catalogue that requests for summaries choose from;
    a request writes out the ones it takes, so the catalogue itself is not part of it. `typical_words` is how many words
    the text of one unit usually has, as its owner knows it without counting: lengths are chosen from it.
    `texts_published` says how much of the corpus was ever published where models are trained on it.
    """

    name: TextLine | None = None
    description: ProseText | None = None
    licence: TextLine | None = None
    language: Annotated[tuple[LanguageTag, ...], BeforeValidator(_as_list)] = ()
    creators: Annotated[tuple[TextLine, ...], BeforeValidator(_as_list)] = ()
    citation: ProseText | None = None
    url: WebAddress | None = None
    intended_use: ProseText | None = None
    region: TextLine | None = None
    sector: TextLine | None = None
    publication_date: Day | None = None
    typical_words: Annotated[int, Field(ge=1, le=100_000)] | None = None
    texts_published: Literal["never", "partly", "fully"] | None = None
    groups: Annotated[tuple[PublicGroup, ...], Field(max_length=1000), AfterValidator(require_distinct_groups)] = ()

    @classmethod
    def stored(cls, text: str | None) -> "PublicMetadata":
        """Return the metadata that the ledger stores with a dataset; empty if it stores none.

        Raises:
            MetadataAltered: the text is not in its format.
        """
        try:
            return cls() if text is None else cls.model_validate_json(text)
        except ValidationError:
            raise MetadataAltered from None

    def merged_over(self, later: "PublicMetadata | None") -> "PublicMetadata":
        """Return this metadata with the fields of `later` over it."""
        later_fields = later.model_dump() if later is not None else {}
        return type(self).model_validate(self.model_dump() | later_fields)

    def without_groups(self) -> "PublicMetadata":
        """Return the fields that are about the dataset as a whole."""
        return self.model_copy(update={"groups": ()})


def _without_group_fields(metadata: PublicMetadata) -> PublicMetadata:
    if metadata.groups:
        raise ValueError("a request declares groups in `parameters.groups`; a catalogue is the dataset's")
    return metadata


def _parse_cohorts(value: object) -> object:
    """Return 'newest', or numbers; checked here as a whole, so that an error is one sentence."""
    if value is None or value == "newest":
        return value
    numbers = list(value) if isinstance(value, list | tuple) else []
    fit = all(type(number) is int and number >= 1 for number in numbers) and numbers == sorted(set(numbers))
    if not (fit and 1 <= len(numbers) <= MOST_COHORTS):
        raise ValueError("`newest`, or the numbers of cohorts, once each and in ascending order, such as [1, 3]")
    return tuple(numbers)


CohortSelection = Annotated[Literal["newest"] | tuple[int, ...] | None, PlainValidator(_parse_cohorts)]


class ReleaseRequest(RequestModel):
    """One request file.

    `epsilon` is the unconditional claim. `epsilon_while_secret` asks by the other one: the most that the release may
    claim while the assignment of units to texts is secret. `epsilon` beside it is then the most that the unconditional
    claim may be, and is left out for as much as follows (`tasks.pricing.secret_claim`).
    """

    dataset: Annotated[str, Field(min_length=1, max_length=100)]
    kind: RequestKind
    mechanism: MechanismName
    epsilon: Annotated[ExactDecimal, Field(gt=0)] | None = None
    delta: Annotated[ExactDecimal, Field(gt=0, lt=1)] | None = None
    epsilon_while_secret: Annotated[ExactDecimal, Field(gt=0)] | None = None
    model: Annotated[str, Field(min_length=1, max_length=200)]
    parameters: dict[str, Any] = Field(default_factory=dict)
    prompt: Prompt
    evaluation: tuple[str, ...] = ()
    evaluation_share: Annotated[ExactDecimal, Field(gt=0, le=Decimal("0.5"))] = Decimal("0.1")
    evaluation_embedder: Annotated[str, Field(min_length=1, max_length=200)] = "all-minilm-l6-v2"
    public_metadata: Annotated[PublicMetadata, AfterValidator(_without_group_fields)] | None = None
    cohorts: CohortSelection = None


Model = TypeVar("Model", bound=BaseModel)


class MetadataAltered(EnvironmentProblem):
    """The stored public metadata of a dataset is not in its format."""

    def __init__(self) -> None:
        super().__init__(
            "The public metadata that the ledger keeps of a dataset is not in its format.",
            "The ledger was altered. Run `almoner doctor` and `almoner audit verify`.",
        )


def file_invalid(what: str, problems: list[str], page: str = "docs/requests.md") -> UsageError:
    """Return the error of a request, a policy or a block of parameters that does not follow its format."""
    return UsageError(
        f"{what} is not valid: {'; '.join(problems)}.",
        f"Correct it and try again; nothing was changed. The format is in {page}.",
        {"problems": problems},
        code="FileInvalid",
    )


def parse_model(model: type[Model], value: object, what: str, page: str = "docs/requests.md") -> Model:
    """`value` (read from YAML) as a `model`; `page` explains the format.

    Raises:
        FileInvalid: with every problem, by field.
    """
    if controls := [f"{place or 'the file'}: a text has a control character" for place in _with_controls(value)]:
        raise file_invalid(what, controls, page)
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        problems = [
            f"{'.'.join(map(_field_name, e['loc'])) or 'the file'}: {_explain(e)}"
            for e in invalid.errors(include_url=False, include_context=False)
        ]
        raise file_invalid(what, problems, page) from None


def _explain(error: ErrorDetails) -> str:
    """Return what is wrong with a field; of a removed one, what takes its place."""
    removed = explain_removed(error["loc"][-1]) if error["type"] == "extra_forbidden" else None
    return removed or describe_problem(error["msg"])


def _with_controls(value: object, place: str = "") -> Iterator[str]:
    """Yield the place of every text that the ledger does not store; a name that is none counts for its mapping."""
    if isinstance(value, str) and not is_storable(value):
        yield place
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for name, inner in pairs:
        yield from _with_controls(name, place)
        yield from _with_controls(
            inner, f"{place}.{_field_name(name if isinstance(name, int) else str(name))}".lstrip(".")
        )


def _field_name(part: str | int) -> str:
    """Return a part of a field's path; text that is not a field name is not quoted, as it may be of another file."""
    return str(part) if isinstance(part, int) or _FIELD_PATTERN.fullmatch(part) else "(no field's name)"


_FIELD_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,60}")


def describe_problem(message: str) -> str:
    """Return pydantic's message about a field, as a part of a sentence and in YAML's words."""
    problem = message.removeprefix("Value error, ")
    for of_python, of_yaml in _OF_YAML.items():
        problem = re.sub(of_python, of_yaml, problem)
    return problem[:1].lower() + problem[1:]


_OF_YAML = {
    r"a valid (tuple|list)": "a list",
    r"a valid dictionary( or (object|instance of \w+))?( to extract fields from)?": "a mapping",
    r"^(Tuple|List)\b": "the list",
    r"^Dictionary\b": "the mapping",
    r" after validation": "",
}
"""Phrases of pydantic, and those of YAML for them."""


def model_to_json(value: object) -> Json:
    """Return a validated model's content with decimals as text, fit for canonical JSON."""
    match value:
        case RequestModel():
            return {value.written_name(name): model_to_json(getattr(value, name)) for name in value.stored_fields}
        case BaseModel():
            return {name: model_to_json(getattr(value, name)) for name in type(value).model_fields}
        case Decimal():
            return format_decimal(value)
        case dict():
            return {str(key): model_to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [model_to_json(item) for item in value]
        case float():
            return format_decimal(Decimal(str(value)))
        case None | bool() | int() | str():
            return value
        case _:
            raise TypeError(f"{type(value).__name__} has no place in a request")


def format_decimal(value: Decimal) -> str:
    """Return the shortest plain decimal text: 4.0 and 4 are both '4', 1E-7 is '0.0000001'."""
    return format(value.normalize(), "f")
