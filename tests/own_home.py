"""A home for the tests of one process: they read nothing of the user's own, and write nothing there.

It is imported first, because Prefect reads its settings when it is imported. Of the user's models there are those that
`make weights` fetches, as links. A process that a test starts lives in the home of that test, with the environment that
the test gave it; a worker of pytest moves into one of its own.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks.inference.catalogue.model_store import models_folder
from tasks.inference.catalogue.registry import REGISTRY

STORE = "ALMONER_TESTS_STORE"
"""Variable that says where the user's models are: for workers, whose own home is within that of these tests."""
OF_THE_USER = re.compile(r"ALMONER_(?!REQUIRE_|TESTS_)|AWS_|HF_|PREFECT_|RAY_|XDG_")
WEIGHTS = ("smollm2-135m-instruct", "all-minilm-l6-v2")
HOME, RESIDENT = "ALMONER_TESTS_HOME", "ALMONER_TESTS_RESIDENT"
"""Variables that say where the home is, and who moved in: a worker of pytest, or its only process."""
WHO = os.environ.get("PYTEST_XDIST_WORKER", "pytest")
IS_GUEST = os.environ.get(RESIDENT) == WHO
FOLDER = Path(os.environ[HOME] if IS_GUEST else tempfile.mkdtemp(prefix="almoner-run-"))


def linked(source: Path, folder: Path, names: Collection[str]) -> Path:
    """Make a folder of links to the registry's models of these names, and to none that somebody added."""
    folder.mkdir()
    for spec in REGISTRY:
        model = source / f"{spec.name}@{spec.revision}"
        if spec.name in names and model.is_dir():
            (folder / model.name).symlink_to(model.resolve())
    return folder


def move_out() -> None:
    """Remove the home of whoever moved in."""
    if not IS_GUEST:
        shutil.rmtree(FOLDER, ignore_errors=True)


def move_in() -> None:
    """Let the environment name this home: no settings, no telemetry, no hub; threads that wait sleep (see tasks)."""
    store = Path(os.environ.setdefault(STORE, str(models_folder())))
    models = linked(store, FOLDER / "models", WEIGHTS)
    for name in filter(OF_THE_USER.match, list(os.environ)):
        del os.environ[name]
    (FOLDER / "home").mkdir()
    (FOLDER / "home" / ".gitconfig").write_text(f"[safe]\n\tdirectory = {Path(__file__).parents[1]}\n")
    os.environ |= {
        HOME: str(FOLDER),
        RESIDENT: WHO,
        "HOME": str(FOLDER / "home"),
        "ALMONER_MODELS": str(models),
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "XDG_RUNTIME_DIR": str(FOLDER),  # platformdirs warns unless there is one, and warnings are errors here
    }
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@contextmanager
def on_request(name: str) -> Iterator[Path]:
    """The folder of a further model, which is the only one meanwhile; the test is skipped where nobody has fetched it,
    whatever ALMONER_REQUIRE_ALL says, because nobody has to accept its terms or load its weights.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        models = linked(Path(os.environ[STORE]), Path(folder) / "models", [name])
        patch.setenv("ALMONER_MODELS", str(models))
        found = next(models.iterdir(), None)
        if found is None:
            pytest.skip(f"fetched on request only: almoner models pull {name}")
        yield found


if not IS_GUEST:
    move_in()
