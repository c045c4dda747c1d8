"""Facets: what is extracted from each unit before anything is released (URANIA, section 4.1 and appendix G.1).

Extraction is free, private preparation. It is free because each unit's facets are a function of that unit's text and
of public things alone, bit for bit: later mechanisms bound what a unit contributes, and count it once whatever its
facets are. What goes wrong with one unit gives it empty facets and disturbs nobody else (PRIVACY §3).
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tasks.corpus.units import is_unicode
from tasks.insights.facet_settings import FacetField, FacetSettings
from tasks.insights.values import KEYWORDS, Facets

if TYPE_CHECKING:
    from tasks.inference.engine import Engine

Progress = Callable[[int, int], None]
"""Told how many units are done, and of how many."""

MODEL, RAKE, YAKE = "model", "rake", "yake"


class Extractor(Protocol):
    """Texts in, facets out, each a function of its own text."""

    @property
    def name(self) -> str:
        """All that facets depend on beside the text: settings, model, wording, version. Public."""

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """One for each text, in their order; it never fails because of a text."""


def extractor_for(
    settings: FacetSettings, engine: "Engine | None" = None, progress: Progress = lambda done, of: None
) -> Extractor:
    """The extractor that the settings name.

    Args:
        engine: the release's model at work; only `model` needs one.

    Raises:
        ValueError: `model` without an engine.
        TokenizerNotSupported, NoEnd, TokenLimitTooSmall: the model cannot write such facets.
        ContextTooLong, NoChatTemplate: nor can it be asked for them.
    """
    if settings.extractor == MODEL:
        from tasks.insights.facet_model import ModelExtractor  # torch; nobody else needs it

        if engine is None:
            raise ValueError("facets by the model need an engine")
        return ModelExtractor.of(settings, engine, progress)
    from tasks.insights.facet_fast import FastExtractor, rake, yake

    return FastExtractor(settings, rake if settings.extractor == RAKE else yake, progress)


def no_facets(fields: Sequence[FacetField]) -> Facets:
    """Those of a unit that nothing can be said about: every field is there, and none has a phrase."""
    return Facets({field.name: () for field in fields})


def tidied(fields: Sequence[FacetField], found: Mapping[str, Iterable[str]]) -> Facets:
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
