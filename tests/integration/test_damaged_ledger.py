"""A ledger on SQLite with flipped bytes in its schema, or that was cut: a named refusal at every command."""

import gc
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flows.dashboard.viewer import open_viewer
from tests.integration.story import Almoner
from tests.refusals import refusal

COMMANDS = (
    "doctor", "init", "user list", "dataset list", "budget show clinic", "release list", "release show 1", "run 1",
    "audit verify", "audit log", "backup --to {}",
)  # fmt: skip


class Damaged:
    """The home of a story, put back before each command, with a ledger that was damaged."""

    def __init__(self, almoner: Almoner) -> None:
        self.almoner, self.kept, self.backups = almoner, almoner.folder / "kept", 0
        gc.collect()  # whoever still holds the file lets go of it
        with closing(sqlite3.connect(self.file)) as ledger:
            assert ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        self.content = self.file.read_bytes()
        shutil.copytree(almoner.home.root, self.kept)

    @property
    def file(self) -> Path:
        return self.almoner.home.root / "almoner.db"

    def answers(self, content: bytes) -> Iterator[tuple[str, int, str]]:
        """Each command, its exit code, and the error that it names; whatever has no name is raised."""
        for command in COMMANDS:
            shutil.rmtree(self.almoner.home.root)
            shutil.copytree(self.kept, self.almoner.home.root)
            self.file.write_bytes(content)
            self.backups += 1
            told = self.almoner.type(command.format(self.almoner.folder / f"{self.backups}.tar") + " --json", None)
            answer = told.json
            yield command, told.code, answer.get("error", "") if isinstance(answer, dict) else ""

    def flipped(self, place: int, bits: int) -> bytes:
        return self.content[:place] + bytes([self.content[place] ^ bits]) + self.content[place + 1 :]


@pytest.fixture
def damaged(almoner: Almoner) -> Damaged:
    almoner.approved()
    return Damaged(almoner)


@pytest.mark.parametrize(
    ("before", "bits"),
    [
        (b"SQLite format 3", 1),  # it is no database
        (b"CREATE TRIGGER request_no_update", 2),  # a statement that cannot be parsed
        (b"request_no_update", 128),  # bytes that are no UTF-8, which the message of SQLite repeats
    ],
)
def test_a_damaged_schema_is_a_named_error_at_every_command(damaged: Damaged, before: bytes, bits: int) -> None:
    content = damaged.flipped(damaged.content.index(before), bits)
    if bits == 128:  # the name alone breaks nothing
        content = content.replace(b"CREATE TRIGGER request_no_update", b"CREATE TROGGER request_no_update")
    for command, code, error in damaged.answers(content):
        # `doctor` says it among what else it finds.
        assert (code, error) == (3, "" if command == "doctor" else "LedgerUnreadable"), command


@pytest.mark.parametrize("kept", ["nothing", "one byte", "first page", "half"])
def test_a_file_that_was_cut_is_never_to_be_made_again(damaged: Damaged, kept: str) -> None:
    """`almoner init` would be a new ledger, with everybody's whole budget."""
    size = {"nothing": 0, "one byte": 1, "first page": 4096, "half": len(damaged.content) // 2}[kept]
    for command, code, error in damaged.answers(damaged.content[:size]):
        if size > 1:
            assert (code, error) == (3, "" if command == "doctor" else "LedgerUnreadable"), command
        else:  # SQLite makes a database of such a file
            assert (code, error) == ((3, "") if command == "doctor" else (1, "LedgerRolledBack")), command
    assert "almoner init" not in damaged.almoner.type("doctor", 3).out
    with refusal("LedgerUnreadable" if size > 1 else "LedgerRolledBack"), open_viewer(damaged.almoner.home).open_view():
        pass


@pytest.mark.slow
def test_no_flip_in_the_schema_is_a_traceback(damaged: Damaged) -> None:
    size = int.from_bytes(damaged.content[16:18], "big")
    pages = [at for at in range(0, len(damaged.content), size) if b"CREATE " in damaged.content[at : at + size]]
    chosen = random.Random(18)
    counted = Counter[tuple[int, str]]()
    for number in range(90):
        page = 0 if number % 3 == 0 else chosen.choice(pages)  # the first page, a header of a page, or anywhere
        place = page + chosen.randrange(120 if number % 3 == 1 else size)
        for _, code, error in damaged.answers(damaged.flipped(place, 1 << chosen.randrange(8))):
            counted[code, error] += 1
    assert sum(counted.values()) == 90 * len(COMMANDS)
    # A flip within a guard's condition can make it deny what it allowed.
    named = {"", "LedgerUnreadable", "SchemaDiffers", "SchemaOutdated", "RuleViolated", "LedgerRolledBack"}
    assert {error for _, error in counted} <= named, counted
    assert counted[3, "LedgerUnreadable"] > 90
