"""Facets in their one form, whoever has found them."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from tasks.analysis.facets.parameters import FacetField
from tasks.corpus.identity.units import is_unicode
from tasks.values.insight import KEYWORDS, Facets


def no_facets(fields: Sequence[FacetField]) -> Facets:
    """Those of a unit that nothing can be said about: every field is there, and none has a phrase."""
    return Facets({field.name: () for field in fields})


def tidy_facets(fields: Sequence[FacetField], found: Mapping[str, Iterable[str]]) -> Facets:
    """Facets in their one form: spaces single, NFC, no phrase empty, too long or twice; keywords in lower case.

    A text is cut at its limit. An item of a list that is too long is left out: half a phrase is another phrase.
    """
    return Facets({field.name: _phrases(field, found.get(field.name, ())) for field in fields})


def _phrases(field: FacetField, found: Iterable[str]) -> tuple[str, ...]:
    lower = field.name == KEYWORDS
    if field.kind == "text":
        text = spaced(" ".join(found))[: field.most_characters].strip()
        return (text,) if text else ()
    kept: dict[str, str] = {}
    for phrase in found:
        text = spaced(phrase.casefold() if lower else phrase)
        if text and len(text) <= field.most_characters:
            kept.setdefault(text.casefold(), text)
    return tuple(kept.values())[: field.most_items]


def spaced(text: str) -> str:
    """NFC with single spaces; what has no UTF-8 form becomes a question mark."""
    plain = text if is_unicode(text) else text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(unicodedata.normalize("NFC", plain).split())
