"""Facet extractors: private preparation of each unit before any release (URANIA, section 4.1 and appendix G.1).

Extraction costs nothing because each unit's facets are a function of that unit's text and of public values alone, bit
for bit: later mechanisms bound the contribution of a unit, and count it once for any facets. A failure on one unit
gives it empty facets and affects no other unit (PRIVACY §3).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.facets.rule_based import RuleBasedExtractor
from tasks.common.progress import Progress
from tasks.values.results import Facets

if TYPE_CHECKING:
    from tasks.inference.engine.engine import Engine

MODEL = "model"


class Extractor(Protocol):
    """Function from texts to facets, each a function of its own text."""

    @property
    def name(self) -> str:
        """Everything that facets depend on except the text: settings, model, wording, version. Public."""

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text, in order; never fails because of a text."""


def extractor_for(
    settings: FacetSettings, engine: "Engine | None" = None, progress: Progress = lambda done, of: None
) -> Extractor:
    """Return the extractor that the settings name.

    Args:
        engine: the engine of the release's model; only `model` needs one.

    Raises:
        ValueError: `model` without an engine.
        TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall: the model cannot write such facets.
        ContextTooLong, NoChatTemplate: the model cannot take the prompt.
    """
    if settings.extractor == MODEL:
        from tasks.analysis.facets.model_based import (
            ModelExtractor,
        )  # imports torch, which `rake` does not need

        if engine is None:
            raise ValueError("facets by the model need an engine")
        return ModelExtractor.of(settings, engine, progress)
    return RuleBasedExtractor(settings, progress)
