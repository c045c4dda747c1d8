"""Whether a model on this machine can be read, asked when it is pulled and when a request is priced.

What decides is its config.json (`loading.require_supported`), but looking takes seconds, because transformers has to be
imported. So what was found is written down beside the models, and a price looks there as long as the configuration and
transformers are the same. Whoever changes that file gains nothing: a model that is loaded is looked at again.

Nothing in this module imports torch before something has to be looked at.
"""

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from models_db.values.canonical_json import Json
from tasks.inference.catalogue import model_store
from tasks.inference.catalogue.registry import UnsupportedModel, find

CODE: Final = 2
"""Raised whenever `row_wise_modules` refuses or takes something else than before."""


def require_readable(name: str) -> None:
    """Check a pulled language model by its name: whatever else this machine must be able to do may be asked here.

    Raises:
        UnsupportedModel: the network that its config.json describes is none of ours.
        UnreadableModel: it has no configuration that transformers understands.
        ModelNotPulled: it is not here.
    """
    reason = _known(name)
    if reason is None:
        from tasks.inference.loading.loading import located

        reason = _look_at(name, located(find(name))[0])
    if reason:
        raise UnsupportedModel(name, reason)


def require_readable_in(name: str, folder: Path) -> None:
    """As `require_readable`, of a model whose configuration is in `folder` already, and perhaps no weights.

    Raises:
        UnsupportedModel, UnreadableModel.
    """
    if reason := _look_at(name, folder):
        raise UnsupportedModel(name, reason)


def _look_at(name: str, folder: Path) -> str:
    """Look at a model and write down what was found: why it cannot be used, or nothing."""
    from tasks.inference.loading.loading import require_supported

    reason = ""
    try:
        require_supported(name, folder)
    except UnsupportedModel as refusal:
        reason = refusal.reason
    _write(_record(name), {**_state(folder), "reason": reason})
    return reason


def _known(name: str) -> str | None:
    """What was written down, if all it depends on is still the same."""
    try:
        kept = json.loads(_record(name).read_text(encoding="utf-8"))
        same = all(kept[part] == value for part, value in _state(Path(kept["folder"])).items())
        return str(kept["reason"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _state(folder: Path) -> dict[str, Json]:
    """Return the facts on which a stored result depends."""
    status = (folder / "config.json").stat()
    return {
        "folder": str(folder),
        "config": [status.st_size, status.st_mtime_ns],
        "transformers": version("transformers"),
        "code": CODE,
    }


def _record(name: str) -> Path:
    return model_store.models_folder() / ".readable" / f"{name.replace('/', '--')}.json"


def _write(path: Path, found: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(found, indent=2), encoding="utf-8")
    partial.replace(path)
