"""`almoner release extend`: more texts from released values, without the corpus and at no charge, to the bundle."""

import json
import shutil
from typing import Any

import pytest

from models_db.budgets import Amount
from models_db.canonical import digest
from tasks.corpus.store import Corpus
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_keyphrases import PARAMETERS, SECRET, SEEDED, approved
from tests.integration.test_kill import balance

COUNTED = PARAMETERS | {"vocabulary": {"method": "counted", "size": 3, "per_unit": 2, "words": ["kettle", "violin"]}}

BASELINE = {"samples": 2, "max_new_tokens": 4, "temperature": 1}


def produced(almoner: Almoner, **changes: Any) -> Amount:
    """Release 1, run and not published; returns what is spent."""
    approved(almoner, **changes)
    almoner.type("run 1")
    return balance(almoner).spent


def published(almoner: Almoner, number: int) -> Any:
    almoner.type(f'approve {number} --gate publish --reason "names nobody"')
    almoner.type(f"publish {number} --to {almoner.folder / 'out'}")
    return almoner.folder / "out" / f"clinic-release-{number}"


def refused(almoner: Almoner, line: str) -> str:
    told = almoner.type(f"{line} --json", expected=None)
    assert told.code in (1, 2, 3)
    return str(told.json["error"])


def test_more_texts_at_no_charge_without_the_corpus(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = produced(almoner)
    first = published(almoner, 1)
    asked = almoner.ask("release extend 1 --samples 9 --dry-run")
    assert (asked["request"], asked["price"]["rho"], asked["price"]["delta_fail"]) == (None, "0", "0")
    almoner.type("release extend 1 --samples 9")
    assert refused(almoner, "run 2") == "GateClosed"
    almoner.type('approve 2 --gate spend --reason "more of the same"')
    shutil.rmtree(almoner.home.corpora)  # whoever reads a note now, fails
    monkeypatch.setattr(Corpus, "each", None)
    assert almoner.ask("run 2")["texts"] == 9
    assert balance(almoner).spent == spent
    bundle = published(almoner, 2)
    report, before = (almoner.ask(f"verify-release {folder}") for folder in (bundle, first))
    assert report["holds"] is True, report
    assert [report[name] for name in ("epsilon", "rho", "recomputed_epsilon")] == [
        before[name] for name in ("epsilon", "rho", "recomputed_epsilon")
    ]
    rows = [json.loads(line) for line in (bundle / "texts.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [label for label in "abc" for _ in range(3)]
    parent, child = (json.loads((folder / "release.json").read_text()) for folder in (first, bundle))
    (event,) = child["events"]
    assert (event["mechanism"], event["rho"], event["parameters"]["release"]) == ("post_processing", "0", 1)
    assert child["claim"] == parent["claim"]  # read alone, it is about the same people
    assert child["released"]["keywords_released"] == parent["released"]["keywords_released"]
    for name in ("README.md", "report.html", "checklist.md", "croissant.json", "deployment.yaml"):
        told = " ".join((bundle / name).read_text().split())
        assert "values that release 1 of the same dataset had released" in told, name
        assert "No private text had a part in it" not in told, name
    for path in bundle.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    almoner.type("release extend 1 --samples 3")
    almoner.type('approve 3 --gate spend --reason "still more"')
    motion = almoner.ask('retract 1 --reason "a text names a street"')["motion"]
    almoner.type(f"approve {motion} --gate motion --reason agreed", piped="clinic\n")
    assert refused(almoner, "run 3") == refused(almoner, "release extend 1 --samples 3") == "NotExtendable"
    assert balance(almoner).spent == spent


def test_a_bundle_that_claims_less_than_its_parent_does_not_hold(almoner: Almoner) -> None:
    """Nothing else in a bundle can stand for what the parent has paid: it is planned again from the request."""
    produced(almoner)
    almoner.type("release extend 1 --samples 3")
    almoner.type('approve 2 --gate spend --reason "more"')
    almoner.type("run 2")
    bundle = published(almoner, 2)
    record = json.loads((bundle / "release.json").read_text())
    record["events"][0]["parameters"]["covered_rho"] = "0.000000000001"
    (bundle / "release.json").write_bytes(json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    report = almoner.ask(f"verify-release {bundle}", expected=1)
    assert {check["name"] for check in report["checks"] if not check["ok"]} >= {"digests", "request", "claim"}


def test_what_cannot_be_extended_is_refused_by_name(almoner: Almoner) -> None:
    approved(almoner, parameters=COUNTED)
    assert refused(almoner, "release extend 7 --samples 3") == "RequestUnknown"
    public = {"mechanism": "public_only", "epsilon": None, "delta": None, "parameters": BASELINE}
    written = {name: value for name, value in (SEEDED | public).items() if value is not None}
    same = {name: REQUEST[name] for name in ("model", "prompt")}
    other = almoner.write("other.yaml", {"dataset": "clinic", **same, **written})
    almoner.type(f"release request {other}")
    told = almoner.type("release extend 2 --samples 3 --json", expected=1).json
    assert told["facts"]["reason"] == "public_only is not keyphrase_seeding"
    assert refused(almoner, "release extend 1 --samples 3") == "NotExtendable"  # not produced
    almoner.type("run 1")
    almoner.type("release extend 1 --samples 3")
    almoner.type('approve 3 --gate spend --reason "more"')
    almoner.type("run 3")
    assert refused(almoner, "release extend 3 --samples 3") == "NotExtendable"  # extends one itself
    almoner.type("release extend 1 --samples 4")
    almoner.type('approve 4 --gate spend --reason "more"')
    (values,) = almoner.home.released.iterdir()
    assert values.stat().st_mode & 0o777 == 0o600
    stored = values.read_bytes()
    values.write_bytes(stored.replace(b"kettle", b"kettlf"))
    assert refused(almoner, "run 4") == "ParentDiffers"
    values.write_bytes(b"{}\n")
    assert refused(almoner, "run 4") == "ValuesMissing"
    values.unlink()
    assert refused(almoner, "release extend 1 --samples 3") == "ValuesMissing"
    values.write_bytes(stored)
    almoner.type('reject 1 --gate publish --reason "names somebody"')
    assert refused(almoner, "run 4") == "NotExtendable"


def test_a_request_for_something_else_does_not_pass_as_an_extension(almoner: Almoner) -> None:
    produced(almoner, parameters=COUNTED)
    almoner.type("release extend 1 --samples 3")
    written = almoner.ask("release show 2")["canonical"]
    extends = written["parameters"]["extends"]
    for changes in (
        {"epsilon": 50.0},
        {"delta": 1e-7},
        {"parameters": COUNTED | {"extends": extends, "references": 25}},
        {"parameters": COUNTED | {"extends": extends | {"artifact": digest({})}}},
        {"parameters": COUNTED | {"extends": extends | {"values": digest({})}}},
    ):
        request = SEEDED | {"parameters": COUNTED | {"extends": extends}} | changes
        assert refused(almoner, f"release request {almoner.request_file(**request)}") == "ParentDiffers", changes
    almoner.type("dataset register other --unit patient_id --epsilon 90 --delta 1e-5")
    notes = [{"patient_id": f"q{unit}", "text": "A short note.", "ward": "a"} for unit in range(4)]
    almoner.type(f"dataset ingest other {almoner.notes_file(notes=notes)} --label-field ward")
    request = SEEDED | {"parameters": COUNTED | {"extends": extends}, "dataset": "other"}
    assert refused(almoner, f"release request {almoner.request_file(**request)}") == "ParentDiffers"
