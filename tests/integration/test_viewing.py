"""Whoever has seen unprotected figures of an account is on record, and everything later on that account says so."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from cli.web.access import AccessOptions, access_policy
from cli.web.application import application
from models_db.values.exposures import CONDITIONAL_CLAIM
from tasks.common.files import encode_json
from tests.integration.story import NOTES, Almoner
from tests.support import fetch, today

CONCERNS = ("flows/approvals", "flows/releases", "migrations/schema", "models_db/services")

SMALL = {"epsilon": 1.0, "evaluation": ["length"]}
PUBLISHED = ("README.md", "report.html", "checklist.md", "deployment.yaml", "croissant.json")


def looked(almoner: Almoner) -> str:
    """Release 1 is out, and the owner of the home has seen its unprotected figures; returns their name."""

    def make() -> None:
        almoner.published(**SMALL)
        almoner.type("evaluate 1 --internal --workers 2 --runner threads")

    almoner.brought("unprotected figures of release 1 were seen", make)
    return str(almoner.ask("user list")["people"][0]["name"])


def request(almoner: Almoner, **changes: object) -> int:
    return int(almoner.ask(f"release request {almoner.request_file(**SMALL | changes)}")["request"])


def publish(almoner: Almoner, number: int, dataset: str = "clinic") -> Path:
    almoner.type(f'approve {number} --gate spend --reason "again" --confirm {dataset}')
    almoner.type(f"run {number}")
    almoner.type(f'approve {number} --gate publish --reason "names nobody" --confirm {dataset}')
    return Path(almoner.ask(f"publish {number} --to {almoner.folder / 'out'}")["bundle"])


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_later_place_says_it(any_almoner: Almoner) -> None:
    almoner = any_almoner
    name = looked(almoner)
    number = request(almoner)
    price = almoner.ask(f"release request {almoner.request_file(**SMALL)} --dry-run")["price"]
    assert price["unprotected_figures"] == {"since": today(), "people": [name], "meaning": CONDITIONAL_CLAIM}
    seen = f"first seen on {today()}; they were seen by {name}. {CONDITIONAL_CLAIM}"
    assert almoner.ask("budget show clinic")["unprotected_figures"]["people"] == [name]
    assert seen in plain(almoner.type("budget show clinic").out)
    assert "Unprotected figures" in almoner.type(f"release request {almoner.request_file(**SMALL)} --dry-run").out
    assert seen in plain(almoner.type(f"release show {number}").out)  # the screen of the spend gate
    assert seen in page(almoner, "/datasets/clinic")
    bundle = publish(almoner, number)
    assert CONDITIONAL_CLAIM in str([one for one in almoner.ask(f"report {number}")["sections"] if "lines" in one])
    record = json.loads((bundle / "release.json").read_bytes())
    assert record["unprotected_figures"] == {"since": today(), "people": 1}
    for file in PUBLISHED[:-1]:
        assert CONDITIONAL_CLAIM in words((bundle / file).read_text()), file
    assert f'"dp:unprotectedFiguresSeenSince":"{today()}"' in (bundle / PUBLISHED[-1]).read_text().replace(": ", ":")
    assert "one person" in (bundle / "README.md").read_text()
    almoner.type(f"verify-release {bundle}")
    assert almoner.type("audit verify").code == almoner.type("doctor", None).code == 0


@pytest.mark.slow
def test_the_release_before_says_nothing_of_it(almoner: Almoner) -> None:
    looked(almoner)
    assert "unprotected_figures" not in json.loads((almoner.bundle / "release.json").read_bytes())
    almoner.type(f"verify-release {almoner.bundle}")


@pytest.mark.slow_except("removed")
@pytest.mark.parametrize("change", ["removed", "fewer", "earlier"])
def test_a_bundle_cannot_leave_it_out(almoner: Almoner, change: str) -> None:
    looked(almoner)
    bundle = publish(almoner, request(almoner))
    record = json.loads((bundle / "release.json").read_bytes())
    if change == "removed":
        del record["unprotected_figures"]
    else:
        record["unprotected_figures"] |= {"fewer": {"people": 2}, "earlier": {"since": "2020-01-01"}}[change]
    (bundle / "release.json").write_bytes(encode_json(record))
    failed = {one["name"] for one in almoner.ask(f"verify-release {bundle}", 1)["checks"] if not one["ok"]}
    assert {"digests", "card", "checklist.md", "report.html", "attestation"} <= failed


@pytest.mark.slow
def test_it_is_the_accounts(any_almoner: Almoner) -> None:
    almoner = any_almoner
    looked(almoner)
    assert almoner.ask("budget show clinic")["unprotected_figures"]
    beside = [note | {"patient_id": f"other-{note['patient_id']}"} for note in NOTES]
    for name, options in (("ward", "--shares-account-with clinic"), ("harbour", "--epsilon 8 --delta 1e-6")):
        almoner.type(f"dataset register {name} --unit patient_id {options}")
        notes = [note | {"patient_id": f"{name}-{note['patient_id']}"} for note in beside]
        almoner.type(f"dataset ingest {name} {almoner.notes_file(f'{name}.jsonl', notes)}")
    for name, marked in (("ward", True), ("harbour", False)):
        assert bool(almoner.ask(f"budget show {name}")["unprotected_figures"]) is marked
        number = request(almoner, dataset=name)
        assert (CONDITIONAL_CLAIM in plain(almoner.type(f"release show {number}").out)) is marked
        assert (CONDITIONAL_CLAIM in page(almoner, f"/datasets/{name}")) is marked
        assert (CONDITIONAL_CLAIM in words((publish(almoner, number, name) / "README.md").read_text())) is marked


@pytest.mark.slow
def test_figures_of_public_data_mark_nothing(almoner: Almoner) -> None:
    almoner.published("--public", **SMALL)
    almoner.type("evaluate 1 --internal")
    almoner.type("report 1 --internal")
    assert fetch(almoner.database, "SELECT count(*) FROM internal_view") == [(0,)]
    assert almoner.ask("budget show clinic")["unprotected_figures"] is None
    assert almoner.type("doctor", None).code == 0


@pytest.mark.slow
def test_nobody_looks_while_a_release_is_waiting(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    number = request(almoner)
    almoner.go_on_to("produced", number)
    told = almoner.ask("evaluate 1 --internal", 1)
    assert told["error"] == "ReleaseUndecided"
    assert told["facts"]["requests"] == [number]
    assert fetch(almoner.database, "SELECT count(*) FROM internal_view") == [(0,)]
    almoner.type(f'reject {number} --gate publish --reason "not needed"')
    almoner.type("evaluate 1 --internal")


@pytest.mark.slow
def test_reading_stored_figures_is_looking(any_almoner: Almoner) -> None:
    almoner = any_almoner
    almoner.published(**SMALL)
    almoner.type("report 1 --internal")  # there are none yet
    assert fetch(almoner.database, "SELECT count(*) FROM internal_view") == [(0,)]
    almoner.type("evaluate 1 --internal")
    almoner.type("report 1")
    almoner.type("report 1 --public")
    assert fetch(almoner.database, "SELECT kind FROM internal_view") == [("computed",)]
    almoner.type("report 1 --internal")
    assert fetch(almoner.database, "SELECT kind FROM internal_view ORDER BY id") == [("computed",), ("shown",)]
    assert [link["kind"] for link in almoner.ask("audit log --limit 1")] == ["evaluation.shown"]
    assert almoner.type("doctor", None).code == 0


@pytest.mark.slow
def test_the_dashboard_shows_stored_figures_to_those_alone_who_are_on_record(almoner: Almoner) -> None:
    almoner.published(**SMALL)
    with client(almoner) as browser:
        assert browser.get("/releases/1/report?version=internal").status_code == 403
    almoner.type("evaluate 1 --internal")
    with client(almoner) as browser:
        assert browser.get("/releases/1/report?version=internal").status_code == 200


def plain(screen: str) -> str:
    """A screen without the frame of its panels."""
    return words(screen.replace("│", " ").replace("! ", ""))


def page(almoner: Almoner, path: str) -> str:
    with client(almoner) as browser:
        return words(browser.get(path).text)


def client(almoner: Almoner) -> TestClient:
    made = access_policy(AccessOptions())
    return TestClient(application(almoner.home, made), base_url=made.url.rstrip("/"))
