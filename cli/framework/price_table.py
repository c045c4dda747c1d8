"""How a price is shown."""

from rich.console import RenderableType

from cli.framework.tables import fact_list, groups_table
from models_db.values.canonical_json import Json

_EXTERNAL_MODEL_NOTE = (
    "External model: sees only DP outputs. An estimate of what it would be asked; nothing is asked yet"
)


def price_tables(price: dict[str, Json]) -> list[RenderableType]:
    """The price of a request: what it charges, with which public parameters, out of which budget."""
    apart = ("facts", "prompt", "public_metadata", "groups", "external", "budget", "unprotected_figures")
    plain = {name: value for name, value in price.items() if name not in apart}
    minutes, seconds = divmod(int(str(price["expected_seconds"])), 60)
    plain["expected_seconds"] = f"about {minutes} min {seconds} s on two cores" if minutes else f"about {seconds} s"
    declared, groups = _mapping_text(price["public_metadata"]), _mapping_text(price.get("groups", {}))
    outside = _mapping_text(price.get("external", {}))
    viewing = _mapping_text(price.get("unprotected_figures", {}))
    return [
        fact_list(plain, title="Price"),
        fact_list(_mapping_text(price["facts"]), title="Public parameters"),
        fact_list(_mapping_text(price["prompt"]), title="Prompt, public: it is on the card"),
        *([groups_table(groups.items(), "Groups, public: a text each")] if groups else []),
        *([fact_list(outside, title=_EXTERNAL_MODEL_NOTE)] if outside else []),
        *([fact_list(declared, title="Declared, public")] if declared else []),
        fact_list(_mapping_text(price["budget"]), title="Lifetime budget of the dataset"),
        *([fact_list(viewing, title="Unprotected figures of this account were seen")] if viewing else []),
    ]


def _mapping_text(value: Json) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
