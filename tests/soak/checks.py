"""What must hold whenever nothing runs: budget, slots, chain, files, and what private data was told to whom."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from models_db.home import draft_name
from models_db.sessions.database import Database
from tests.integration.canary import leaks
from tests.integration.story import Almoner
from tests.soak import accounts, world
from tests.soak.accounts import Draw, Key
from tests.support import fetch, snapshot


def examine(almoner: Almoner, database: Database, drawn: Mapping[Key, Iterable[Draw]], said: str) -> list[str]:
    """Everything that is wrong, as sentences; nothing runs meanwhile, and a sweep was made.

    Args:
        drawn: what pollers told before each draw.
        said: all that pollers said else.
    """
    found = [*accounts.examine(database, drawn), *_slots(database), *_running(database)]
    found += [*_files(almoner, database), *_record(almoner)]
    return [*found, *_private(almoner, database, said)]


def _slots(database: Database) -> Iterator[str]:
    """Each slot is decided once and forwards, has one request, and that at most one artifact."""
    rows = fetch(database, "SELECT schedule_id, slot, request_id, skipped FROM schedule_slot ORDER BY id")
    newest: dict[object, str] = {}
    for schedule, slot, request, skipped in rows:
        if str(slot) <= newest.get(schedule, ""):
            yield f"slot {slot} of schedule {schedule} was decided after {newest[schedule]}"
        if (request is None) == (skipped is None):
            yield f"slot {slot} of schedule {schedule} is request {request} and skipped for {skipped}"
        newest[schedule] = str(slot)
    asked = Counter(request for _, _, request, _ in rows if request is not None)
    requests = {number for (number,) in fetch(database, "SELECT id FROM request")}
    if set(asked) != requests or any(count != 1 for count in asked.values()):
        yield f"requests {requests ^ set(asked)} are of no slot, or slots of no request"
    made = Counter(number for (number,) in fetch(database, "SELECT request_id FROM artifact"))
    yield from (f"request {number} has {count} artifacts" for number, count in made.items() if count > 1)


def _running(database: Database) -> Iterator[str]:
    """Nothing runs any more."""
    rows = fetch(database, "SELECT request_id, to_state FROM transition ORDER BY request_id, number")
    if running := {number for number, state in dict(rows).items() if state == "running"}:
        yield f"requests {running} run though nothing does"


def _files(almoner: Almoner, database: Database) -> Iterator[str]:
    """Every artifact has its files, byte for byte, and there are no others than what can be gone on from."""
    home, rows = almoner.home, fetch(database, "SELECT request_id, attempt, files FROM artifact")
    states = dict(fetch(database, "SELECT request_id, to_state FROM transition ORDER BY request_id, number"))
    waiting = {f"{number}-unfinished" for number, state in states.items() if state in ("submitted", "approved")}
    expected = {draft_name(number, attempt) for number, attempt, _ in rows}
    there = {path.name for path in home.quarantine.iterdir()}
    yield from (f"artifact {name} has no folder" for name in sorted(expected - there))
    yield from (f"folder {name} of quarantine is nobody's" for name in sorted(there - expected - waiting))
    for number, attempt, files in rows:
        yield from _bytes(home.draft(number, attempt), json.loads(str(files)))
    for place in (home.scratch, home.released):
        yield from (f"{path} is left" for path in (place.iterdir() if place.exists() else ()))
    versions = {str(uid) for (uid,) in fetch(database, "SELECT uid FROM dataset_version")}
    if (corpora := {path.name for path in home.corpora.iterdir()}) != versions:
        yield f"corpora and versions differ: {corpora ^ versions}"


def _bytes(folder: Path, files: Mapping[str, Any]) -> Iterator[str]:
    if not folder.is_dir():
        return  # it was told already
    if (there := {path.name for path in folder.iterdir()}) != set(files):
        yield f"{folder.name} has {sorted(there)} instead of {sorted(files)}"
        return
    for name, facts in files.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != facts["sha256"]:
            yield f"{name} of {folder.name} is not what was committed"


def _record(almoner: Almoner) -> Iterator[str]:
    """The chain holds and the doctor is content."""
    walked = almoner.type("audit verify --json", None)
    if walked.code or not walked.json["holds"]:
        yield f"audit verify: {walked.out}"
    looked = almoner.type("doctor --json", None)
    if looked.code or not looked.json["ok"]:
        yield f"doctor: {[finding for finding in looked.json['findings'] if not finding['ok']]}"


def _private(almoner: Almoner, database: Database, said: str) -> Iterator[str]:
    """No text of a note stands in the ledger, or in anything that was said."""
    told = world.told(almoner)
    texts = {
        "the ledger": repr(snapshot(database)),
        "what pollers wrote": told.read_text() if told.exists() else "",
        "what pollers told": said,
    }
    yield from (f"private text stands in {where}" for where, text in texts.items() if leaks(text))
