"""Rule-based facet extraction without a model: key phrases by RAKE; the normal form of facets of any extractor.

`summary` is the unchanged beginning of the text: it is embedded and never shown. `keywords` are the best key phrases,
then words; `topics` (where the schema has it) the words with the largest weights. Other fields stay empty: intents and
entities need the model.

RAKE knows only English function words. In another language it works less well: phrases contain function words, and in
scripts without spaces between words a phrase is a whole clause, which is left out if it is long.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tasks.analysis.facets.facet_settings import FacetField, FacetSettings
from tasks.common.progress import Progress
from tasks.corpus.units import is_unicode
from tasks.text.words import phrase_scores
from tasks.values.results import KEYWORDS, SUMMARY, Facets


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


CODE = 1
"""Version, increased whenever `RuleBasedExtractor` extracts other facets; a part of the name."""

READ_CHARACTERS = 20_000
"""Characters of a text that are read: a public limit, so that no text can delay all others."""
SUMMARY_CHARACTERS = 2_000
"""More than an embedder reads: 256 to 384 word pieces."""
TOPICS = "topics"

_REQUESTS = """
give gives list lists write writes tell name names make explain describe identify classify extract provide provided
following please help want need know based create generate suggest answer question text passage paragraph example
examples thing things way ways lot hello hi thanks thank sure okay ok
"""
_ASKING = frozenset(_REQUESTS.split())
"""Words of questions and answers, which occur in any conversation. A phrase of these alone is left out."""


@dataclass(frozen=True)
class RuleBasedExtractor:
    """An `Extractor` without a model.

    Attributes:
        progress: called every thousand units.
    """

    settings: FacetSettings
    progress: Progress = lambda done, of: None

    @property
    def name(self) -> str:
        """The method with its version, and the digest of the settings."""
        return f"rake, code {CODE}, settings {self.settings.digest}"

    def __call__(self, texts: Sequence[str]) -> list[Facets]:
        """Return the facets of each text."""
        facets = []
        for done, text in enumerate(texts, 1):
            facets.append(self._facets_or_none(text))
            if not done % 1000 or done == len(texts):
                self.progress(done, len(texts))
        return facets

    def _facets_or_none(self, text: str) -> Facets:
        try:
            return self._facets(spaced_lines(text))
        except Exception:  # noqa: BLE001 - an error may quote the text; the facets are empty
            return no_facets(self.settings.fields)

    def _facets(self, text: str) -> Facets:
        phrases, words = rake(text, self.settings.phrase_words)
        candidates: Mapping[str, Sequence[str]] = {
            KEYWORDS: [phrase for phrase in (*phrases, *words) if _says_something(phrase)],
            TOPICS: [word for word in words if _says_something(word)],
        }
        tidied = tidy_facets(self.settings.fields, candidates)
        summary = spaced(text[:SUMMARY_CHARACTERS])
        return Facets({**tidied.values, SUMMARY: (summary,) if summary else ()})


def spaced_lines(text: str) -> str:
    """Return the part of a text that is read, line by line: an empty line ends a phrase."""
    return "\n".join(spaced(line) for line in text[:READ_CHARACTERS].splitlines())


def rake(text: str, words: int) -> tuple[list[str], list[str]]:
    """Return phrases by RAKE, and words by their degree: the number of words in all their phrases; the best first."""
    scores = phrase_scores(text)
    degree = Counter[str]()
    for phrase in scores:
        degree.update(dict.fromkeys(phrase, len(phrase)))
    best = sorted(
        (phrase for phrase in scores if len(phrase) <= words), key=lambda candidate: (-scores[candidate], candidate)
    )
    return [" ".join(phrase) for phrase in best], sorted(degree, key=lambda word: (-degree[word], word))


def _says_something(phrase: str) -> bool:
    """Return whether a phrase has a word of two letters or more that is not in `_ASKING`."""
    words = phrase.casefold().split()
    return any(word not in _ASKING and sum(map(str.isalpha, word)) > 1 for word in words)
