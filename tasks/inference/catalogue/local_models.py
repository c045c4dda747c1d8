"""Models added from a folder of this machine: `<models>/local/<name>.json`. Imports no torch.

The record says where the folder is, what its licence is, and the digest of its files when it was added. A request names
the model by its name, and approves the digest: on another machine the same name with other files is refused.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models_db.errors import EnvironmentProblem
from tasks.inference.catalogue import model_store

REVISION = "local"


@dataclass(frozen=True)
class MergedParts:
    """SHA-256 of the files that a model with a merged adapter was made of: those of its base, and the adapter's."""

    base: str
    adapter: str

    def to_json(self) -> dict[str, str]:
        """Return them as they stand in a record and in a request, beside the digest of the merged files."""
        return {"base_sha256": self.base, "adapter_sha256": self.adapter}


@dataclass(frozen=True)
class LocalModel:
    """A model in a folder.

    Attributes:
        origin: what the folder was made of, where almoner made it (a GGUF file, an adapter); else the folder itself.
        parts: digests of base and adapter, where almoner merged them.
    """

    name: str
    folder: Path
    licence: str
    origin: str
    parts: MergedParts | None = None

    @property
    def revision(self) -> str:
        """Every local model's; its digest says which files it has."""
        return REVISION

    @property
    def record(self) -> Path:
        """Path of the record of its digest."""
        return _folder() / f"{self.name}.digest.json"


def model_folder_missing(name: str, folder: Path) -> EnvironmentProblem:
    """Return the error of an added model whose folder is not there any more."""
    return EnvironmentProblem(
        f"The folder {folder} of the model {name!r} is not there.",
        f"Put it back, or remove the model: almoner models remove {name}.",
        {"model": name, "folder": str(folder)},
        code="ModelFolderMissing",
    )


def local_models() -> list[LocalModel]:
    """Return all models that were added from folders, in order of name; a damaged record counts as none."""
    paths = sorted(path for path in _folder().glob("*.json") if not path.name.endswith(".digest.json"))
    return [model for path in paths if (model := _read(path)) is not None]


def find_local(name: str) -> LocalModel | None:
    """Return the added model of that name."""
    return next((model for model in local_models() if model.name == name), None)


def write_local(model: LocalModel) -> None:
    """Record a model; its digest is recorded beside it (`model_store.model_digest`)."""
    body: dict[str, Any] = {"folder": str(model.folder), "licence": model.licence, "origin": model.origin}
    body |= {} if model.parts is None else model.parts.to_json()
    model_store.write_text(_folder() / f"{model.name}.json", json.dumps(body, indent=2))


def forget_local(model: LocalModel) -> None:
    """Remove the records of a model; its folder stays."""
    (_folder() / f"{model.name}.json").unlink(missing_ok=True)
    model.record.unlink(missing_ok=True)


def _folder() -> Path:
    return model_store.models_folder() / "local"


def _read(path: Path) -> LocalModel | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        folder, licence, origin = Path(str(body["folder"])), str(body["licence"]), str(body["origin"])
        merged = "adapter_sha256" in body
        parts = MergedParts(str(body["base_sha256"]), str(body["adapter_sha256"])) if merged else None
        return LocalModel(path.stem, folder, licence, origin, parts)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
