"""The package `almoner`: a release as people write it, and the same refusals as the commands."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import almoner as package
from almoner.bundle import Bundle
from almoner.views import Report
from models_db.errors import AlmonerError
from tasks.corpus.readers.documents import NoUnit
from tasks.release.sections import WARNINGS, Warnings, sections_to_text
from tasks.reporting.report_parts import AudienceFact
from tests.integration.story import NOTES, REQUEST, SECRETS, Almoner
from tests.refusals import refusal

CONCERNS = ("almoner", "flows/approvals", "flows/releases")
FIELDS: dict[str, Any] = {name: value for name, value in REQUEST.items() if name != "dataset"}
SPEND = {"reason": "a first look", "confirm": "clinic"}
PUBLISH = {"reason": "names nobody", "confirm": "clinic"}


def opened(almoner: Almoner) -> Any:
    return package.open(almoner.home.root)


def test_a_release_from_a_data_frame_to_a_verified_bundle(almoner: Almoner, capsys: pytest.CaptureFixture[str]) -> None:
    almoner.type("init")
    home = opened(almoner)
    clinic = home.register("clinic", unit="patient_id", epsilon=8, delta=1e-6)
    assert clinic.ingest(pd.DataFrame(NOTES)).number == 1
    priced = clinic.price(**FIELDS)
    assert priced.affordable
    assert priced.rho == almoner.ask(f"release request {almoner.request_file()} --dry-run")["price"]["rho"]
    release = clinic.request(**FIELDS)
    assert (release.number, release.state) == (1, "submitted")
    assert release.price().rho == home.request(1).price().rho == priced.rho
    capsys.readouterr()
    decided = release.approve("spend", **SPEND)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Dataset clinic - Request 1, spend gate" in shown.err
    assert decided.subject_sha256 in shown.err
    assert (decided.state, decided.by, decided.gate) == ("approved", home.principal, "spend")
    outcome = release.run(device="cpu")
    assert (outcome.texts, release.state) == (3, "produced")
    assert release.review("publish").content.gate == "publish"
    texts = release.texts()
    assert [row["id"] for row in texts] == [1, 2, 3]
    release.approve("publish", **PUBLISH)
    bundle = release.publish(almoner.folder / "out")
    assert bundle.place == almoner.bundle
    assert bundle.verify().holds
    assert Bundle.at(almoner.bundle).verify("0" * 64).holds is False
    assert bundle.texts().to_pandas()["text"].tolist() == [row["text"] for row in texts]
    assert (
        clinic.budget().facts["rho_spent"] == outcome.spent.rho_text == almoner.ask("budget show clinic")["rho_spent"]
    )
    with refusal("NotInsights"):
        release.topics()
    with refusal("NotInsights"):
        bundle.topics()
    assert [each.name for each in home.datasets()] == ["clinic"]


Step = tuple[str, Callable[[Any], object]]
STEPS: dict[str, Step] = {
    "approve spend": ("approve 1 --gate spend --reason x --confirm clinic",
                      lambda r: r.approve("spend", reason="x", confirm="clinic")),
    "approve publish": ("approve 1 --gate publish --reason x --confirm clinic",
                        lambda r: r.approve("publish", reason="x", confirm="clinic")),
    "override": ("approve 1 --gate publish --override x --confirm clinic",
                 lambda r: r.approve("publish", override="x", confirm="clinic")),
    "run": ("run 1", lambda r: r.run()),
    "texts": ("release texts 1", lambda r: r.texts()),
    "report": ("report 1", lambda r: r.report()),
    "internal report": ("report 1 --internal", lambda r: r.report("internal")),
    "publish": ("publish 1 --to out", lambda r: r.publish("out")),
    "withdraw": ("release withdraw 1", lambda r: r.withdraw()),
    "reject at the other gate": ("reject 1 --gate publish --reason x", lambda r: r.reject(gate="publish", reason="x")),
}  # fmt: skip
WRONG = [
    ("submitted", "approve publish"), ("submitted", "override"), ("submitted", "run"), ("submitted", "texts"),
    ("submitted", "report"), ("submitted", "publish"), ("submitted", "reject at the other gate"),
    ("approved", "approve publish"), ("approved", "texts"), ("approved", "publish"),
    ("produced", "run"), ("produced", "publish"), ("produced", "approve spend"), ("produced", "withdraw"),
    ("produced", "override"), ("produced", "internal report"),
    ("published", "run"), ("published", "approve publish"), ("published", "withdraw"),
]  # fmt: skip


@pytest.mark.parametrize(("state", "step"), WRONG, ids=lambda word: word.replace(" ", "-"))
def test_the_wrong_order_is_refused_as_a_command_refuses_it(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, state: str, step: str
) -> None:
    getattr(almoner, state)()
    monkeypatch.chdir(almoner.folder)
    line, call = STEPS[step]
    before = almoner.everything()
    told = almoner.type(f"{line} --json", None, piped=None)
    with pytest.raises(AlmonerError) as refused:
        call(opened(almoner).request(1))
    assert (told.json["error"], told.code) == (refused.value.code, refused.value.exit_code)
    assert told.json["message"] == refused.value.message
    assert almoner.everything() == before


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"reason": "x"}, "--reason x"),
        ({"reason": "x", "confirm": " "}, "--reason x --confirm ' '"),
        ({"reason": "x", "confirm": "clinik"}, "--reason x --confirm clinik"),
        ({"reason": "x", "confirm": "clinic\0"}, None),
        ({"reason": " ", "confirm": "clinic"}, "--reason ' ' --confirm clinic"),
    ],
)  # fmt: skip
def test_a_decision_is_complete_or_refused(almoner: Almoner, given: dict[str, str], line: str | None) -> None:
    almoner.submitted()
    before = almoner.everything()
    with pytest.raises(AlmonerError) as refused:
        opened(almoner).request(1).approve("spend", **given)
    expected = "UnreadableArgument"
    if line is not None:
        expected = almoner.type(f"approve 1 --gate spend {line} --json", None, piped=None).json["error"]
    assert refused.value.code == expected
    assert almoner.everything() == before


def test_a_decision_without_reason_or_with_two_or_at_no_gate(almoner: Almoner) -> None:
    almoner.submitted()
    release = opened(almoner).request(1)
    with pytest.raises(AlmonerError) as refused:
        release.approve("spend", confirm="clinic")
    assert refused.value.code == "DecisionReasonMissing"
    with refusal("ReasonDoubled"):
        release.approve("publish", reason="x", override="y", confirm="clinic")
    for gate in ("proposal", "Spend", ""):
        with refusal("GateUnknown"):
            release.approve(gate, **SPEND)
    with refusal("ReportUnknown"):
        release.report("secret")
    assert release.state == "submitted"


def test_a_request_is_rejected_and_another_withdrawn(almoner: Almoner) -> None:
    almoner.submitted()
    home = opened(almoner)
    assert home.request(1).reject(reason="the prompt names a person").state == "rejected"
    second = home.dataset("clinic").request(almoner.request_file())
    second.withdraw()
    assert (home.request(1).state, second.state) == ("rejected", "withdrawn")


def test_the_terms_of_a_registration_are_the_commands(almoner: Almoner) -> None:
    almoner.ingested()
    home = opened(almoner)
    before = almoner.everything()
    for terms, code in (
        ({}, "ClaimRequired"),
        ({"epsilon": 8}, "ClaimRequired"),
        ({"epsilon": 8, "delta": 1e-6, "shares_account_with": "clinic"}, "UnexpectedClaim"),
        ({"epsilon": 80, "delta": 1e-6}, "WeakPromise"),
    ):
        with refusal(code):
            home.register("ward", unit="patient_id", **terms)
    for name, error in (("clinic", "DatasetExists"), ("Clínic", "InvalidPlainName"), ("a\0", "UnreadableArgument")):
        with pytest.raises(AlmonerError) as refused:
            home.register(name, unit="patient_id", epsilon=7, delta=1e-6)
        assert refused.value.code == error
    with pytest.raises(AlmonerError) as refused:
        home.register("ward", epsilon=8, delta=1e-6, public_metadata={"licence": 7, "nonsense": 1})
    assert refused.value.code == "FileInvalid"
    with pytest.raises(AlmonerError) as refused:
        home.dataset("ward")
    assert refused.value.code == "DatasetUnknown"
    assert almoner.everything() == before
    home.register("ward", unit="patient_id", shares_account_with="clinic", public_metadata={"licence": "CC0-1.0"})
    assert almoner.ask("dataset show ward")["public_metadata"] == {"licence": "CC0-1.0"}


def test_numbers_of_a_claim_are_those_that_were_written(almoner: Almoner) -> None:
    """1e-6 is a decimal, as it is in a request file: no binary fraction enters the ledger."""
    almoner.registered()
    for name, epsilon, delta in (("one", 0.3, 1e-5), ("two", "0.3", "0.00001")):
        opened(almoner).register(name, epsilon=epsilon, delta=delta)
    one, two = (almoner.ask(f"dataset show {name}") for name in ("one", "two"))
    assert [one[field] for field in ("epsilon_cap", "delta_cap", "rho_cap")] == ["0.3", "0.00001", two["rho_cap"]]


def test_fields_are_tried_before_they_are_fixed(almoner: Almoner) -> None:
    almoner.type("init")
    home, terms = opened(almoner), {"epsilon": 8, "delta": 1e-6}
    with refusal("ColumnMissing", match="patient"):
        home.register("clinic", unit="patient", check=pd.DataFrame(NOTES), **terms)
    with refusal("NoText"):
        home.register("clinic", unit="patient_id", text="note", check=NOTES, **terms)
    assert home.datasets() == ()
    assert home.register("clinic", unit="patient_id", check=NOTES, **terms).name == "clinic"


def test_a_person_called_null_is_accepted_by_name(almoner: Almoner) -> None:
    almoner.type("init")
    rows = [{"who": who, "text": "All well."} for who in ("Null", "\u200ePoe")]
    home, terms = opened(almoner), {"unit": "who", "epsilon": 8, "delta": 1e-6}
    with pytest.raises(NoUnit, match="Of the first 2 records 1 have none: 1 NULL"):
        home.register("clinic", check=rows, **terms)
    clinic = home.register("clinic", check=rows, allow_unit=["Null"], **terms)
    with pytest.raises(NoUnit):
        clinic.ingest(rows)
    assert clinic.ingest(rows, allow_unit=["Null"]).documents == 2


def test_a_request_may_be_a_file_a_mapping_or_fields(almoner: Almoner) -> None:
    almoner.ingested()
    clinic = opened(almoner).dataset("clinic")
    path = almoner.request_file()
    prices = [
        clinic.price(path),
        clinic.price(str(path)),
        clinic.price(REQUEST),
        clinic.price(**FIELDS),
        clinic.price(REQUEST | {"epsilon": 1}, epsilon=4, prompt=REQUEST["prompt"]["description"]),
    ]
    assert len({price.rho for price in prices}) == 1
    with refusal("DatasetMismatch"):
        clinic.price(REQUEST | {"dataset": "ward"})
    with pytest.raises(AlmonerError) as refused:
        clinic.request(REQUEST | {"epsilon": 20}, delta=1e-6)
    assert refused.value.code in ("WeakPromise", "BudgetExceeded")
    with pytest.raises(AlmonerError) as refused:
        clinic.request(colour="red", **FIELDS)  # what a type checker refuses
    assert refused.value.code == "FileInvalid"
    assert almoner.ask("release list") == []


@pytest.mark.parametrize("unfit", [{"patient_id": None}, {"text": " "}, {"text": 7}])
def test_a_table_that_is_refused_leaves_nothing(almoner: Almoner, unfit: dict[str, Any]) -> None:
    almoner.registered()
    before = almoner.everything()
    frame = pd.DataFrame([*NOTES, NOTES[0] | {"id": "last"} | unfit], dtype=object)
    with pytest.raises(AlmonerError) as refused:
        opened(almoner).dataset("clinic").ingest(frame)
    assert f"Line {len(NOTES) + 1} of 'rows.jsonl'" in refused.value.message
    assert almoner.everything() == before


def test_a_table_lies_in_the_store_of_the_home_and_nowhere_else(almoner: Almoner) -> None:
    almoner.registered()
    opened(almoner).dataset("clinic").ingest(pd.DataFrame(NOTES), label_field="section")
    assert SECRETS
    holding = [
        path.relative_to(almoner.home.root).parts[0]
        for path in almoner.folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in SECRETS)
    ]
    assert holding == ["corpora"]
    assert list(almoner.home.scratch.iterdir()) == []


def shown(thing: object) -> str:
    return repr(thing) + str(thing) + (thing._repr_html_() if hasattr(thing, "_repr_html_") else "")


def test_no_repr_has_a_private_value(almoner: Almoner) -> None:
    almoner.registered()
    home = opened(almoner)
    clinic = home.dataset("clinic")
    version = clinic.ingest(NOTES)
    release = clinic.request(**FIELDS)
    decision = release.approve("spend", **SPEND)
    outcome = release.run(device="cpu")
    texts = release.texts()
    review, report = release.review("publish", details=True), release.report()
    release.approve("publish", **PUBLISH)
    bundle = release.publish(almoner.folder / "out")
    internal = release.report("internal", drawn=False)
    planted = [
        AudienceFact("internal", Warnings(WARNINGS, ("zanzibar",))),
        AudienceFact("ledger", Warnings(WARNINGS, ("quux",))),
    ]
    marked = (*internal.facts, *planted)
    tampered = Report(internal.project, "internal", marked)
    warned = {line for one in tampered.content["sections"] if one["kind"] == "warnings" for line in one["lines"]}
    assert warned >= {"zanzibar", "quux"}
    things = [home, clinic, version, release, release.price(), decision, outcome, texts, texts[:1], review, report]
    things += [internal, tampered, bundle, bundle.texts(), clinic.budget(), release.review("spend")]
    for thing in things:
        said = shown(thing)
        assert [secret for secret in SECRETS if secret in said] == [], type(thing)
        assert [row["text"] for row in texts if len(row["text"]) > 8 and row["text"] in said] == [], type(thing)
        assert "zanzibar" not in said
        assert "quux" not in said
    assert str(len(NOTES)) not in shown(version)
    assert version.documents == len(NOTES)
    assert "epsilon" in shown(report)


def test_a_report_is_saved_outside_the_home_for_its_owner_alone(almoner: Almoner) -> None:
    almoner.produced()
    report = opened(almoner).request(1).report("public", drawn=False)
    path = report.save(almoner.folder / "report.html")
    assert path.read_text() == report.page()
    assert path.stat().st_mode & 0o777 == 0o600
    assert "<script" not in report._repr_html_()
    with pytest.raises(AlmonerError) as refused:
        report.save(almoner.home.root / "report.html")
    assert refused.value.code == "ReportInHome"


def test_a_notebook_shows_what_is_decided_as_output(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    almoner.submitted()
    displayed: list[Any] = []
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: object()))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))
    release = opened(almoner).request(1)
    with pytest.raises(AlmonerError) as refused:
        release.approve("spend", reason="x")
    assert refused.value.code == "ConfirmationMissing"
    assert [type(each).__name__ for each in displayed] == ["Review"]  # before the name is compared
    assert capsys.readouterr().err == ""
    assert "spend gate" in sections_to_text(displayed[0].title, displayed[0].sections())


def test_a_home_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(AlmonerError) as refused:
        package.open(tmp_path / "nowhere")
    assert refused.value.code == "HomeMissing"


def test_an_error_of_the_system_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.registered()
    clinic = opened(almoner).dataset("clinic")
    monkeypatch.setattr("almoner.inputs.TemporaryDirectory", lambda **_: Path("/nowhere/at/all").mkdir())
    with pytest.raises(AlmonerError) as refused:
        clinic.ingest(NOTES)
    assert refused.value.code == "FileInaccessible"
