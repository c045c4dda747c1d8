"""What names the code, the policy and the person of a home."""

import shutil
from pathlib import Path

import pytest
import yaml

import models_db
from flows.workspace.policy_file import DEFAULT_POLICY
from flows.workspace.workspace import provenance
from models_db.policies.policy import Policy, RequiredApprovals
from models_db.values.requests import parse_model
from tasks.common.extensions import DECIDING_LIBRARIES, ROOMS, code_digest, library_versions


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rooms, somewhere else."""
    root = Path(models_db.__file__).parent.parent
    for room in ROOMS:
        shutil.copytree(root / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(models_db, "__file__", str(tmp_path / "models_db" / "__init__.py"))
    return tmp_path


def digest() -> str:
    """The digest, computed anew."""
    return code_digest.__wrapped__()


def test_the_same_code_has_the_same_digest_wherever_it_lies(copy: Path) -> None:
    assert digest() == digest()
    (copy / "flows" / "notes.txt").write_text("not code")
    (copy / "README.md").write_text("nor this")
    unchanged = digest()
    assert len(unchanged) == 64


@pytest.mark.parametrize("room", ROOMS)
def test_one_byte_of_any_room_changes_the_digest(copy: Path, room: str) -> None:
    before = digest()
    module = copy / room / "__init__.py"
    module.write_text(module.read_text() + "#")
    changed = digest()
    assert changed != before
    module.rename(copy / room / "other.py")
    assert digest() not in (before, changed)


def test_what_ran_is_recorded() -> None:
    recorded = provenance("cpu", "os")
    assert recorded.code_digest == code_digest()
    assert (recorded.device, recorded.rng_kind) == ("cpu", "os")
    assert set(library_versions()) == set(DECIDING_LIBRARIES)
    assert all(recorded.libraries.values())


def test_the_policy_of_a_new_home_differs_from_the_strictest_in_two_things() -> None:
    """Whoever starts alone may do everything; without those lines roles are separate and a proposal needs two."""
    written = parse_model(Policy, yaml.safe_load(DEFAULT_POLICY), "policy.yaml")
    assert (written.several_roles, written.approvals.proposal) == (True, 1)
    assert written.model_copy(update={"several_roles": False, "approvals": RequiredApprovals()}) == Policy(version=1)
