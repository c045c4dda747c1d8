"""Page with the texts of a release in full: a part of them at a time, searched, and with the doubts about each."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from flows.dashboard.documents import document_withheld, documents_of_request
from flows.dashboard.viewer import View
from flows.releases.release_texts import find_doubtful
from models_db.home import ProjectHome
from models_db.services import artifacts, requests
from models_db.services.audit.log import files_of, request_body
from models_db.tables import Dataset
from tasks.common.files import FileUnfit, measure
from tasks.release.bundle_format import TEXTS, read_labelled
from tasks.release.prompt_passages import prompt_passages
from tasks.reporting.report_parts import TextOnPage
from tasks.text.doubts import describe_doubts, find_doubts

SHOWN_TEXTS: Final = 50


@dataclass(frozen=True)
class TextsPage:
    """Some of the texts of a release, in the order of the file.

    Attributes:
        of: how many texts the release has; `doubtful` of them have a doubt.
        looked_for: the sentence about that number.
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
    looked_for: str
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
        raise document_withheld(number, "the texts")
    request = requests.find_request(view.session, number)
    prompt = prompt_passages(request_body(request))
    folder, expected = home.draft(artifact.request_id, artifact.attempt), files_of(artifact).get(TEXTS)
    if expected is None or measure(folder / TEXTS) != expected:
        raise FileUnfit(TEXTS, "differs from the produced one")
    count, doubtful = find_doubtful(folder, str(expected["sha256"]), prompt)

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
    looked_for = describe_doubts(len(doubtful), count)
    return TextsPage(
        number, dataset, texts, count, len(doubtful), looked_for, matching, page, pages, find, only_doubtful
    )
