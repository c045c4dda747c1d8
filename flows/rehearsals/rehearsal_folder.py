"""Folder of one rehearsal: the split of the people, and the texts as they are made. All of it is public."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.workspace.json_folder import JsonFolder
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome

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
