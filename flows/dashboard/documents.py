"""What of a release's files may be read, by whom: its report in a version, and its card.

A steward sees what `almoner report` makes. Everybody else sees the public version, and only while the release is out:
before the decision its texts are nobody's but the stewards', and what was retracted is not shown again.
These pages cannot write, so figures of governed data that read it unprotected are shown to those alone who are on
record as having seen some of that account: `almoner report ID --internal` and `almoner evaluate` record it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flows.dashboard.viewer import Look, Lookout
from models_db.errors import Refused
from models_db.services.audit.stored_text import files_of
from models_db.services.catalogue import internal_views, requests
from models_db.services.lifecycle import artifacts
from models_db.tables import Artifact, Dataset
from models_db.values.request_state import DECIDED, RequestState
from tasks.common.files import FileUnfit, measure, plain_file
from tasks.release.file_names import CARD
from tasks.reporting.audience_filter import Version, contents

LARGEST_CARD = 4 << 20


@dataclass(frozen=True)
class Papers:
    """The versions of a report that may be read, the first one by default; and whether the card may."""

    reports: tuple[Version, ...]
    card: bool


def papers_of(look: Look, state: str, made: Artifact | None, dataset: Dataset) -> Papers:
    """What the viewer may read of what a request has produced."""
    if made is None:
        return Papers((), card=False)
    reports = tuple(_versions(look, state, dataset))
    return Papers(reports, card=bool(reports))


def _versions(look: Look, state: str, dataset: Dataset) -> Iterator[Version]:
    if look.is_steward:
        yield "steward"
        yield "public"
        if not dataset.governed or (state in DECIDED and _has_seen(look, dataset)):
            yield "internal"
    elif state == RequestState.PUBLISHED:
        yield "public"


def _has_seen(look: Look, dataset: Dataset) -> bool:
    return internal_views.has_seen(look.session, dataset.account_id, look.actor.id)


def report_of(lookout: Lookout, number: int, version: Version) -> Mapping[str, Any]:
    """The content of a report, as `tasks.reporting.html_report.page` draws it.

    Raises:
        RequestUnknown: there is no such request.
        PaperWithheld: the viewer may not read it.
        ArtifactChanged, FileUnfit: the files are not here, or not those that were produced.
    """
    with lookout.look() as look:
        if version not in _papers(look, number).reports:
            raise PaperWithheld(number, f"the {version} version of the report")
    from flows.reports.build import report_facts  # it knows torch, which nothing else here needs

    # Without the map of texts: an embedder is more than whoever waits for requests should load.
    return contents(version, report_facts(lookout.workspace(), number, version, drawn=False, seen=True))


def card_of(lookout: Lookout, number: int) -> str:
    """The card of a release as it lies in quarantine, Markdown.

    Raises:
        RequestUnknown: there is no such request.
        PaperWithheld: the viewer may not read it.
        FileUnfit: the file is not here, or not the one that was produced.
    """
    with lookout.look() as look:
        made = artifacts.artifact_of(look.session, number)
        if not _papers(look, number).card or made is None:
            raise PaperWithheld(number, "the card")
    path = lookout.home.path_inside("quarantine", made.folder, CARD)
    if measure(path) != files_of(made).get(CARD):
        raise FileUnfit(CARD, "is not the one that was produced")
    with plain_file(path) as file:
        return file.read(LARGEST_CARD).decode()


def _papers(look: Look, number: int) -> Papers:
    request = requests.find_request(look.session, number)
    made, state = artifacts.artifact_of(look.session, number), requests.state_of(look.session, number)
    return papers_of(look, state, made, look.session.get_one(Dataset, request.dataset_id))


class PaperWithheld(Refused):
    """Somebody asked for a paper of a release that they may not read."""

    def __init__(self, number: int, what: str) -> None:
        super().__init__(
            f"Of request {number}, {what} is not shown to you now.",
            "Stewards see what a run produced; everybody else its public report while the release is out. Unprotected"
            " figures are shown by `almoner report ID --internal`, which records who sees them.",
            {"request": number},
        )
