"""docs/guides: the first release can be typed as it stands, figures are right, files that are named are there."""

import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from models_db.values.amounts import Amount, total_amount
from tasks.auditing.audit import case_of
from tasks.corpus.demo_clinic import write_demo_corpus
from tasks.mechanisms.counts import noisy_histogram
from tests import tiny_model
from tests.integration.story import Almoner

CONCERNS = ("docs/guides", "cli/commands")

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
FIRST, CARD, ADDING = (
    (GUIDES / f"{name}.md").read_text() for name in ("first-release", "reading-a-card", "adding-a-mechanism")
)
MODEL = "qwen2.5-coder-1.5b-instruct"
"""What the first release is made with. The tiny model stands in for it, and nothing else is changed."""


def blocks(page: str, language: str = "") -> list[str]:
    """The fenced blocks of one language, of none by default."""
    found = re.findall(r"^```([a-z]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [lines for named, lines in found if named == language]


def lines(page: str) -> list[str]:
    return [
        line.removeprefix("almoner ")
        for block in blocks(page)
        for line in block.splitlines()
        if line.startswith("almoner ")
    ]


def test_the_guides_are_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in GUIDES.glob("*.md") if f"docs/guides/{page.name}" not in readme] == []


@pytest.mark.slow
def test_the_first_release_can_be_typed(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command in its turn, with the name of the dataset typed where it is asked for; prices are those it says."""
    monkeypatch.chdir(almoner.folder)
    write_demo_corpus(almoner.folder / "notes.jsonl")
    (written,) = blocks(FIRST, "yaml")
    almoner.write("request.yaml", written.replace(MODEL, tiny_model.NAME))
    told = {line: almoner.type(line, piped="clinic\n").out for line in lines(FIRST) if not line.startswith("models")}
    priced = " ".join(told["release request request.yaml --dry-run"].split())
    (shown,) = (block for block in blocks(FIRST, "text") if block.startswith("It costs"))
    assert [line for line in shown.splitlines() if " ".join(line.split()) not in priced] == []
    assert "673 documents read" in told["dataset ingest clinic notes.jsonl"]
    assert "Request 1 is produced: 4 texts wait in quarantine." in told["run 1"]
    verified = [line.split() for line in told["verify-release out/clinic-release-1"].splitlines()]
    shown = FIRST[FIRST.index("All 24 checks hold") : FIRST.index("compare the key SHA256")].splitlines()
    assert [line for line in shown[:-1] if line.split() not in verified] == []
    forecast = [line.split() for line in told["budget forecast clinic --delta 1e-7"].splitlines()]
    shown = [line.split() for line in FIRST.splitlines() if re.match(r" +[\d.]+ +1e-7 ", line)]
    assert len(shown) == 4
    assert [row for row in shown if row not in forecast] == []
    almoner.write("request.yaml", (almoner.folder / "request.yaml").read_text().replace("epsilon: 4.0", "epsilon: 9.0"))
    refused = " ".join(almoner.type("release request request.yaml", 1).err.split())
    (said,) = (block for block in blocks(FIRST, "text") if block.startswith("BudgetExceeded"))
    assert " ".join(said.split()) in refused


def commands_of(row: str) -> list[str]:
    """The commands in the row of the auditors' table that begins so."""
    (found,) = re.findall(rf"^\| {row}.*\| (.+) \|$", (GUIDES / "auditors.md").read_text(), re.MULTILINE)
    return re.findall(r"`almoner (.+?)`", found)


WITH = {"audit export": " --to record.jsonl", "budget show": " clinic", "release show": " 1"}
"""What commands of the table need beside their name."""


def test_what_an_auditor_can_do_with_a_copy(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what takes a home; a role there is tried in test_people.py."""
    almoner.submitted()
    monkeypatch.chdir(almoner.folder)
    copied = almoner.folder / "copy"
    copied.mkdir()
    with closing(sqlite3.connect(almoner.home.root / "almoner.db")) as ledger:
        ledger.execute("VACUUM INTO 'copy/almoner.db'")
    reading, opening = commands_of("the address of the ledger"), commands_of("a home of your own")
    assert (len(reading), len(opening)) == (4, 5)
    for command in reading:
        almoner.type(f"{command}{WITH.get(command, '')} --home copy")
    for command in opening:
        almoner.type(f"{command}{WITH.get(command, '')} --home copy", 3)
        home = f"--home {almoner.home.root}"
        almoner.type(f"{command}{WITH.get(command, '')} {home}", None if command == "doctor" else 0)


def test_what_a_card_means_is_computed() -> None:
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) times \| ([\d.]+) % \|$", CARD, re.MULTILINE)
    assert len(rows) == 5
    for epsilon, ratio, right in rows:
        assert float(ratio) == pytest.approx(math.exp(float(epsilon)), rel=0.002)
        assert float(right) == pytest.approx(100 / (1 + math.exp(-float(epsilon))), abs=0.05)


def test_the_bill_of_a_card_adds_up() -> None:
    (bill,) = (block for block in blocks(CARD, "text") if "integer_draw" in block)
    *charged, claimed = [Amount(int(figure.replace(".", "").ljust(13, "0"))) for figure in re.findall(r"0\.\d+", bill)]
    assert total_amount(charged) == claimed


NAMED = re.compile(r"`([\w/]+/[\w.]+\.(?:py|md))`")


def test_the_files_that_a_mechanism_needs_are_there() -> None:
    named = NAMED.findall(ADDING)
    assert len(set(named)) >= 15
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("EVENTS", "tests/unit/tasks/mechanisms/test_registry.py"),
        ("FREE", "tests/unit/tasks/mechanisms/test_registry.py"),
        ("SEEN", "tests/statistical/test_privacy_audits.py"),
        ("CASES", "tasks/auditing/audit.py"),
    ],
)
def test_the_tables_that_a_mechanism_is_entered_in_are_there(name: str, file: str) -> None:
    assert f"`{name}`" in ADDING
    assert re.search(rf"^{name}\b.* = [{{\[]", (ROOT / file).read_text(), re.MULTILINE)


def test_the_parts_of_the_mechanism_are_there() -> None:
    parts = re.findall(r"^\| `(\w+)(?:\(.*?\))?` \|", ADDING, re.MULTILINE)
    assert parts == ["MECHANISM", "loss", "event", "from_event", "draw", "calibrate_histogram"]
    assert [p for p in parts if not (hasattr(noisy_histogram, p) or hasattr(noisy_histogram.NoisyHistogram, p))] == []
    assert case_of(noisy_histogram.MECHANISM).neighbours == "100 units in one bin, and one more in another"
