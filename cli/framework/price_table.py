"""Tables of a request's price."""

from rich.console import RenderableType

from cli.framework.tables import fact_list, groups_table, table, warning_panel
from models_db.values.canonical_json import Json

_EXTERNAL_MODEL_NOTE = "External model: sees only DP outputs. An estimate of the requests to it; none is sent yet"


def price_tables(price: dict[str, Json]) -> list[RenderableType]:
    """Return the price of a request as tables: its charges, its public parameters and the budget it draws on."""
    apart = (
        "facts", "prompt", "public_metadata", "groups", "external", "budget", "choices", "unprotected_figures",
        "warnings",
    )  # fmt: skip
    plain = {name: value for name, value in price.items() if name not in apart}
    plain.pop("expected_seconds_per_unit", None)
    plain["expected_seconds"] = _time_text(price)
    declared, groups = _mapping_text(price["public_metadata"]), _mapping_text(price.get("groups", {}))
    outside = _mapping_text(price.get("external", {}))
    chosen = _mapping_text(price.get("choices", {}))
    viewing = _mapping_text(price.get("unprotected_figures", {}))
    warnings = price.get("warnings", [])
    return [
        *([warning_panel([str(line) for line in warnings])] if isinstance(warnings, list) and warnings else []),
        fact_list(plain, title="Price"),
        fact_list(_mapping_text(price["facts"]), title="Public parameters"),
        *([choices_table(chosen)] if chosen else []),
        fact_list(_mapping_text(price["prompt"]), title="Prompt, public: it is on the card"),
        *([groups_table(groups.items(), "Groups, public: one text per group")] if groups else []),
        *([fact_list(outside, title=_EXTERNAL_MODEL_NOTE)] if outside else []),
        *([fact_list(declared, title="Declared, public")] if declared else []),
        fact_list(_mapping_text(price["budget"]), title="Lifetime budget of the dataset"),
        *([fact_list(viewing, title="Unprotected figures of this account were seen")] if viewing else []),
    ]


def _time_text(price: dict[str, Json]) -> str:
    """Return the expected time in words; without a declared population with the time of each unit."""
    minutes, seconds = divmod(int(str(price["expected_seconds"])), 60)
    text = f"about {minutes} min {seconds} s on two cores" if minutes else f"about {seconds} s"
    per_unit = price.get("expected_seconds_per_unit")
    if per_unit is None:
        return text
    return f"{text}, and {float(str(per_unit)) * 1000:.1f} ms for each {price['unit']}: no population is declared"


def choices_table(choices: dict[str, object]) -> RenderableType:
    """Return the parameters that almoner chose, each with its value and the reason."""
    rows = [(name, choice["value"], choice["reason"]) for name, choice in choices.items() if isinstance(choice, dict)]
    return table(("parameter", "value", "reason"), rows, "Chosen by almoner: the request leaves these out")


def _mapping_text(value: Json) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
