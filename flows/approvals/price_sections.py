"""Sections of a request's price, for screens and notebooks: charges, public parameters, and the budget drawn on."""

from collections.abc import Iterator, Mapping

from flows.approvals.review import FieldList, Table, Warnings
from models_db.values.canonical_json import Json
from models_db.values.printable_text import value_text

EXTERNAL_MODEL_NOTE = "External model: sees only DP outputs. An estimate of the requests to it; none is sent yet"
_PRICE_HIDES = (
    "facts", "prompt", "public_metadata", "groups", "external", "budget", "choices", "unprotected_figures", "warnings",
    "expected_seconds", "expected_seconds_per_unit",
)  # fmt: skip
"""Fields of a price that have sections or words of their own."""


def price_sections(price: Mapping[str, Json]) -> Iterator[FieldList | Table | Warnings]:
    """Yield the sections of a price (`flows.releases.propose.PricedRequest.price`) in reading order."""
    warnings = price.get("warnings")
    if isinstance(warnings, list) and warnings:
        yield Warnings(tuple(map(str, warnings)))
    plain = {name: value for name, value in price.items() if name not in _PRICE_HIDES}
    if gaussian := _mapping(price.get("gaussian")):
        from tasks.planning.gaussian_claim import GaussianClaim, by_gaussian_noise

        plain["gaussian"] = by_gaussian_noise(GaussianClaim.model_validate(gaussian))
    if secret := _mapping(price.get("secret_assignment")):
        from tasks.planning.secret_assignment import SecretAssignment, while_secret

        plain["secret_assignment"] = while_secret(SecretAssignment.model_validate(secret))
    yield _fields({**plain, "expected_seconds": _time_text(price)}, "Price")
    yield _fields(price["facts"], "Public parameters")
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
    if declared := _mapping(price["public_metadata"]):
        yield _fields(declared, "Declared, public")
    yield _fields(price["budget"], "Lifetime budget of the dataset")
    if viewing := _mapping(price.get("unprotected_figures")):
        yield _fields(viewing, "Unprotected figures of this account were seen")


def _time_text(price: Mapping[str, Json]) -> str:
    """Return the expected time in words; without a declared population with the time of each unit."""
    minutes, seconds = divmod(int(str(price["expected_seconds"])), 60)
    text = f"about {minutes} min {seconds} s on two cores" if minutes else f"about {seconds} s"
    per_unit = price.get("expected_seconds_per_unit")
    if per_unit is None:
        return text
    return f"{text}, and {float(str(per_unit)) * 1000:.1f} ms for each {price['unit']}: no population is declared"


def _fields(values: Json, title: str) -> FieldList:
    return FieldList(title, tuple((name, value_text(value)) for name, value in _mapping(values).items()))


def _choice(choice: Json) -> tuple[str, str]:
    fields = _mapping(choice)
    return value_text(fields.get("value")), value_text(fields.get("reason"))


def _mapping(value: Json) -> dict[str, Json]:
    return dict(value) if isinstance(value, dict) else {}
