"""Keyword set settings of a request; all of them are public. Nothing here imports a model."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Final, Literal, Self, cast

from pydantic import AfterValidator, Field, model_validator

from models_db.errors import UsageError
from models_db.values.canonical_json import Json, parse_json
from models_db.values.requests import ExactDecimal, RequestModel, TextLine
from tasks.common.files import open_user_file
from tasks.text.words import normalise_keyword

Method = Literal["public", "tfidf", "model", "hybrid"]
Ranking = Literal["counts", "model", "coverage"]
SelectionKind = Literal["auto", "gaussian", "truncated_geometric", "weighted"]

MOST_WORDS: Final = 2000
LARGEST_FILE: Final = 2**20
"""Most bytes of a file of public words."""

_WITH_WORDS = ("public", "hybrid")


def _normalise_keywords(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return each word in its one spelling, once; a word that is no keyword is an error."""
    keywords = [normalise_keyword(word) for word in words]
    invalid = [word for word, keyword in zip(words, keywords, strict=True) if keyword is None]
    if invalid:
        raise ValueError(f"no keyword can be made of {invalid[0]!r}")
    return tuple(dict.fromkeys(keyword for keyword in keywords if keyword is not None))


class KeywordSettings(RequestModel):
    """Settings of the closed set of keywords (URANIA, section 4.1).

    Attributes:
        method: `public` takes `words` and reads no private text; `tfidf` selects single words of the units' facets;
            `model` selects extracted keywords; `hybrid` selects those of them that `words` lack.
        size: K, most keywords of the set.
        per_unit: k, how many candidates a unit has at most; of `weighted` in each round. None for 10 of `weighted`
            and 5 of the others.
        tokens_per_unit: w, most words of a unit that count in document frequencies; `tfidf` alone.
        frequency_share: the part of the stage's rho for document frequencies; `tfidf` alone.
        only_common: `tfidf` passes over words whose noisy document frequency is so low that they would hardly be
            selected, so that rare words do not take a unit's places.
        selection: how candidates are selected: by `gaussian` noisy counts and a threshold, by `truncated_geometric`
            probabilities, by `weighted` rounds of noisy sums, or by the one that releases more (`auto`).
        ranking: how a set larger than K is cut: by noisy `counts`, which are charged; by the public
            `model`; or so that it represents the rest well (`coverage`). The last two cost nothing.
        counting_share: the part of the stage's rho for these counts, of `truncated_geometric`; the others rank by
            themselves.
        words: the public set, the best first.
        words_from: the source of `words`, for people.
    """

    method: Method = "tfidf"
    size: Annotated[int, Field(ge=1, le=MOST_WORDS)] = 200
    per_unit: Annotated[int, Field(ge=1, le=50)] | None = None
    tokens_per_unit: Annotated[int, Field(ge=1, le=1000)] = 30
    frequency_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.3")
    only_common: bool = True
    selection: SelectionKind = "auto"
    ranking: Ranking = "counts"
    counting_share: Annotated[ExactDecimal, Field(gt=0, lt=1)] = Decimal("0.05")
    words: Annotated[tuple[str, ...], Field(max_length=MOST_WORDS), AfterValidator(_normalise_keywords)] = ()
    words_from: TextLine | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.method in _WITH_WORDS and not self.words:
            raise ValueError(f"the method {self.method} needs `words`, or a `file` made by `almoner keywords build`")
        if self.method not in _WITH_WORDS and (self.words or self.words_from):
            raise ValueError(f"the method {self.method} has no public `words`; `hybrid` adds to them")
        if self.frequency_share + self.counting_share >= 1:
            raise ValueError("frequency_share and counting_share leave nothing for the selection")
        return self

    @property
    def charged(self) -> bool:
        """Return whether drawing the set reads private text."""
        return self.method != "public"


def with_words_from_file(settings: Json) -> Json:
    """Return the settings of a request file with `file: words.json` replaced by its words; others unchanged.

    The stored request states everything that a plan depends on, so a file is read once, when the request is stored.

    Raises:
        WordsUnreadable, WordsInvalid: there is no such file, or `almoner keywords build` did not write it.
    """
    if not isinstance(settings, Mapping) or not isinstance(settings.get("file"), str) or "words" in settings:
        return settings  # the settings' own validation reports it
    path = Path(cast(str, settings["file"]))
    content = _read_keyword_file(path)
    rest = {name: value for name, value in settings.items() if name != "file"}
    return {**rest, "words": content["words"], "words_from": _file_origin(path, content)}


def _read_keyword_file(path: Path) -> Mapping[str, Json]:
    try:
        with open_user_file(path) as file:
            content = parse_json(file.read(LARGEST_FILE + 1), most_bytes=LARGEST_FILE)
    except OSError as problem:
        raise UsageError(
            f"The keywords in {path} cannot be read: {problem.strerror or type(problem).__name__}.",
            "Check the path, or create the file with `almoner keywords build`.",
            {"path": str(path)},
            code="WordsUnreadable",
        ) from None
    except ValueError:
        raise _words_invalid(path) from None
    words = content.get("words") if isinstance(content, dict) else None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _words_invalid(path)
    return cast("Mapping[str, Json]", content)


def _file_origin(path: Path, content: Mapping[str, Json]) -> str:
    source = content.get("source")
    source_facts = source if isinstance(source, Mapping) else {}
    provenance = (
        f", from {source_facts.get('file')}, SHA-256 {source_facts.get('sha256')}, declared to be public"
        if source_facts
        else ""
    )
    return f"{path.name}{provenance}"[:300]


def _words_invalid(path: Path) -> UsageError:
    return UsageError(
        f"{path} is not a keyword file.",
        'Create it with `almoner keywords build`, or write {"words": ["...", "..."]}. See docs/keywords.md.',
        {"path": str(path)},
        code="WordsInvalid",
    )
