"""Folder of JSON files in the project home, each written whole, so that interrupted work resumes from it."""

import json
import shutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models_db.errors import EnvironmentProblem
from models_db.values.canonical_json import Json, parse_json
from tasks.common.files import write_over

MOST_FILE_BYTES = 1 << 30
"""Largest size of one stored file in bytes."""


@dataclass(frozen=True)
class JsonFolder(ABC):
    """A folder, which need not exist."""

    path: Path

    def clear(self) -> None:
        """Remove the folder."""
        if self.path.exists():
            shutil.rmtree(self.path)

    def read(self, name: str) -> Any:
        """Return the content of a file; None if there is none.

        Raises:
            The error of `damaged`: the file is.
        """
        try:
            return parse_json((self.path / name).read_bytes(), most_bytes=MOST_FILE_BYTES)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise self.damaged() from None

    def write(self, name: str, content: Json) -> None:
        """Write a file atomically: a name always refers to a whole file.

        Raises:
            The error of `unwritable`: the disk does not take it.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_over(self.path / name, json.dumps(content, ensure_ascii=False).encode(), 0o600)
        except OSError as problem:
            raise self.unwritable(problem.strerror or type(problem).__name__) from None

    def read_texts(self, what: str) -> list[str] | None:
        """Return the texts of a finished release; None if it is not finished."""
        stored = self.read(f"texts-{what}.json")
        return None if stored is None else [str(text) for text in stored]

    def write_texts(self, what: str, texts: list[str]) -> None:
        """Store the texts of a finished release."""
        self.write(f"texts-{what}.json", list(texts))

    @abstractmethod
    def damaged(self) -> EnvironmentProblem:
        """Return the error of a damaged file."""

    @abstractmethod
    def unwritable(self, reason: str) -> EnvironmentProblem:
        """Return the error of a disk that takes no file."""
