"""Normal form of facets from any extractor."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from tasks.analysis.facets.parameters import FacetField
from tasks.corpus.units import is_unicode
from tasks.values.results import KEYWORDS, Facets


def no_facets(fields: Sequence[FacetField]) -> Facets:
    """Return empty facets: every field is present, and none has a phrase."""
    return Facets({field.name: () for field in fields})


def tidy_facets(fields: Sequence[FacetField], phrases: Mapping[str, Iterable[str]]) -> Facets:
    """Return facets in normal form: spaces single, NFC, no phrase empty, too long or twice; keywords in lower case.

    A text is cut at its limit. An item of a list that is too long is left out: half a phrase is another phrase.
    """
    return Facets({field.name: _phrases(field, phrases.get(field.name, ())) for field in fields})


def _phrases(field: FacetField, phrases: Iterable[str]) -> tuple[str, ...]:
    lower = field.name == KEYWORDS
    if field.kind == "text":
        text = spaced(" ".join(phrases))[: field.most_characters].strip()
        return (text,) if text else ()
    unique: dict[str, str] = {}
    for phrase in phrases:
        text = spaced(phrase.casefold() if lower else phrase)
        if text and len(text) <= field.most_characters:
            unique.setdefault(text.casefold(), text)
    return tuple(unique.values())[: field.most_items]


def spaced(text: str) -> str:
    """Return `text` in NFC with single spaces; characters without a UTF-8 form become question marks."""
    plain = text if is_unicode(text) else text.encode("utf-8", "replace").decode("utf-8")
    return " ".join(unicodedata.normalize("NFC", plain).split())
