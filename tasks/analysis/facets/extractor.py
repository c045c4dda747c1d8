"""Facets: what is extracted from each unit before anything is released (URANIA, section 4.1 and appendix G.1).

Extraction is free, private preparation. It is free because each unit's facets are a function of that unit's text and
of public things alone, bit for bit: later mechanisms bound what a unit contributes, and count it once whatever its
facets are. What goes wrong with one unit gives it empty facets and disturbs nobody else (PRIVACY §3).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor, rake, yake
from tasks.common.progress import Progress
from tasks.values.insight import Facets

if TYPE_CHECKING:
    from tasks.inference.engine.engine import Engine

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
        from tasks.analysis.facets.model_based import ModelExtractor  # torch; nobody else needs it

        if engine is None:
            raise ValueError("facets by the model need an engine")
        return ModelExtractor.of(settings, engine, progress)
    return RuleBasedExtractor(settings, rake if settings.extractor == RAKE else yake, progress)
