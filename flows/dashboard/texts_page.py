"""Page with the texts of a release in full: a part of them at a time, searched, and with the doubts about each."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from flows.dashboard.documents import DocumentWithheld, documents_of_request
from flows.dashboard.viewer import View
from models_db.home import ProjectHome
from models_db.services.audit.stored_text import files_of, request_body
from models_db.services.catalogue import requests
from models_db.services.lifecycle import artifacts
from models_db.tables import Dataset, Request
from tasks.common.files import FileUnfit, measure
from tasks.release.file_names import TEXTS
from tasks.release.text_rows import read_labelled
from tasks.reporting.sections import TextOnPage
from tasks.text.doubts import find_doubts

SHOWN_TEXTS: Final = 50


@dataclass(frozen=True)
class TextsPage:
    """Some of the texts of a release, in the order of the file.

    Attributes:
        of: how many texts the release has; `doubtful` of them have a doubt.
        matching: how many of them fit the search.
        page: the number of this page, from 1, of `pages`.
        find: words that the texts contain, whatever the case of their letters.
        only_doubtful: whether the search is for texts with a doubt.
    """

    request: int
    dataset: str
    texts: tuple[TextOnPage, ...]
    of: int
    doubtful: int
    matching: int
    page: int
    pages: int
    find: str
    only_doubtful: bool


def texts_page(
    view: View, home: ProjectHome, number: int, page: int = 1, find: str = "", *, only_doubtful: bool = False
) -> TextsPage:
    """Return a page of the texts of a request; the last one, if there are fewer.

    Whoever may read a report of the release may read its texts: stewards, and everybody while it is published.

    Raises:
        RequestUnknown: there is no such request.
        DocumentWithheld: the viewer may not read them.
        FileUnfit: the file is missing here, or differs from the produced one.
    """
    artifact = artifacts.artifact_of(view.session, number)
    if not documents_of_request(view, number).texts or artifact is None:
        raise DocumentWithheld(number, "the texts")
    request = requests.find_request(view.session, number)
    prompt = _prompt_of(request)
    folder, expected = home.draft(artifact.request_id, artifact.attempt), files_of(artifact).get(TEXTS)
    if expected is None or measure(folder / TEXTS) != expected:
        raise FileUnfit(TEXTS, "differs from the produced one")
    count, doubtful = _count_doubts(folder, str(expected["sha256"]), prompt)

    def fitting() -> Iterator[tuple[int, str, str | None]]:
        for index, (text, label) in enumerate(read_labelled(folder), 1):
            if (index in doubtful or not only_doubtful) and find.casefold() in text.casefold():
                yield index, text, label

    matching = sum(1 for _ in fitting())
    pages = max(1, -(-matching // SHOWN_TEXTS))
    page = min(max(1, page), pages)
    shown = islice(fitting(), (page - 1) * SHOWN_TEXTS, page * SHOWN_TEXTS)
    texts = tuple(TextOnPage(index, label, text, find_doubts(text, prompt)) for index, text, label in shown)
    dataset = view.session.get_one(Dataset, request.dataset_id).name
    return TextsPage(number, dataset, texts, count, len(doubtful), matching, page, pages, find, only_doubtful)


def _prompt_of(request: Request) -> str:
    """Return the public description for the model; empty for a request in a format that this version cannot read."""
    try:
        return str(request_body(request)["prompt"]["description"])
    except (KeyError, TypeError):
        return ""


@lru_cache(maxsize=16)
def _count_doubts(folder: Path, digest: str, prompt: str) -> tuple[int, frozenset[int]]:
    """Return the number of texts, and the numbers of those with a doubt.

    A doubt costs 0.1 to 0.2 ms of processor for each text, so they are kept for the next page.

    Args:
        digest: SHA-256 of the texts in `folder`.
    """
    count, doubtful = 0, set[int]()
    for count, (text, _) in enumerate(read_labelled(folder), 1):
        if find_doubts(text, prompt):
            doubtful.add(count)
    return count, frozenset(doubtful)
