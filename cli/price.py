"""How a price is shown."""

from rich.console import RenderableType

from cli.tables import facts
from models_db.canonical import Json


def price_tables(price: dict[str, Json]) -> list[RenderableType]:
    """The price of a request: what it charges, with which public parameters, out of which budget."""
    plain = {
        name: value for name, value in price.items() if name not in ("facts", "prompt", "public_metadata", "budget")
    }
    minutes, seconds = divmod(int(str(price["expected_seconds"])), 60)
    plain["expected_seconds"] = f"about {minutes} min {seconds} s on two cores" if minutes else f"about {seconds} s"
    declared = _mapping(price["public_metadata"])
    return [
        facts(plain, title="Price"),
        facts(_mapping(price["facts"]), title="Public parameters"),
        facts(_mapping(price["prompt"]), title="Prompt, public: it is on the card"),
        *([facts(declared, title="Declared, public: it is on the card")] if declared else []),
        facts(_mapping(price["budget"]), title="Lifetime budget of the dataset"),
    ]


def _mapping(value: Json) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}
