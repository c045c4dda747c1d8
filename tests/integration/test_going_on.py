"""A run that was killed goes on: what it costs, what the ledger and the bundle say, and what it refuses."""

import re
from pathlib import Path

import pytest

from models_db.values.amounts import Amount, total_amount
from tasks.corpus.keys import KEY_BYTES
from tasks.decoding.journal import FILE, Contents, Journal
from tests.integration.killing import balance, instalments, is_clean, killed, ledger, nothing_is_out
from tests.integration.story import Almoner

pytestmark = pytest.mark.contract


def journal(almoner: Almoner) -> Path:
    return almoner.home.quarantine / "1-unfinished" / FILE


def left(almoner: Almoner) -> Contents:
    with Journal(journal(almoner).parent, 1) as opened:
        found = opened.open()
    assert found is not None
    return found


def test_killed_again_and_again_a_release_costs_its_plan_once(almoner: Almoner) -> None:
    almoner.approved()
    plan = instalments(almoner)
    killed("run 1", "mid generation")  # in the sixth of twelve steps
    assert [len(tokens) for tokens in left(almoner).tokens.values()] == [5] * 3
    killed("run 1", "mid generation")  # six steps on, one text at a time: the step is lost again
    first = left(almoner)
    assert [len(tokens) for tokens in first.tokens.values()] == [10, 5, 5]
    killed("run 1", "after hold")
    with journal(almoner).open("ab") as file:
        file.write(b"half a line")
    said = almoner.type("run 1")
    assert "Going on from attempt 3: 20 of 108 tokens are drawn; 3 draws of each unfinished text" in said.err

    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert ledger(almoner).armed() == [(0, 0), (1, 0), (1, 1), (1, 2)]
    rows = [row for link in almoner.ask("audit log --kind run.started") for row in link["details"]]
    assert [row["detail"] for row in rows if row["table"] == "transition"] == ["", "1", "2", "3"]
    assert [folder.name for folder in almoner.home.quarantine.iterdir()] == ["1-4"]

    almoner.go_on_to("published", after="produced")
    assert almoner.ask(f"verify-release {almoner.bundle}")["rho"] == total_amount(plan).rho_text
    assert almoner.ask("doctor")["ok"] is True
    told = "".join(path.read_text() for path in almoner.bundle.iterdir() if path.suffix not in (".sig", ".parquet"))
    assert not re.search(r'"attempt"|goes_on|going on|journal|interrupt', told)


def holders_of(key: bytes, folder: Path) -> list[str]:
    """Return the names of the files below `folder` that hold the key, as bytes or in hexadecimal digits."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(text in path.read_bytes() for text in (key, key.hex().encode()))]


def test_the_key_of_a_split_lasts_as_long_as_its_run(almoner: Almoner) -> None:
    """An attempt that goes on has the same key, one from nothing another; afterwards no file has either."""
    almoner.approved(epsilon=2)
    killed("run 1", "mid generation")
    key = left(almoner).split_key
    assert holders_of(key, almoner.folder) == [FILE]
    assert journal(almoner).stat().st_mode & 0o777 == 0o600
    killed("run 1", "mid generation")
    assert left(almoner).split_key == key
    almoner.type(f"backup --to {almoner.folder / 'saved.tar'}")
    assert holders_of(key, almoner.folder) == [FILE]
    dataset_key = next(path for path in almoner.home.keys.iterdir() if path.stat().st_size == KEY_BYTES)
    assert "saved.tar" in holders_of(dataset_key.read_bytes(), almoner.folder)  # a backup can be searched
    killed("run 1 --anew", "mid generation")
    other = left(almoner).split_key
    assert other != key
    almoner.type("run 1")
    assert holders_of(key, almoner.folder) == holders_of(other, almoner.folder) == []


@pytest.mark.slow
def test_a_run_with_two_workers_goes_on_and_costs_its_plan_once(almoner: Almoner) -> None:
    """Worker one has texts 0 and 2, worker two text 1: their steps are lines of their own, in whatever order."""
    almoner.approved()
    plan = instalments(almoner)
    killed("run 1 --workers 2", "after a step is kept")
    drawn = {number: len(tokens) for number, tokens in left(almoner).tokens.items()}
    steps = max(drawn.get(0, 0), drawn.get(2, 0)) + drawn.get(1, 0)
    assert steps == 9
    assert drawn.get(0) == drawn.get(2)
    said = almoner.type("run 1 --workers 2")
    assert f"Going on from attempt 1: {sum(drawn.values())} of 108 tokens are drawn; one draw of each" in said.err
    assert balance(almoner).spent == total_amount(plan)
    assert balance(almoner).held == Amount()
    assert almoner.ask("doctor")["ok"] is True


@pytest.mark.parametrize("how", ["damaged", "of another time", "of another request"])
def test_a_journal_that_does_not_fit_is_refused_before_anything_happens(almoner: Almoner, how: str) -> None:
    almoner.approved(epsilon=2)
    plan = instalments(almoner)
    killed("run 1", "mid generation")
    almoner.type("run sweep")
    path = journal(almoner)
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "of another request":
        path.unlink()
        with Journal(path.parent, 1) as made:
            made.assign("d" * 64, 1, bytes(32))
            made.begin(1, {"batches_per_block": "4"})
    else:  # a line is missing; or all are, as in a backup from before the second instalment was armed
        path.write_bytes(lines[0] + (lines[2] if how == "damaged" else b""))
    before = almoner.everything()
    refused = almoner.ask("run 1", expected=1)
    assert refused["error"] == "JournalUnfit"
    assert "almoner run 1 --anew" in refused["advice"]
    assert almoner.everything() == before
    spent = balance(almoner).spent
    almoner.type("run 1 --anew")
    assert balance(almoner).spent == spent + total_amount(plan)
    assert [folder.name for folder in almoner.home.quarantine.iterdir()] == ["1-2"]


def test_what_a_withdrawn_request_has_drawn_is_swept(almoner: Almoner) -> None:
    almoner.approved()
    killed("run 1", "mid generation")
    almoner.type("run sweep")
    is_clean(almoner, left=True)
    almoner.type('release withdraw 1 --reason "not needed"')
    assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 1}
    is_clean(almoner)


def test_a_key_that_a_killed_run_left_is_destroyed_before_its_release_is_out(almoner: Almoner) -> None:
    """Killed behind the commit, a run leaves its journal; what is published says that its key is destroyed."""
    almoner.approved()
    killed("run 1", "after commit")
    key = left(almoner).split_key
    almoner.go_on_to("published", after="produced")
    assert holders_of(key, almoner.folder) == []


def test_nothing_is_published_while_the_key_cannot_be_destroyed(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved()
    killed("run 1", "after commit")
    almoner.type('approve 1 --gate publish --reason "names nobody"')

    def fail(folder: Path) -> None:
        raise PermissionError(folder)

    with monkeypatch.context() as patch:
        patch.setattr("tasks.decoding.journal.shutil.rmtree", fail)
        assert almoner.ask(f"publish 1 --to {almoner.folder / 'out'}", expected=3)["error"] == "KeyNotDestroyed"
    nothing_is_out(almoner)
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    assert not journal(almoner).exists()
