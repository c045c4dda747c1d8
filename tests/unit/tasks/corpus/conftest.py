"""What the corpus tests share: a home, sources, and the public data sets beside the checkout."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from models_db.home import ProjectHome

SHARED_DATA = Path(__file__).resolve().parents[5] / "shared" / "data"


@pytest.fixture
def home(tmp_path: Path) -> ProjectHome:
    made = ProjectHome(tmp_path / "home")
    made.create()
    return made


@pytest.fixture
def jsonl(tmp_path: Path) -> Callable[..., Path]:
    def write(records: Iterable[Mapping[str, object] | bytes], name: str = "notes.jsonl") -> Path:
        lines = [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data sets; absent, the test is skipped, or fails under ALMONER_REQUIRE_ALL=1."""
    if not SHARED_DATA.is_dir():
        reason = f"the data sets are not at {SHARED_DATA}"
        if os.environ.get("ALMONER_REQUIRE_ALL") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED_DATA
