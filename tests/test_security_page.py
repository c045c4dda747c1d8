"""What docs/security.md explains is held against bandit by `make audit`; here is what needs no bandit."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()

_spec = importlib.util.spec_from_file_location("audit", ROOT / ".ci" / "audit.py")
assert _spec is not None
assert _spec.loader is not None
audit = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(audit)

DEMO = "tasks/corpus/demo_clinic.py"
WANTED = {("B608", "migrations/versions/*"): "2", ("B311", DEMO): "1"}
FOUND = [
    ("B608", "migrations/versions/0001.py"),
    ("B608", "migrations/versions/0002.py"),
    ("B311", "tasks/corpus/demo_clinic.py"),
]


def test_findings_as_explained_are_no_findings() -> None:
    assert audit.compare(FOUND, WANTED) == []


def test_what_is_not_explained_is_told() -> None:
    assert audit.compare([*FOUND, ("B602", "cli/commands/release/run.py")], WANTED) == [
        "B602 in cli/commands/release/run.py is not explained in docs/security.md"
    ]
    assert audit.compare([*FOUND, ("B311", "tasks/mechanisms/core/rng.py")], WANTED) == [
        "B311 in tasks/mechanisms/core/rng.py is not explained in docs/security.md"
    ]


def test_one_more_and_one_less_of_what_is_explained_are_told() -> None:
    assert audit.compare([*FOUND, FOUND[0]], WANTED) == [
        "docs/security.md explains 2 of B608 in migrations/versions/*, there are 3"
    ]
    assert audit.compare(FOUND[:2], WANTED) == [f"docs/security.md explains 1 of B311 in {DEMO}, there are 0"]
    some = {**WANTED, ("B608", "migrations/versions/*"): "any"}
    assert audit.compare([*FOUND, FOUND[0]], some) == []
    assert audit.compare(FOUND[2:], some) == [
        "docs/security.md explains any of B608 in migrations/versions/*, there are 0"
    ]


def test_the_page_is_read_as_it_is_written() -> None:
    explained = audit.explained(PAGE)
    assert len(explained) == PAGE.count("\n| B")
    for rule, files in explained:
        assert list(ROOT.glob(files)), (rule, files)


def test_nothing_is_waved_through_in_the_code() -> None:
    rooms = ("almoner", "cli", "flows", "tasks", "models_db", "migrations", ".ci")
    marked = [
        path for room in rooms for path in (ROOT / room).rglob("*.py") if re.search(r"#\s*nosec", path.read_text())
    ]
    assert marked == []


def test_what_is_audited_is_what_is_installed() -> None:
    """`make audit` looks at both locks and at all rooms, and takes no silence for an answer."""
    makefile = (ROOT / "Makefile").read_text()
    target = makefile.partition("\naudit:\n")[2].partition("\n\n")[0]
    assert "--requirement requirements.lock --requirement requirements-dev.lock" in target
    assert "--strict" in target
    assert re.search(r"^ROOMS := almoner cli flows tasks models_db migrations$", makefile, re.MULTILINE)
