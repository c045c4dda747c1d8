"""Stored rehearsals: the folder of one, all of it public, and the results in the ledger as a gate shows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError
from sqlalchemy.orm import Session

from flows.workspace.json_folder import JsonFolder
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.services import requests
from models_db.tables import Rehearsal
from tasks.common.extensions import code_digest
from tasks.common.published_values import Name, Strict
from tasks.rehearsal.result import RehearsalResult, configuration_digest

if TYPE_CHECKING:
    from tasks.rehearsal.split import RehearsalSplit


_FOLDER, _SPLIT_FILE = "rehearsals", "split.json"


@dataclass(frozen=True)
class RehearsalFolder(JsonFolder):
    """The folder of one configuration on one version of one public dataset."""

    def damaged(self) -> EnvironmentProblem:
        """Return the error of a damaged file."""
        return EnvironmentProblem(
            f"The stored rehearsal {self.path.name!r} is damaged.",
            f"Remove the folder rehearsals/{self.path.name} of the project home, or rehearse again with --anew.",
            {"folder": self.path.name},
            code="RehearsalUnreadable",
        )

    def unwritable(self, reason: str) -> EnvironmentProblem:
        """Return the error of a disk that takes no file."""
        return EnvironmentProblem(
            f"The texts of the rehearsal cannot be written: {reason}.",
            "Make room on the disk of the project home, then rehearse again: finished releases are kept.",
            {"reason": reason},
            code="RehearsalUnwritable",
        )

    @classmethod
    def of(cls, home: ProjectHome, configuration: str, twin_uid: str) -> "RehearsalFolder":
        """Return the folder of a configuration, by its digest; it need not exist."""
        return cls(home.path_inside(_FOLDER, f"{configuration[:16]}-{twin_uid[:12]}"))

    def read_split(self, texts: int, code: str) -> "RehearsalSplit | None":
        """Return the split; None before it is drawn, or if it was drawn for other settings or by other code.

        Raises:
            RehearsalUnreadable: the file is damaged.
        """
        from tasks.rehearsal.split import RehearsalSplit

        stored = self.read(_SPLIT_FILE)
        try:
            if stored is None or (stored.pop("texts"), stored.pop("code")) != (texts, code):
                return None
            return RehearsalSplit.from_json(stored)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self.damaged() from None

    def write_split(self, split: "RehearsalSplit", texts: int, code: str) -> None:
        """Store the split."""
        self.write(_SPLIT_FILE, {"texts": texts, "code": code, **split.to_json()})


class RecordedRehearsal(Strict):
    """The newest rehearsal of a request on one public dataset.

    Attributes:
        by, at: the person who rehearsed it, and the time.
        runs: the number of rehearsals of the request on this dataset.
        same_code: whether the installed code made it.
    """

    result: RehearsalResult
    by: Name
    at: Name
    runs: Annotated[int, Field(ge=1)] = 1
    same_code: bool = True

    @property
    def sentence(self) -> str:
        """Return the result in one sentence, with its author and the number of tries."""
        tried = f", the newest of {self.runs}" if self.runs > 1 else ""
        code = "" if self.same_code else ", by another version of almoner"
        return f"{self.result.sentence} Rehearsed by {self.by}{tried}{code}."


def recorded_rehearsals(session: Session, body: Mapping[str, Any]) -> tuple[RecordedRehearsal, ...]:
    """Return the newest rehearsal of a canonical request on each public dataset, the newest dataset first."""
    by_twin: dict[str, list[tuple[Rehearsal, RehearsalResult]]] = {}
    for row, one in parsed_results(session, configuration_digest(body)):
        by_twin.setdefault(one.twin.name, []).append((row, one))
    return tuple(
        RecordedRehearsal(
            result=runs[0][1],
            by=requests.principal_name(session, runs[0][0].actor_id),
            at=runs[0][0].at,
            runs=len(runs),
            same_code=runs[0][1].code == code_digest(),
        )
        for runs in by_twin.values()
    )


def parsed_results(session: Session, configuration: str) -> list[tuple[Rehearsal, RehearsalResult]]:
    """Return the rehearsals of a configuration, by its digest, the newest first.

    A row that is not a rehearsal of it is left out, so that a malformed row cannot hide the others.
    """
    parsed = [(row, _parsed(row)) for row in requests.rehearsals_of(session, configuration)]
    return [(row, one) for row, one in parsed if one is not None and one.configuration == configuration]


def _parsed(row: Rehearsal) -> RehearsalResult | None:
    try:
        return RehearsalResult.model_validate_json(row.result)
    except ValidationError:
        return None
