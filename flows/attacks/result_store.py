"""Stored results of attacks on public twins: members, texts and measurements, one folder each.

Everything in it is public or was made from public data. A step is on disk before the next one begins, so whatever is
interrupted goes on from there.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.values.bounded_json import parse_json
from models_db.values.canonical_json import Json, digest
from tasks.attacks.public_twin import TwinSplit
from tasks.common.files import write_over

FORMAT: Final = "almoner-attacks/1"
CONFIGURATION_FIELDS = ("kind", "mechanism", "epsilon", "delta", "model", "parameters", "prompt")
"""The fields of a canonical request that decide what a release gives away, whatever data it is made from."""

MOST_FILE_BYTES = 1 << 30
"""Bytes of one file that an attack keeps."""
_ATTACKS_FOLDER, _SPLIT_FILE, _RESULT_FILE = "attacks", "stage.json", "result.json"


def configuration_of(body: Mapping[str, Json]) -> dict[str, Json]:
    """Return the part of a canonical request that an attack depends on."""
    return {name: body.get(name) for name in CONFIGURATION_FIELDS}


@dataclass(frozen=True)
class AttackFolder:
    """The folder of one configuration on one version of one twin."""

    path: Path

    @classmethod
    def for_configuration(cls, home: ProjectHome, configuration: Mapping[str, Json], twin_uid: str) -> "AttackFolder":
        """Return the folder of a configuration, which need not exist."""
        return cls(home.path_inside(_ATTACKS_FOLDER, f"{digest(dict(configuration))[:16]}-{twin_uid[:12]}"))

    def clear(self) -> None:
        """Remove all stored results of the configuration."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def read_split(self) -> TwinSplit | None:
        """Return the member split; None before it is made.

        Raises:
            AttackUnreadable: the file is damaged.
        """
        stored = self._read(_SPLIT_FILE)
        if stored is None:
            return None
        try:
            return TwinSplit.from_json(stored)
        except (KeyError, TypeError, ValueError):
            raise AttackUnreadable(self.path.name) from None

    def write_split(self, stage: TwinSplit) -> None:
        """Write down who is in."""
        self._write(_SPLIT_FILE, stage.to_json())

    def read_texts(self, what: str) -> list[str] | None:
        """The texts of a finished release; None before that."""
        stored = self._read(f"texts-{what}.json")
        return None if stored is None else [str(text) for text in stored]

    def write_texts(self, what: str, texts: Sequence[str]) -> None:
        """Write down a finished release."""
        self._write(f"texts-{what}.json", list(texts))

    def read_result(self) -> dict[str, Any] | None:
        """Return the stored result; None before there is one."""
        result: dict[str, Any] | None = self._read(_RESULT_FILE)
        return result

    def write_result(self, result: Mapping[str, Json]) -> None:
        """Write down what was found."""
        self._write(_RESULT_FILE, dict(result))

    def _read(self, name: str) -> Any:
        try:
            return parse_json((self.path / name).read_bytes(), most_bytes=MOST_FILE_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise AttackUnreadable(self.path.name) from None

    def _write(self, name: str, content: Json) -> None:
        """All or nothing: a name is only given to a whole file."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_over(self.path / name, json.dumps(content, ensure_ascii=False).encode(), 0o600)
        except OSError as problem:
            raise AttackUnwritable(problem.strerror or type(problem).__name__) from None


def list_results(home: ProjectHome) -> list[dict[str, Any]]:
    """All results of this home, oldest configuration digest first.

    Raises:
        AttackUnreadable: one is damaged.
    """
    folder = home.path_inside(_ATTACKS_FOLDER)
    results = (AttackFolder(path).read_result() for path in sorted(folder.iterdir())) if folder.is_dir() else ()
    return [result for result in results if result is not None]


def results_for(home: ProjectHome, body: Mapping[str, Json]) -> list[dict[str, Any]]:
    """The finished results for the configuration of a canonical request: public values, fit for a gate.

    Whether they came from the code that is installed now says `code`.
    """
    configuration = digest(configuration_of(body))
    return [each for each in list_results(home) if each["configuration_digest"] == configuration and each["finished"]]


class AttackUnreadable(EnvironmentProblem):
    """A stored attack that is damaged."""

    def __init__(self, folder: str) -> None:
        super().__init__(
            f"What is stored of the attack {folder!r} is damaged.",
            f"Remove the folder attacks/{folder} of the project home, or attack again with --anew.",
            {"folder": folder},
        )


class AttackUnwritable(EnvironmentProblem):
    """The project home cannot take the results of an attack."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The results of the attack cannot be written: {reason}.",
            "Make room on the disk of the project home, then attack again: what was finished is kept.",
            {"reason": reason},
        )
