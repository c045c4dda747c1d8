"""Stored results of attacks on public twins: members, texts and measurements, one folder each.

Everything in it is public or was made from public data. A step is on disk before the next one begins, so whatever is
interrupted goes on from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from flows.workspace.json_folder import JsonFolder
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.values.canonical_json import Json, digest
from tasks.attacks.public_twin import TwinSplit

FORMAT: Final = "almoner-attacks/1"
CONFIGURATION_FIELDS = ("kind", "mechanism", "epsilon", "delta", "model", "parameters", "prompt")
"""The fields of a canonical request that determine the leakage of a release, for any data."""

_ATTACKS_FOLDER, _SPLIT_FILE, _RESULT_FILE = "attacks", "stage.json", "result.json"


def configuration_of(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a canonical request that an attack depends on."""
    return {name: body.get(name) for name in CONFIGURATION_FIELDS}


@dataclass(frozen=True)
class AttackFolder(JsonFolder):
    """The folder of one configuration on one version of one twin."""

    def damaged(self) -> EnvironmentProblem:
        """Return the error of a damaged file."""
        return EnvironmentProblem(
            f"The stored attack {self.path.name!r} is damaged.",
            f"Remove the folder attacks/{self.path.name} of the project home, or attack again with --anew.",
            {"folder": self.path.name},
            code="AttackUnreadable",
        )

    def unwritable(self, reason: str) -> EnvironmentProblem:
        """Return the error of a disk that takes no file."""
        return EnvironmentProblem(
            f"The results of the attack cannot be written: {reason}.",
            "Make room on the disk of the project home, then attack again: finished steps are kept.",
            {"reason": reason},
            code="AttackUnwritable",
        )

    @classmethod
    def for_configuration(cls, home: ProjectHome, configuration: Mapping[str, Json], twin_uid: str) -> "AttackFolder":
        """Return the folder of a configuration, which need not exist."""
        return cls(home.path_inside(_ATTACKS_FOLDER, f"{digest(dict(configuration))[:16]}-{twin_uid[:12]}"))

    def read_split(self) -> TwinSplit | None:
        """Return the member split; None before it is made.

        Raises:
            AttackUnreadable: the file is damaged.
        """
        stored = self.read(_SPLIT_FILE)
        if stored is None:
            return None
        try:
            return TwinSplit.from_json(stored)
        except (KeyError, TypeError, ValueError):
            raise self.damaged() from None

    def write_split(self, stage: TwinSplit) -> None:
        """Store the member split."""
        self.write(_SPLIT_FILE, stage.to_json())

    def read_result(self) -> dict[str, Any] | None:
        """Return the stored result; None before there is one."""
        result: dict[str, Any] | None = self.read(_RESULT_FILE)
        return result

    def write_result(self, result: Mapping[str, Json]) -> None:
        """Store the result."""
        self.write(_RESULT_FILE, dict(result))


def list_results(home: ProjectHome) -> list[dict[str, Any]]:
    """Return all results of this home, sorted by configuration digest.

    Raises:
        AttackUnreadable: a stored result is damaged.
    """
    folder = home.path_inside(_ATTACKS_FOLDER)
    results = (AttackFolder(path).read_result() for path in sorted(folder.iterdir())) if folder.is_dir() else ()
    return [result for result in results if result is not None]


def results_for(home: ProjectHome, body: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Return the finished results for the configuration of a canonical request: public values, fit for a gate.

    `code` in a result says whether the installed code produced it.
    """
    configuration = digest(configuration_of(body))
    return [each for each in list_results(home) if each["configuration_digest"] == configuration and each["finished"]]
