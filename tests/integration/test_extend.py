"""`almoner release extend`: more texts from released values, without the corpus and at no charge, to the bundle."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import flows.releases.execute
from flows.releases.extend import MOST_VALUES_BYTES, ParentRelease, read_values, write_values
from flows.releases.resume import sweep_attempts
from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from tasks.common import files
from tasks.corpus.store import Corpus
from tasks.mechanisms.vectors import kde_sketch
from tasks.systems.keyphrase_seeding.stages import MOST_SELECTED
from tasks.text.words import LONGEST
from tests.integration.killing import balance
from tests.integration.story import REQUEST, Almoner
from tests.integration.test_keyphrases import PARAMETERS, SECRET, SEEDED, approved

CONCERNS = ("flows/releases", "tasks/release")

COUNTED = PARAMETERS | {"vocabulary": {"method": "counted", "size": 3, "per_unit": 2, "words": ["kettle", "violin"]}}

BASELINE = {"samples": 2, "max_new_tokens": 4, "temperature": 1}


def produced(almoner: Almoner, **changes: Any) -> Amount:
    """Release 1, run and not published; returns what is spent."""
    almoner.brought(f"key phrases produced {changes!r}", lambda: produce(almoner, **changes))
    return balance(almoner).spent


def produce(almoner: Almoner, **changes: Any) -> None:
    approved(almoner, **changes)
    almoner.type("run 1")


def published(almoner: Almoner, number: int) -> Any:
    almoner.go_on_to("published", number, after="produced")
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
    # Read alone, it is about the same people; by which noise they were paid for, it does not know.
    assert child["claim"] == parent["claim"]
    assert child["released"]["keywords_released"] == parent["released"]["keywords_released"]
    for name in ("README.md", "report.html", "checklist.md", "croissant.json", "deployment.yaml"):
        told = " ".join((bundle / name).read_text().split())
        assert "values that release 1 of the same dataset had released" in told, name
        assert "No private text was used for it" not in told, name
    for path in bundle.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path.name
    almoner.type("release extend 1 --samples 3")
    almoner.type('approve 3 --gate spend --reason "still more"')
    proposal = almoner.ask('retract 1 --reason "a text names a street"')["proposal"]
    almoner.type(f"approve {proposal} --gate proposal --reason agreed", piped="clinic\n")
    assert refused(almoner, "run 3") == refused(almoner, "release extend 1 --samples 3") == "NotExtendable"
    assert balance(almoner).spent == spent


def test_a_bundle_that_claims_less_than_its_parent_does_not_hold(almoner: Almoner) -> None:
    """Nothing else in a bundle can stand for what the parent has paid: it is planned again from the request."""
    produced(almoner)
    almoner.type("release extend 1 --samples 3")
    almoner.go_on_to("produced", 2)
    bundle = published(almoner, 2)
    record = json.loads((bundle / "release.json").read_text())
    record["events"][0]["parameters"]["covered_rho"] = "0.000000000001"
    (bundle / "release.json").write_bytes(json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    report = almoner.ask(f"verify-release {bundle}", expected=1)
    assert {check["name"] for check in report["checks"] if not check["ok"]} >= {"digests", "request", "claim"}


@pytest.mark.slow
def test_what_cannot_be_extended_is_refused_by_name(almoner: Almoner) -> None:
    approved(almoner, parameters=COUNTED)
    assert refused(almoner, "release extend 7 --samples 3") == "RequestUnknown"
    public = {"mechanism": "public_only", "epsilon": None, "delta": None, "parameters": BASELINE}
    written = {name: value for name, value in (SEEDED | public).items() if value is not None}
    same = {name: REQUEST[name] for name in ("model", "prompt")}
    other = almoner.write("other.yaml", {"dataset": "clinic", **same, **written})
    almoner.type(f"release request {other} --accept-weak-promise")
    told = almoner.type("release extend 2 --samples 3 --json", expected=1).json
    assert told["facts"]["reason"] == "public_only makes its texts of more than released values"
    assert refused(almoner, "release extend 1 --samples 3") == "NotExtendable"  # not produced
    almoner.type("run 1")
    almoner.type("release extend 1 --samples 3")
    almoner.go_on_to("produced", 3)
    assert refused(almoner, "release extend 3 --samples 3") == "NotExtendable"  # extends one itself
    almoner.type("release extend 1 --samples 4")
    almoner.type('approve 4 --gate spend --reason "more"')
    (values,) = almoner.home.released.iterdir()
    assert values.stat().st_mode & 0o777 == 0o600
    stored = values.read_bytes()
    values.write_bytes(stored.replace(b"kettle", b"kettlf"))
    assert refused(almoner, "run 4") == "ValuesMissing"
    assert refused(almoner, "release extend 1 --samples 3") == "ValuesMissing"
    other = almoner.request_file(**SEEDED | {"parameters": COUNTED, "epsilon": 9.0})
    almoner.type(f"release request {other} --accept-weak-promise")
    almoner.go_on_to("produced", 5)
    (others,) = set(almoner.home.released.iterdir()) - {values}
    values.write_bytes(others.read_bytes())  # whole, and of another release: or without noise, for that matter
    assert refused(almoner, "release extend 1 --samples 3") == "ValuesMissing"
    assert almoner.type("release extend 5 --samples 3 --dry-run").code == 0
    values.write_bytes(b"{}\n")
    assert refused(almoner, "run 4") == "ValuesMissing"
    values.unlink()
    assert refused(almoner, "release extend 1 --samples 3") == "ValuesMissing"
    values.write_bytes(stored)
    almoner.type('reject 1 --gate publish --reason "names somebody"')
    assert refused(almoner, "run 4") == "NotExtendable"


def test_values_of_a_run_that_died_are_swept_and_others_are_not(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    approved(almoner, parameters=COUNTED)
    commit = flows.releases.execute._commit_attempt

    def dies(*given: Any) -> str:
        raise EnvironmentProblem("this process is about to die", code="ValuesUnwritable")

    with monkeypatch.context() as patch:
        patch.setattr(flows.releases.execute, "_commit_attempt", dies)
        assert refused(almoner, "run 1") == "ValuesUnwritable"
    (orphan,) = almoner.home.released.iterdir()
    (almoner.home.released / f".{orphan.name}.0123456789abcdef").touch()  # one that was half written
    assert almoner.ask("run sweep")["folders_removed"] == 3  # with the draft
    assert list(almoner.home.released.iterdir()) == []
    found: list[int] = []

    def swept_meanwhile(run: Any, *given: Any) -> str:
        found.append(sweep_attempts(run.workspace).folders)
        return commit(run, *given)

    monkeypatch.setattr(flows.releases.execute, "_commit_attempt", swept_meanwhile)
    almoner.type("run 1")
    almoner.type("run sweep")
    assert found == [0]
    assert len(list(almoner.home.released.iterdir())) == 1
    assert almoner.type("release extend 1 --samples 3 --dry-run").code == 0


@pytest.mark.slow
def test_the_largest_values_there_are_can_be_read_again(tmp_path: Path) -> None:
    """Whoever has paid for them may extend them; other documents may not be so large."""
    numbers = kde_sketch.LARGEST * 8 * 4 // 3
    words = MOST_SELECTED * (LONGEST + 3) * 4
    assert numbers + words < MOST_VALUES_BYTES
    assert files._LARGEST_DOCUMENT < MOST_VALUES_BYTES
    home = ProjectHome(tmp_path)
    values = {"vocabulary": [], "sketches": "A" * (files._LARGEST_DOCUMENT + 1)}
    kept = write_values(home, "a" * 64, values)
    assert read_values(home, ParentRelease(1, "a" * 64, kept, {})) == values


def test_a_request_for_something_else_does_not_pass_as_further_texts(almoner: Almoner) -> None:
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
        assert (
            refused(almoner, f"release request {almoner.request_file(**request)} --accept-weak-promise")
            == "ParentDiffers"
        ), changes
    # It would be armed and then find no corpus; and its part of rho would not be what the parent has paid.
    request = SEEDED | {"parameters": COUNTED | {"extends": extends}, "evaluation": ["dp_length"]}
    assert (
        refused(almoner, f"release request {almoner.request_file(**request)} --accept-weak-promise")
        == "ChargedMetricOfFurtherTexts"
    )
    almoner.type("dataset register other --unit patient_id --epsilon 90 --delta 1e-5 --accept-weak-promise")
    notes = [{"patient_id": f"q{unit}", "text": "A short note.", "ward": "a"} for unit in range(4)]
    almoner.type(f"dataset ingest other {almoner.notes_file(notes=notes)} --label-field ward")
    request = SEEDED | {"parameters": COUNTED | {"extends": extends}, "dataset": "other"}
    assert (
        refused(almoner, f"release request {almoner.request_file(**request)} --accept-weak-promise") == "ParentDiffers"
    )
