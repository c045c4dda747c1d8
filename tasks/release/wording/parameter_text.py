"""A value of a request's parameters in a few words."""

from collections.abc import Mapping

from models_db.values.canonical_json import Json


def parameter_text(value: Json) -> str:
    """Return the value for people; of a vocabulary how it is made, and of how many phrases."""
    if isinstance(value, Mapping):
        words = value.get("words")
        return f"{value.get('method')}, {len(words) if isinstance(words, list) else 0} phrases"
    return str(value)
