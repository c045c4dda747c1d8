"""Every refusal has a name, an exit code and advice, and changes nothing: no row of the ledger, no file of the home."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import flows.releases.attempt
import flows.releases.execute
from tasks.publishing.checks import CHECKS
from tests.integration.story import CONFIRMED, NOTES, REQUEST, Almoner
from tests.support import fetch

CONCERNS = ("cli/commands", "flows/releases", "models_db/services")

Case = tuple[str, int, str]

REGISTER = "dataset register clinic2 --unit patient_id"

CASES: dict[str, list[Case]] = {
    "nothing": [
        *(
            (line, 3, "HomeMissing")
            for line in (
                "dataset list",
                REGISTER,
                "dataset ingest clinic {notes}",
                "budget show clinic",
                "release request {request}",
                "release show 1",
                "approve 1 --gate spend --reason x",
                "reject 1 --reason x",
                "run 1",
                "run sweep",
                "publish 1 --to {folder}/out",
                "evaluate 1 --internal",
                "audit log",
                "audit verify",
                "policy show",
                "policy check {request}",
                "policy adopt {request}",
            )
        ),
        ("verify-release {folder}/none", 2, "NoBundle"),
        ("verify-release {folder} --key abc", 2, "NotAPublicKey"),
    ],
    "registered": [
        ("release request {request}", 1, "NothingIngested"),
        ("dataset ingest clinic {folder}/none.jsonl", 2, "SourceMissing"),
    ],
    "ingested": [
        (f"{REGISTER} --epsilon 8 --delta 1e-6 --shares-account-with clinic", 2, "UnexpectedClaim"),
        (f"{REGISTER} --shares-account-with other", 2, "DatasetUnknown"),
        (REGISTER, 2, "ClaimRequired"),
        (f"{REGISTER} --epsilon 8", 2, "ClaimRequired"),
        (f"{REGISTER} --epsilon 0 --delta 1e-6", 2, "InvalidTarget"),
        (f"{REGISTER} --epsilon 8 --delta 1", 2, "InvalidTarget"),
        (f"{REGISTER} --epsilon a-lot --delta 1e-6", 2, "InexactNumber"),
        (f"{REGISTER} --epsilon 8 --delta 1e-6 --public-metadata {{folder}}/none.yaml", 2, "FileUnreadable"),
        (f"{REGISTER} --epsilon 8 --delta 1e-6 --public-metadata {{bad_yaml}}", 2, "FileInvalid"),
        (f"{REGISTER} --epsilon 8 --delta 1e-6 --public-metadata {{dated_yaml}}", 2, "FileInvalid"),
        (f"{REGISTER} --epsilon 8 --delta 1e-6 --text ''", 2, "InvalidDatasetText"),
        ("dataset register '' --unit id --epsilon 8 --delta 1e-6", 2, "InvalidDatasetText"),
        ("dataset register ' clinic' --unit id --epsilon 8 --delta 1e-6", 2, "InvalidDatasetText"),
        ("dataset register 'a\nb' --unit id --epsilon 8 --delta 1e-6", 2, "InvalidDatasetText"),
        (f"dataset register {'x' * 101} --unit id --epsilon 8 --delta 1e-6", 2, "InvalidDatasetText"),
        ("dataset register CLINIC --unit id --epsilon 8 --delta 1e-6", 2, "InvalidPlainName"),
        ("dataset register сlinic --unit id --epsilon 8 --delta 1e-6", 2, "InvalidPlainName"),
        ("dataset register .. --unit id --epsilon 8 --delta 1e-6", 2, "InvalidPlainName"),
        ("dataset register ../evil --unit id --epsilon 8 --delta 1e-6", 2, "InvalidPlainName"),
        ("dataset register /etc/x --shares-account-with clinic --unit id", 2, "InvalidPlainName"),
        ("dataset register clinic2 --unit '' --epsilon 8 --delta 1e-6", 2, "InvalidDatasetText"),
        ("dataset ingest other {notes}", 2, "DatasetUnknown"),
        ("dataset ingest clinic {bad_notes}", 2, "NoText"),
        ("dataset ingest clinic {empty}", 2, "SourceEmpty"),
        ("dataset show other", 2, "DatasetUnknown"),
        ("budget show other", 2, "DatasetUnknown"),
        ("budget forecast clinic --delta 2", 2, "InvalidTarget"),
        ("budget simulate clinic --epsilon some", 2, "InexactNumber"),
        ("release request {folder}/none.yaml", 2, "FileUnreadable"),
        ("release request {folder}", 2, "FileUnreadable"),
        ("release request {bad_yaml}", 2, "FileInvalid"),
        ("release request {list_yaml}", 2, "FileInvalid"),
        ("release request {binary}", 2, "FileUnreadable"),
        ("release request {other_dataset}", 2, "DatasetUnknown"),
        ("release request {unknown_field}", 2, "FileInvalid"),
        ("release request {unknown_parameter}", 2, "FileInvalid"),
        ("release request {unknown_metric}", 2, "UnknownMetric"),
        ("release request {unknown_model}", 2, "UnknownModel"),
        ("release request {mechanism_of_another_kind}", 2, "UnknownSystem"),
        ("release request {internal_metric}", 1, "InternalMetric"),
        ("release request {non_private}", 1, "NotForGovernedData"),
        ("release request {no_claim}", 2, "ClaimMissing"),
        ("release request {greedy}", 1, "BudgetExceeded"),
        ("release request {modest}", 1, "BudgetTooSmall"),
        ("release show 1", 2, "RequestUnknown"),
        ("release withdraw 1", 2, "RequestUnknown"),
        ("approve 1 --gate spend --reason x", 2, "RequestUnknown"),
        ("approve 1 --gate publish --reason x", 2, "RequestUnknown"),
        ("run 1", 2, "RequestUnknown"),
        ("run everything", 2, "InvalidRunId"),
        ("publish 1 --to {folder}/out", 2, "RequestUnknown"),
        ("evaluate 1 --internal", 2, "RequestUnknown"),
        ("evaluate 1", 2, "NothingToDo"),
        ("audit checkpoint --to {notes}", 2, "FileUnwritable"),
        ("audit export --to {folder}/none/record.jsonl", 2, "FileUnwritable"),
        ("audit export --to {notes}", 2, "FileUnwritable"),
        ("audit log --since yesterday", 2, "InvalidTime"),
        ("audit log --until 2026-13-01", 2, "InvalidTime"),
        ("policy check {folder}/none.yaml", 2, "FileUnreadable"),
        ("policy check {bad_yaml}", 2, "FileInvalid"),
        ("policy adopt {list_yaml}", 2, "FileInvalid"),
        ("policy adopt {request} --dry-run", 2, "FileInvalid"),
        ("models pull gpt", 2, "UnknownModel"),
        ("demo --keep {folder}", 2, "InvalidDemoFolder"),
    ],
    "submitted": [
        ("dataset register clinic --unit id --epsilon 8 --delta 1e-6", 1, "DatasetExists"),
        ("dataset register clinic --shares-account-with clinic", 1, "DatasetExists"),
        ("run 1", 1, "GateClosed"),
        ("publish 1 --to {folder}/out", 1, "WrongState"),
        ("approve 1 --gate publish --reason x", 1, "WrongState"),
        ("reject 1 --gate publish --reason x", 1, "WrongState"),
        ("approve 1 --gate spend --reason ' '", 2, "DecisionReasonMissing"),
        ("reject 1 --reason ''", 2, "DecisionReasonMissing"),
        ("evaluate 1 --internal", 1, "WrongState"),
    ],
    "rejected": [
        ("run 1", 1, "WrongState"),
        ("approve 1 --gate spend --reason 'after all'", 1, "WrongState"),
        ("release withdraw 1", 1, "WrongState"),
        ("publish 1 --to {folder}/out", 1, "WrongState"),
    ],
    "withdrawn": [
        ("run 1", 1, "WrongState"),
        ("approve 1 --gate spend --reason 'after all'", 1, "WrongState"),
        ("release withdraw 1", 1, "WrongState"),
    ],
    "approved": [
        ("approve 1 --gate spend --reason 'twice'", 1, "RuleViolated"),
        ("approve 1 --gate publish --reason 'too soon'", 1, "WrongState"),
        ("publish 1 --to {folder}/out", 1, "WrongState"),
        ("run 1 --device abacus", 2, "UnknownDevice"),
    ],
    "produced": [
        ("publish 1 --to {folder}/out", 1, "GateClosed"),
        ("run 1", 1, "WrongState"),
        ("approve 1 --gate spend --reason 'again'", 1, "WrongState"),
        ("reject 1 --gate spend --reason 'too late'", 1, "WrongState"),
        ("release withdraw 1", 1, "WrongState"),
        ("evaluate 1 --internal", 1, "WrongState"),
    ],
    "passed": [
        ("approve 1 --gate publish --reason 'twice'", 1, "RuleViolated"),
        ("evaluate 1 --internal", 1, "WrongState"),
    ],
    "discarded": [
        ("publish 1 --to {folder}/out", 1, "WrongState"),
        ("approve 1 --gate publish --reason 'after all'", 1, "WrongState"),
        ("run 1", 1, "WrongState"),
    ],
    "published": [
        ("reject 1 --gate publish --reason 'too late'", 1, "WrongState"),
        ("approve 1 --gate publish --reason 'once more'", 1, "WrongState"),
        ("run 1", 1, "WrongState"),
    ],
}
"""By the stage at which it is typed: what is typed, the exit code, the name of the error."""


def files(almoner: Almoner) -> dict[str, str]:
    """Whatever a case may name."""
    changed: dict[str, dict[str, Any]] = {
        "request": {},
        "other_dataset": {"dataset": "other"},
        "unknown_field": {"colour": "red"},
        "unknown_parameter": {"parameters": REQUEST["parameters"] | {"seed": 42}},
        "unknown_metric": {"evaluation": ["beauty"]},
        "unknown_model": {"model": "gpt"},
        "mechanism_of_another_kind": {"mechanism": "urania"},
        "internal_metric": {"evaluation": ["verbatim_overlap"]},
        "non_private": {
            "mechanism": "non_private",
            "parameters": {"samples": 1, "max_new_tokens": 4, "temperature": 1},
        },
        "no_claim": {"epsilon": None},
        "greedy": {"epsilon": 9.0},
        "modest": {"epsilon": 1e-5, "parameters": REQUEST["parameters"] | {"max_new_tokens": 1000}},
    }
    written = {
        name: almoner.write(f"{name}.yaml", {k: v for k, v in (REQUEST | change).items() if v is not None})
        for name, change in changed.items()
    }
    return {name: str(path) for name, path in written.items()} | {
        "folder": str(almoner.folder),
        "notes": str(almoner.notes_file()),
        "bad_notes": str(almoner.write("bad.jsonl", json.dumps(NOTES[0]) + '\n{"patient_id": "p"}\n')),
        "empty": str(almoner.write("empty.jsonl", "")),
        "bad_yaml": str(almoner.write("bad.yaml", "a: [1, 2\nb: }")),
        "dated_yaml": str(almoner.write("dated.yaml", "collected: 2026-01-01\n")),
        "list_yaml": str(almoner.write("list.yaml", "- a\n- b\n")),
        "binary": str(almoner.write("binary.yaml", b"\xff\xfe\x00")),
    }


def bring(almoner: Almoner, stage: str) -> None:
    """The stages that a method of Almoner has not."""
    if stage == "rejected":
        almoner.submitted()
        almoner.type('reject 1 --reason "the prompt names a person"')
    elif stage == "withdrawn":
        almoner.submitted()
        almoner.type("release withdraw 1")
    elif stage == "discarded":
        almoner.produced()
        almoner.type('reject 1 --gate publish --reason "it reads badly"')
    elif stage != "nothing":
        getattr(almoner, stage)()


def refused(almoner: Almoner, line: str, code: int, error: str, *, piped: str | None = CONFIRMED) -> None:
    """The command is refused under that name, and nothing has changed."""
    before = almoner.everything() if almoner.home.root.exists() else None
    told = almoner.type(f"{line} --json", expected=code, piped=piped)
    assert told.json["error"] == error, told
    assert told.json["message"]
    assert told.json["advice"]
    assert (almoner.everything() if before else almoner.home.root.exists()) == (before or False)


@pytest.mark.parametrize("stage", CASES)
def test_refusals_change_nothing(almoner: Almoner, stage: str) -> None:
    bring(almoner, stage)
    named = files(almoner)
    for line, code, error in CASES[stage]:
        refused(almoner, line.format(**named), code, error)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["ingested", "submitted", "produced"])
def test_refusals_change_nothing_on_postgresql(team_almoner: Almoner, stage: str) -> None:
    bring(team_almoner, stage)
    named = files(team_almoner)
    for line, code, error in CASES[stage]:
        refused(team_almoner, line.format(**named), code, error)


def test_a_refusal_is_readable_without_json(almoner: Almoner) -> None:
    almoner.submitted()
    told = almoner.type("run 1", expected=1)
    assert told.out == ""
    message, advice = told.err.strip().splitlines()
    assert message.startswith("GateClosed: Request 1 has not passed the spend gate: 0 of 1 approvals")
    assert "almoner approve 1 --gate spend" in advice


def test_a_run_that_may_not_begin_is_refused_before_anything_is_loaded_for_it(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.submitted()
    monkeypatch.setattr(flows.releases.execute, "execute", None)
    refused(almoner, "run 1", 1, "GateClosed")
    almoner.type('approve 1 --gate spend --reason "a first look"')
    monkeypatch.setattr(flows.releases.attempt, "code_digest", lambda: "another")
    refused(almoner, "run 1", 1, "PlanChanged")


@pytest.mark.slow
def test_what_is_refused_early_needs_no_language_model() -> None:
    code = (
        "import sys, cli.app, flows.releases.attempt, flows.releases.resume, flows.releases.publish; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_who_is_at_the_wrong_step_is_told_the_next_one(almoner: Almoner) -> None:
    """What the advice names can be typed, and leads to the end."""
    almoner.submitted()
    for state in ("approved", "produced", "published"):
        advice = almoner.ask("evaluate 1 --internal", expected=1)["advice"]
        *following, _ = re.findall("`almoner (.+?)`", advice)
        for line in following:
            almoner.type(line.replace("...", "agreed").replace("DIR", str(almoner.folder / "out")))
        assert almoner.state() == state


def test_a_budget_refusal_says_what_was_asked_what_is_left_and_what_fits(almoner: Almoner) -> None:
    almoner.ingested()
    told = almoner.ask(f"release request {almoner.request_file(epsilon=9.0)}", expected=1)
    left = almoner.ask("budget show clinic")["rho_left"]
    assert f"dataset 'clinic' has rho {left} left" in told["message"]
    assert told["facts"]["left_rho"] == left
    fitting = told["message"].rsplit(" ", 1)[1].rstrip(".")
    almoner.type(f"release request {almoner.request_file(epsilon=fitting)} --accept-weak-promise")


def test_a_dry_run_changes_nothing_and_prices_what_cannot_be_afforded(almoner: Almoner) -> None:
    almoner.ingested()
    before = almoner.everything()
    told = almoner.ask(f"release request {almoner.request_file(epsilon=9.0)} --dry-run")
    assert told["price"]["budget"]["affordable"] is False
    assert almoner.everything() == before


WRONG_USAGE = (
    "frobnicate",
    "run",
    "approve 1 --reason x",
    "approve 1 --gate other --reason x",
    "approve one --gate spend --reason x",
    "budget simulate clinic --epsilon 1 --releases 0",
    "audit log --limit 0",
    "dataset register clinic --blocks 0",
    "dataset register clinic --population 0",
    "release request",
    "run 1 --seed 42",
)


def test_wrong_usage_exits_with_two(almoner: Almoner) -> None:
    almoner.type("init")
    before = almoner.everything()
    for line in WRONG_USAGE:
        almoner.type(line, expected=2)
    assert almoner.everything() == before


def test_a_changed_byte_in_quarantine_cannot_be_published(almoner: Almoner) -> None:
    almoner.passed()
    texts = almoner.home.quarantine / "1-1" / "texts.jsonl"
    original = texts.read_bytes()
    for changed in (original + b"\n", original.replace(b"1", b"2", 1), original[:-1]):
        texts.write_bytes(changed)
        refused(almoner, f"publish 1 --to {almoner.folder / 'out'}", 1, "ArtifactChanged")
    texts.write_bytes(original)
    (texts.parent / "extra.txt").write_text("one more")
    refused(almoner, f"publish 1 --to {almoner.folder / 'out'}", 1, "ArtifactChanged")
    (texts.parent / "extra.txt").unlink()
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")


def test_a_tampered_bundle_does_not_verify(almoner: Almoner) -> None:
    almoner.published()
    for path in sorted(almoner.bundle.iterdir()):
        original = path.read_bytes()
        path.write_bytes(original.replace(b"1", b"7", 1))
        report = almoner.ask(f"verify-release {almoner.bundle}", expected=1)
        assert report["holds"] is False
        assert not all(check["ok"] for check in report["checks"])
        path.write_bytes(original)
    almoner.type(f"verify-release {almoner.bundle}")
    path.unlink()
    told = almoner.type(f"verify-release {almoner.bundle}", expected=1).out
    assert "FAIL" in told
    assert all(name in told for name, _ in CHECKS), "failures are always whole"


def test_another_publishers_key_is_not_accepted(almoner: Almoner) -> None:
    almoner.published()
    report = almoner.ask(f"verify-release {almoner.bundle} --key {'0' * 64}", expected=1)
    assert [check["name"] for check in report["checks"] if not check["ok"]] == ["authenticity"]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "code": lambda body: body | {"code": "e" * 64},
    "model": lambda body: body | {"model": body["model"] | {"sha256": "e" * 64}},
    "plan": lambda body: body | {"plan": body["plan"] | {"blocks": [0, 1]}},
    "parameters": lambda body: body | {"parameters": body["parameters"] | {"top_k": 7}},
    "unit": lambda body: body | {"unit": "record"},
    "dataset": lambda body: body | {"dataset": body["dataset"] | {"version": 2}},
}


def test_only_what_was_approved_is_run(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved()
    priced = flows.releases.attempt.quote
    for part, change in CHANGES.items():

        def quote(*given: Any, change: Any = change) -> Any:
            made = priced(*given)
            return replace(made, body=change(dict(made.body)))

        monkeypatch.setattr(flows.releases.attempt, "quote", quote)
        refused(almoner, "run 1", 1, "PlanChanged")
        assert almoner.ask("run 1", expected=1)["facts"]["changed"] == part
    monkeypatch.setattr(flows.releases.attempt, "quote", priced)
    almoner.type("run 1")


def set_policy(almoner: Almoner, old: str, new: str) -> None:
    text = almoner.home.policy.read_text()
    assert old in text
    almoner.home.policy.write_text(text.replace(old, new))


def test_a_changed_policy_does_not_touch_requests_made_before_it(almoner: Almoner) -> None:
    almoner.approved()
    set_policy(almoner, "spend: 1, publish: 1", "spend: 2, publish: 2")
    almoner.go_on_to("published", after="approved")
    almoner.type(f"release request {almoner.request_file(epsilon=1)}")
    assert almoner.ask('approve 2 --gate spend --reason "one of two"')["state"] == "submitted"
    refused(almoner, "run 2", 1, "GateClosed")


def test_one_of_two_approvals_names_no_next_step_that_is_refused(almoner: Almoner) -> None:
    almoner.ingested()
    set_policy(almoner, "spend: 1, publish: 1", "spend: 1, publish: 2")
    almoner.type(f"release request {almoner.request_file()}")
    almoner.go_on_to("produced")
    told = almoner.type('approve 1 --gate publish --reason "names nobody"').out
    assert "It waits for another approval: `almoner release show 1`." in told
    assert "almoner publish" not in told
    refused(almoner, f"publish 1 --to {almoner.folder / 'out'}", 1, "GateClosed")


def test_with_separate_roles_nobody_approves_their_own_request(almoner: Almoner) -> None:
    almoner.registered()
    set_policy(almoner, "several_roles: true", "several_roles: false")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    almoner.type(f"release request {almoner.request_file()}")
    refused(almoner, "approve 1 --gate spend --reason mine", 1, "RuleViolated", piped="clinic\n")


@pytest.mark.parametrize("policy", ["several_roles: perhaps", "approvals: {spend: 0}", "colour: red", "[", "- a"])
def test_a_policy_out_of_form_stops_everything(almoner: Almoner, policy: str) -> None:
    almoner.submitted()
    almoner.home.policy.write_text(policy)
    refused(almoner, "approve 1 --gate spend --reason x", 2, "FileInvalid")


def test_the_policy_limits_the_attempts(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.registered()
    set_policy(almoner, "attempts: 5", "attempts: 2")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    almoner.type(f"release request {almoner.request_file()}")
    almoner.type('approve 1 --gate spend --reason "twice at most"')
    set_policy(almoner, "attempts: 2", "attempts: 100")
    with monkeypatch.context() as broken:
        broken.setattr(flows.releases.execute, "load", no_memory)
        for _ in range(2):
            with pytest.raises(MemoryError):
                almoner.type("run 1")
    refused(almoner, "run 1", 1, "TooManyAttempts")


def no_memory(name: str, device: str, precision: str = "float32") -> None:
    raise MemoryError


def test_a_running_request_is_not_run_twice(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.approved()
    seen: list[Any] = []
    load = flows.releases.execute.load

    def while_running(name: str, device: str, precision: str = "float32") -> Any:
        refused(almoner, "run 1", 1, "StillRunning")
        refused(almoner, "publish 1 --to out", 1, "WrongState")
        refused(almoner, "release withdraw 1", 1, "WrongState")
        refused(almoner, "approve 1 --gate spend --reason x", 1, "WrongState")
        assert almoner.ask("run sweep") == {"requests": [], "folders_removed": 0}
        seen.append(name)
        return load(name, device)

    monkeypatch.setattr(flows.releases.execute, "load", while_running)
    almoner.type("run 1")
    assert len(seen) == 1


def test_a_publication_that_cannot_be_delivered_is_delivered_later(almoner: Almoner) -> None:
    """It is on the record before the first byte is copied; where the bytes end up does not matter."""
    almoner.passed()
    for destination in (almoner.notes_file(), almoner.notes_file() / "below"):
        assert almoner.ask(f"publish 1 --to {destination}", expected=3)["error"] == "DestinationUnusable"
    taken = almoner.folder / "taken" / almoner.bundle.name
    taken.mkdir(parents=True)
    assert almoner.ask(f"publish 1 --to {taken.parent}", expected=1)["error"] == "BundleExists"
    assert almoner.state() == "published"
    almoner.type(f"publish 1 --to {almoner.folder / 'out'}")
    almoner.type(f"verify-release {almoner.bundle}")
    assert len(fetch(almoner.database, "SELECT * FROM publication")) == 1
    assert len(fetch(almoner.database, "SELECT * FROM delivery")) == 1


def test_a_missing_corpus_is_found_before_anything_is_held(almoner: Almoner) -> None:
    almoner.approved()
    (version,) = almoner.home.corpora.iterdir()
    version.rename(almoner.folder / "elsewhere")
    assert almoner.ask("run 1", expected=3)["error"] == "VersionMissing"
    assert almoner.state() == "approved"
    budget = almoner.ask("budget show clinic")
    assert (budget["rho_held"], budget["rho_spent"]) == ("0", "0")
    assert almoner.ask("audit log --kind run.started") == []
    (almoner.folder / "elsewhere").rename(version)
    almoner.type("run 1")


def test_an_unreachable_ledger_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    almoner.registered()
    monkeypatch.setenv("ALMONER_DATABASE_URL", f"sqlite:///{almoner.folder / 'none' / 'almoner.db'}")
    assert almoner.ask("budget show clinic", expected=3)["error"] == "LedgerUnreachable"
    assert almoner.ask("init", expected=3)["error"] == "LedgerUnreachable"


@pytest.mark.parametrize("url", ["nonsense", "mysql://me:secret@host/x", "postgresql://host:port/x", "oracle://x"])
def test_a_ledger_that_cannot_be_is_refused_without_its_address(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("ALMONER_DATABASE_URL", url)
    told = almoner.ask("init", expected=3)
    assert told["error"] == "UnsupportedDatabase"
    assert "secret" not in str(told)


def test_a_home_that_cannot_be_made_is_named(almoner: Almoner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_HOME", str(almoner.notes_file()))
    told = almoner.ask("init", expected=3)
    assert told["error"] == "HomeUnwritable"
    assert "notes.jsonl" in told["message"]


def test_the_record_can_be_asked_by_time(almoner: Almoner) -> None:
    almoner.registered()
    everything = almoner.ask("audit log")
    today = everything[0]["at"][:10]
    assert almoner.ask(f"audit log --since {today}") == everything
    assert almoner.ask(f"audit log --until {today}") == []
    newest = everything[-1]
    assert almoner.ask(f"audit log --since {newest['at']}") == [newest]


def test_another_home_key_is_not_this_person(almoner: Almoner) -> None:
    almoner.registered()
    (almoner.home.keys / "signing.key").unlink()
    assert almoner.ask("init")["enrolled"] is False
    assert almoner.ask("budget show clinic", expected=3)["error"] == "PrincipalUnknown"
