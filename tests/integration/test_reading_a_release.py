"""What a steward reads before a decision: weak promises, repetitions, details, and every text of a release."""

import json

import pytest

from tasks.text.doubts import describe_doubts
from tests.integration.story import Almoner

REGISTER = "dataset register other --epsilon {} --delta {} --population {}"


@pytest.mark.parametrize(("epsilon", "delta", "people"), [("50", "1e-7", 1000), ("4", "1e-2", 16)])
def test_a_weak_lifetime_claim_has_to_be_accepted(almoner: Almoner, epsilon: str, delta: str, people: int) -> None:
    almoner.registered()
    before = almoner.everything()
    line = REGISTER.format(epsilon, delta, people)
    told = almoner.ask(line, expected=2)
    assert told["error"] == "WeakPromise"
    assert "WEAK PROMISE" in told["message"]
    assert "100 %" not in told["message"]
    assert almoner.everything() == before
    almoner.type(f"{line} --accept-weak-promise")


def test_a_higher_cap_has_to_be_accepted_and_may_be_looked_at(almoner: Almoner) -> None:
    almoner.registered()
    line = 'dataset cap clinic --epsilon 30 --delta 1e-6 --reason "one more study"'
    assert almoner.ask(line, expected=2)["error"] == "WeakPromise"
    almoner.type(f"{line} --dry-run")
    almoner.type(f"{line} --accept-weak-promise")


def test_a_claim_that_is_none_is_named_before_its_weakness(almoner: Almoner) -> None:
    almoner.registered()
    assert almoner.ask(REGISTER.format("-3", "1e-7", 5), expected=2)["error"] != "WeakPromise"


def test_a_weak_request_is_priced_and_needs_a_word(almoner: Almoner) -> None:
    almoner.registered("--accept-weak-promise --epsilon 40")
    almoner.type(f"dataset ingest clinic {almoner.notes_file()}")
    file = almoner.request_file(epsilon=20.0)
    assert "WEAK PROMISE" in almoner.ask(f"release request {file} --dry-run")["price"]["warnings"][0]
    before = almoner.everything()
    assert almoner.ask(f"release request {file}", expected=2)["error"] == "WeakPromise"
    assert almoner.everything() == before
    almoner.type(f"release request {file} --accept-weak-promise")
    shown = almoner.type("release show 1").out
    assert shown.index("WEAK PROMISE") < shown.index("Privacy cost")
    assert "in nearly every case" in shown
    assert "100 % of cases" not in shown


def test_a_repetition_is_pointed_out_when_it_is_priced_and_at_the_gate(almoner: Almoner) -> None:
    almoner.submitted()
    again = almoner.type(f"release request {almoner.folder / 'request.yaml'}").out
    assert again.index("Request 1 (submitted) asks for exactly this") < again.index("It costs")
    assert "asks for exactly this" not in almoner.type("release show 1").out
    assert "Request 1 (submitted) asks for exactly this" in almoner.type("release show 2").out
    almoner.type('reject 1 --reason "twice"')
    assert "asks for exactly this" not in almoner.type("release show 2").out


def test_details_are_left_out_until_they_are_asked_for(almoner: Almoner) -> None:
    almoner.submitted()
    shown, whole = almoner.type("release show 1").out, almoner.type("release show 1 --details").out
    assert "clip_steps" not in shown
    assert "Mechanisms" in shown  # named as left out
    assert "clip_steps" in whole
    assert "--details" not in whole
    assert "Request 1 is submitted. It waits at the spend gate" in shown.splitlines()[0]


def test_a_rejection_takes_the_gate_that_waits(almoner: Almoner) -> None:
    almoner.produced()
    told = almoner.ask('reject 1 --reason "it reads badly"')
    assert (told["gate"], told["state"]) == ("publish", "discarded")
    again = almoner.ask('reject 1 --reason "it reads badly"', expected=1)
    assert again["error"] == "WrongState"


def test_every_text_can_be_read(almoner: Almoner) -> None:
    almoner.produced()
    draft = next((almoner.home.root / "quarantine").glob("*/texts.jsonl"))
    texts = [json.loads(line)["text"] for line in draft.read_text().splitlines()]
    told = almoner.ask("release texts 1")
    assert (told["of"], [one["text"] for one in told["texts"]]) == (len(texts), texts)
    assert [one["id"] for one in told["texts"]] == list(range(1, len(texts) + 1))
    shown = almoner.type("release texts 1").out
    assert f"{len(texts)} of {len(texts)} texts shown" in shown
    looked_for = describe_doubts(sum(bool(one["doubts"]) for one in told["texts"]), len(texts))
    assert looked_for in " ".join(shown.split())
    assert looked_for in " ".join(almoner.type("report 1").out.split())
    asked = almoner.type("approve 1 --gate publish --reason no", piped="no\n", expected=1).err
    assert looked_for in " ".join(asked.split())
    assert almoner.ask("release texts 1 --find 'no text has this'")["texts"] == []
    doubtful = almoner.ask("release texts 1 --doubtful")["texts"]
    assert doubtful == [one for one in told["texts"] if one["doubts"]]
    draft.chmod(0o600)
    draft.write_text(draft.read_text().replace(texts[0][:1] or '"text":""', "x", 1) + "\n")
    assert almoner.ask("release texts 1", expected=1)["error"] == "ArtifactChanged"


def test_texts_that_are_not_made_cannot_be_read(almoner: Almoner) -> None:
    almoner.submitted()
    assert almoner.ask("release texts 1", expected=1)["error"] == "WrongState"
    assert almoner.ask("release texts 7", expected=2)["error"] == "RequestUnknown"


@pytest.mark.parametrize("line", ["release show x", "no-such-command", "budget show", "release list --no-such-option"])
def test_a_mistyped_command_is_answered_in_json(almoner: Almoner, line: str) -> None:
    told = almoner.type(f"{line} --json", expected=2)
    assert json.loads(told.out)["error"] == "CommandInvalid"
    assert told.err == ""
    assert almoner.type(line, expected=2).out == ""


def test_a_budget_says_first_what_it_affords(almoner: Almoner) -> None:
    almoner.registered()
    first = almoner.type("budget show clinic").out.splitlines()[0]
    assert first.startswith("Nothing of the lifetime budget (epsilon 8) is used: it is enough for ")
    assert almoner.type("budget simulate clinic --epsilon 4 --releases 8").out.splitlines()[-1] == (
        "All 8 fit at epsilon 2.713 each, at the same delta."
    )
    assert "All" not in almoner.type("budget simulate clinic --epsilon 2.713 --releases 8").out
    assert "All" in almoner.type("budget simulate clinic --epsilon 2.714 --releases 8").out


def test_fields_are_tried_before_they_are_fixed(almoner: Almoner) -> None:
    almoner.registered()
    before = almoner.everything()
    line = f"dataset register other --epsilon 8 --delta 1e-6 --check {almoner.notes_file()} --unit"
    assert almoner.ask(f"{line} person", expected=2)["error"] == "NoUnit"
    assert almoner.ask(f"{line} patient_id --text body", expected=2)["error"] == "NoText"
    assert almoner.everything() == before
    almoner.type(f"{line} patient_id")
