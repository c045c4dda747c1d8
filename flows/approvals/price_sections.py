"""Sections of a request's price, for screens and notebooks: a judgement, the charge, and details for who asks."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from models_db.values.canonical_json import Json
from models_db.values.untrusted_text import value_text
from tasks.common.published_values import format_small
from tasks.release.card_text import parameter_text
from tasks.release.claim import describe_promise
from tasks.release.sections import WARNINGS, FieldList, Section, Summary, Table, Warnings

EXTERNAL_MODEL_NOTE = "External model: sees only DP outputs. An estimate of the requests to it; none is sent yet"
_PRICE_HIDES = (
    "facts", "prompt", "public_metadata", "groups", "external", "budget", "cost", "choices", "unprotected_figures",
    "warnings", "influence", "units_behind", "expected_seconds_per_unit",
)  # fmt: skip
"""Fields of a price that have sections or words of their own."""
_PRICE_ROWS = {
    "dataset": "dataset",
    "unit": "privacy unit",
    "kind": "kind",
    "mechanism": "mechanism",
    "epsilon": "epsilon",
    "delta": "delta",
    "secret_assignment": "while secret",
    "rho": "rho",
    "expected_texts": "texts",
    "expected_seconds": "expected time",
}
"""Fields that are always shown, with the words for them."""


def price_sections(price: Mapping[str, Json]) -> Iterator[Section]:
    """Yield the sections of a price (`flows.releases.propose.PricedRequest.price`): warnings and judgement first.

    Figures, digests and parameters are details, which a screen may leave out.
    """
    warnings = price.get("warnings")
    lines = tuple(map(str, warnings)) if isinstance(warnings, list) else ()
    if lines:
        yield Warnings(WARNINGS, lines)
    yield Summary("Summary", tuple(_judgement(price, lines)))
    yield FieldList("Price", tuple(_price_rows(price)))
    if chosen := _mapping(price.get("choices")):
        title = "Chosen by almoner: the request leaves these out"
        choices = tuple((name, *_choice(choice)) for name, choice in chosen.items())
        yield Table(title, ("parameter", "value", "reason"), choices)
    yield _fields(price["prompt"], "Prompt, public: it is on the card")
    if groups := _mapping(price.get("groups")):
        rows = tuple((name, value_text(shown)) for name, shown in groups.items())
        yield Table("Groups, public: one text per group", ("group", "description in the prompt"), rows)
    if outside := _mapping(price.get("external")):
        yield _fields(outside, EXTERNAL_MODEL_NOTE)
    if viewing := _mapping(price.get("unprotected_figures")):
        yield _fields(viewing, "Unprotected figures of this account were seen")
    yield _fields(price["facts"], "Public parameters", detail=True)
    if declared := _mapping(price["public_metadata"]):
        yield _fields(declared, "Declared, public", detail=True)
    yield _fields(price["budget"], "Lifetime budget of the dataset", detail=True)
    rest = {name: value for name, value in price.items() if name not in (*_PRICE_HIDES, *_PRICE_ROWS)}
    yield _fields(rest, "Other figures", detail=True)


def _judgement(price: Mapping[str, Json], warnings: tuple[str, ...]) -> Iterator[str]:
    """Yield what the price means: its share of the budget, the promise, and how much the private texts say."""
    yield str(price["cost"])
    if (epsilon := price.get("epsilon")) is not None and Decimal(str(price["rho"])):
        delta = str(price["delta"])
        meaning = describe_promise(str(epsilon), delta, str(price["unit"]))
        yield f"Epsilon {epsilon} at delta {format_small(delta)}: {meaning}."
    if (behind := price.get("units_behind")) is not None:
        yield str(behind)
    if (influence := price.get("influence")) is not None and influence not in warnings:
        yield str(influence)


def _price_rows(price: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for name, word in _PRICE_ROWS.items():
        if name == "expected_seconds":
            yield word, _time_text(price)
        elif (value := price.get(name)) is not None:
            yield word, _claim_text(name, value)


def _claim_text(name: str, value: Json) -> str:
    """Return a figure of the price as text; the claim while the assignment is secret as a sentence."""
    if name == "secret_assignment":
        from tasks.planning.secret_assignment import SecretAssignment, while_secret

        return while_secret(SecretAssignment.model_validate(value))
    return format_small(str(value)) if name == "delta" else value_text(value)


def _time_text(price: Mapping[str, Json]) -> str:
    """Return the expected time in words; without a declared population with the time of each unit."""
    minutes, seconds = divmod(int(str(price["expected_seconds"])), 60)
    text = f"about {minutes} min {seconds} s on two cores" if minutes else f"about {seconds} s"
    per_unit = price.get("expected_seconds_per_unit")
    if per_unit is None:
        return text
    return f"{text}, and {float(str(per_unit)) * 1000:.1f} ms for each {price['unit']}: no population is declared"


def _fields(values: Json, title: str, *, detail: bool = False) -> FieldList:
    rows = tuple((name, value_text(value)) for name, value in _mapping(values).items())
    return FieldList(title, rows, detail=detail)


def _choice(choice: Json) -> tuple[str, str]:
    fields = _mapping(choice)
    return parameter_text(fields.get("value")), value_text(fields.get("reason"))


def _mapping(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}
