"""A stranger's check of a bundle: everything that was changed is found, and nothing can make it crash."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models_db.policies.policy import Policy, RequiredApprovals
from models_db.values.canonical_json import digest
from models_db.values.events import PrivacyEvent
from models_db.values.requests import model_to_json
from tasks.common.files import encode_json, measure
from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.checks import CHECKED_AS, CHECKS
from tasks.publishing.draft import MAKERS, write_draft
from tasks.publishing.verify import KINDS, verify_release
from tasks.release.bundle_format import CARD, CHECKPOINT, DRAFT_FILES, EVALUATION, RECORD, TEXTS, bundle_files
from tasks.release.record import planned_events, second_opinion
from tasks.release.signatures.publisher_statements import Checkpoint
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import (
    BASELINE,
    DRAW,
    HEAD,
    INK,
    POLICY,
    a_record,
    a_request,
    charging,
    invocation,
    metrics_of,
    people,
)
from tests.unit.tasks.publishing.builders import (
    TEXTS as TWO_TEXTS,
)
from tests.unit.tasks.publishing.forging import edit, failed, failures, reseal, seal, seal_as_it_is

pytestmark = [pytest.mark.dear, pytest.mark.contract]

ROOT = Path(__file__).resolve().parents[4]
BUNDLE_FILES = bundle_files("synthetic_corpus")

Json = dict[str, Any]


def test_an_untouched_bundle_holds(folder, key):
    report = verify_release(folder, key.public_key)
    assert report.holds, failed(report)
    assert report.pinned
    assert (report.dataset, report.release, report.epsilon, report.delta) == ("clinic", 1, "4", "0.0000001")
    assert report.rho == "0.266311880304"
    assert report.recomputed_epsilon == "3.999982766030"
    assert report.to_json()["authentic"] is True
    assert "trusted key signed it" in report.conclusion


def test_without_a_trusted_key_authenticity_is_said_to_be_unproven(folder, key):
    report = verify_release(folder)
    assert report.holds
    assert not report.pinned
    assert report.to_json()["authentic"] is False
    assert "unproven" in report.conclusion
    assert key.fingerprint in report.conclusion


def test_another_trusted_key_fails(folder, new_key):
    report = verify_release(folder, new_key("another").public_key)
    assert failed(report) == {"authenticity"}
    assert not report.to_json()["authentic"]


@pytest.mark.parametrize("wrong", ["", "abc", "g" * 64])
def test_a_trusted_key_that_is_none_is_a_usage_error(folder, wrong):
    with refusal("NotAPublicKey"):
        verify_release(folder, wrong)


def test_it_needs_a_folder(tmp_path):
    (tmp_path / "file").write_text("x")
    for wrong in (tmp_path / "none", tmp_path / "file"):
        with refusal("NoBundle"):
            verify_release(wrong)


def test_it_opens_no_network_and_no_database(folder, key, monkeypatch):
    import socket
    import sqlite3

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("not offline")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(sqlite3, "connect", refuse)
    assert verify_release(folder, key.public_key).holds


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUNDLE_FILES)
def test_a_changed_byte_is_found_even_without_a_trusted_key(folder, name):
    whole = (folder / name).read_bytes()
    for place in (0, int(0.3 * len(whole)), int(0.7 * len(whole)), len(whole) - 1):
        (folder / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not verify_release(folder).holds


@pytest.mark.parametrize("name", BUNDLE_FILES)
def test_a_file_that_is_none_is_found(folder, name, tmp_path):
    path, kept = folder / name, tmp_path / "kept"
    path.rename(kept)
    assert "files" in failed(verify_release(folder))
    for make in (
        lambda: path.symlink_to(kept),
        lambda: path.symlink_to(tmp_path / "nowhere"),
        lambda: os.mkfifo(path),
        path.mkdir,
    ):
        make()
        assert "files" in failed(verify_release(folder))
        path.rmdir() if path.is_dir() else path.unlink()
    path.touch()
    assert not verify_release(folder).holds


@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_one_file_too_many_is_found(folder, what, tmp_path):
    path = folder / "extra"
    {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to(tmp_path)}[what]()
    assert failed(verify_release(folder)) == {"files"}


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines, f"{'0' * 64}  ../outside\n"],
        lambda lines: [*lines, lines[0]],
        lambda lines: lines[::-1],
        lambda lines: [line.replace("  ", " *") for line in lines],
        lambda lines: [line.upper() for line in lines],
    ],
)
def test_a_list_of_digests_out_of_form_is_found_though_it_is_signed(folder, key, change):
    listed = "".join(change((folder / "SHA256SUMS").read_text().splitlines(keepends=True))).encode()
    seal(folder, key, listed)
    assert {"digests"} <= failed(verify_release(folder, key.public_key)) <= {"digests", "columns"}


# --- forgeries: everything is signed again, with the forger's own key ------------------------------------------------


def event_of(stored: Json) -> Json:
    return stored["events"][0]


def cheaper(stored: Json) -> None:
    event_of(stored)["rho"] = "1"


def parameter(name: str, value: object) -> Callable[[Json], None]:
    return lambda stored: event_of(stored)["parameters"].update({name: value})


def consistently_cheaper(stored: Json) -> None:
    """A whole, self-consistent event of a tenth of the clip norm: only the approved request says otherwise."""
    stored["events"] = [replace(DRAW, clip_steps=DRAW.clip_steps // 10).event(48).to_json()]


def also_in_the_request(stored: Json) -> None:
    """The forger rewrites the request too, and its digest: now the spend approval is on something else."""
    event = replace(DRAW, clip_steps=DRAW.clip_steps // 10).event(48)
    request = stored["request"]
    request["plan"]["invocations"][0] = {
        "event": event.to_json(),
        "instalments": [{"rho": str(event.loss.rho), "delta": "0"}],
    }
    stored.update(a_record(request).to_json())


def setting(*path: str, to: object) -> Callable[[Json], None]:
    def change(stored: Json) -> None:
        *parents, last = path
        for name in parents:
            stored = stored[name]
        stored[last] = to

    return change


FORGERIES = {
    "a cheaper event": (cheaper, {"events", "claim", "request"}),
    "a smaller clip norm": (parameter("clip_steps", 1000), {"events", "request"}),
    "more references": (parameter("references", 70), {"events", "request"}),
    "another temperature": (parameter("temperature", "9"), {"events", "request"}),
    "a parameter too many": (parameter("sigma", "9"), {"events", "request"}),
    "a parameter of another type": (parameter("clip_steps", str(DRAW.clip_steps)), {"events", "request"}),
    "a parameter beyond reason": (parameter("clip_steps", 2**53 - 1), {"events", "request"}),
    "fewer draws": (lambda s: event_of(s).update(count=1), {"events", "request"}),
    "draws below none": (lambda s: event_of(s).update(count=-1), {"events", "request"}),
    "another relation": (lambda s: event_of(s).update(relation="replace_one"), {"events", "request"}),
    "another dp_event": (lambda s: event_of(s).update(dp_event={}), {"events", "request"}),
    "no events": (lambda s: s.update(events=[]), {"request"}),
    "an event twice": (lambda s: s.update(events=s["events"] * 2), {"claim", "request"}),
    "an unknown mechanism": (lambda s: event_of(s).update(mechanism="telepathy"), {"events", "claim", "request"}),
    "a whole cheaper event": (consistently_cheaper, {"request"}),
    "a cheaper request": (also_in_the_request, {"approvals"}),
    "a smaller epsilon": (setting("claim", "epsilon", to="1"), {"claim", "request", "card"}),
    "another delta": (setting("claim", "delta", to="0.001"), {"claim", "request", "card"}),
    "a smaller rho": (setting("claim", "rho", to="0.1"), {"claim", "request"}),
    "a smaller replace-one": (setting("claim", "replace_one", "epsilon", to="4"), {"claim", "request"}),
    **{
        f"another {name} while secret": (setting("claim", "secret_assignment", name, to=value), {"claim", "request"})
        for name, value in {
            "epsilon": "1",
            "remove": "1",
            "add": "1",
            "batches": 200,
            "read": 1,
            "rho": "0.1",
            "rho_other": "0.1",
            "method": "an assertion",
        }.items()
    },
    "no figure while secret": (setting("claim", "secret_assignment", to=None), {"claim", "request", "card"}),
    "fewer batches than the claim counts": (setting("released", to={"batches_per_block": "1"}), {"claim"}),
    "no number of batches": (setting("released", to={}), {"claim"}),
    "no claim": (setting("claim", to=None), {"record"}),
    "no claim, data called public": (
        lambda s: s.update(claim=None, dataset=s["dataset"] | {"governed": False}),
        {"request", "card"},
    ),
    "a smaller lifetime": (setting("lifetime", "epsilon", to="1"), {"claim"}),
    "a rosier second opinion": (setting("second_opinion", "epsilon", to="1"), {"independent accountant"}),
    "no second opinion": (setting("second_opinion", to=None), {"independent accountant"}),
    "another request digest": (setting("request_sha256", to="0" * 64), {"request", "approvals"}),
    "another epsilon in the request": (setting("request", "epsilon", to="9"), {"request"}),
    "no plan in the request": (lambda s: s["request"].pop("plan"), {"request"}),
    "no parameters in the request": (lambda s: s["request"].pop("parameters"), {"request", "texts"}),
    "another unit": (setting("dataset", "unit", to="record"), {"request"}),
    "another dataset": (setting("dataset", "name", to="other"), {"request"}),
    "another fact": (setting("facts", to={"clip norm C": "0.1"}), {"request"}),
    "another model": (setting("model", "sha256", to="0" * 64), {"request"}),
    "another prompt": (setting("prompt", to="other"), {"request"}),
    "another code": (setting("code_sha256", to="0" * 64), {"request"}),
    "another policy": (setting("policy", "approval_days", to=365), {"request"}),
    "another policy digest": (setting("request", "policy", to="0" * 64), {"request"}),
    "a policy that mixes roles": (setting("policy", "several_roles", to=True), {"request", "card"}),
    "another release number": (setting("release", to=2), {"approvals"}),
    "a requester who approved": (setting("people", "requester", "name", to="sue"), {"approvals"}),
    "more approvals needed": (setting("policy", "approvals", "spend", to=2), {"approvals"}),
    "a repeatable generator": (setting("rng", to="deterministic-not-private"), {"record"}),
    "a private count": (lambda s: s.update(units="154"), {"record"}),
    "a private count among released figures": (setting("released", to={"units": "154"}), {"record"}),
    "a float": (setting("release", to=1.5), {"record"}),
    "a format to come": (setting("format", to="almoner-release/2"), {"record"}),
    "a list": (lambda s: s.update(events={}), {"record"}),
}


@pytest.mark.parametrize(("change", "found_by"), FORGERIES.values(), ids=list(FORGERIES))
def test_a_forged_record_is_found_though_everything_is_signed_again(folder, new_key, key, change, found_by):
    forger = new_key("forger")
    stored = json.loads((folder / RECORD).read_text())
    change(stored)
    (folder / RECORD).write_bytes(json.dumps(stored, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    reseal(folder, forger)
    report = verify_release(folder)
    assert found_by <= failed(report)
    assert "approvals" in failed(report)  # a steward approved other bytes, whatever was changed
    assert "authenticity" in failed(verify_release(folder, key.public_key))


def test_a_forger_who_replaces_every_key_is_stopped_by_the_trusted_one_only(make_release, tmp_path, key):
    """What a signature is for: a whole other release, approved by invented stewards, is consistent in itself."""
    other = make_release().publish(tmp_path / "forged").folder
    assert verify_release(other).holds
    assert failed(verify_release(other, key.public_key)) == {"authenticity"}


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (lambda rows: rows[:-1], "texts"),
        (lambda rows: [*rows, {"id": 3, "text": "more"}], "texts"),
        (lambda rows: rows[::-1], "texts"),
        (lambda rows: [rows[0] | {"unit": "p-17"}, rows[1]], "texts"),
        (lambda rows: [rows[0] | {"text": 5}, rows[1]], "texts"),
        (lambda rows: [rows[0] | {"id": True}, rows[1]], "texts"),
        (lambda rows: [rows[0] | {"text": "other words"}, rows[1]], "approvals"),
        (lambda rows: ["x", *rows], "texts"),
    ],
)
def test_forged_texts_are_found(folder, new_key, change, check):
    rows = [json.loads(line) for line in (folder / TEXTS).read_text().splitlines()]
    (folder / TEXTS).write_bytes(b"".join(encode_json(row) for row in change(rows)))
    reseal(folder, new_key("forger"))
    assert check in failed(verify_release(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["metrics"].append(metrics_of(["a"], "verbatim_overlap")[0].to_json()),
        lambda s: s["metrics"].append(metrics_of(["a"], "verbatim_overlap")[0].to_json() | {"exposure": "public"}),
        lambda s: s["metrics"].append(s["metrics"][0] | {"name": "corpus_size"}),
        lambda s: s["metrics"].pop(),
        lambda s: s["metrics"][0].update(extra=1),
        lambda s: s["metrics"].append(7),
        lambda s: s.update(units=154),
        lambda s: s.update(metrics={}),
        lambda s: s.update(format="almoner-evaluation/2"),
    ],
)
def test_forged_measurements_are_found(folder, new_key, change):
    edit(folder, EVALUATION, change)
    reseal(folder, new_key("forger"))
    assert "measurements" in failed(verify_release(folder))


def hide_the_claim(text: str) -> str:
    """The real claim in a comment, which no Markdown reader shows, and below it another one."""
    before, _, rest = text.partition("\n## The claim\n")
    claim, _, after = rest.partition("\n## ")
    shown = "| figure | value |\n| --- | --- |\n| epsilon | `0.1` |\n| delta | `0.000000000001` |\n"
    return f"{before}\n<!--\n## The claim\n{claim}\n## -->\n\n## The claim\n\n{shown}\n## {after}"


CARD_FORGERIES = {
    "another epsilon": lambda text: text.replace("| epsilon | `4` |", "| epsilon | `1` |"),
    "another delta": lambda text: text.replace("| delta | `0.0000001` |", "| delta | `0` |"),
    "another unit": lambda text: text.replace("one value of `id`", "one value of `household`"),
    "no epsilon": lambda text: text.replace("| epsilon | `4` |\n", ""),
    "another heading": lambda text: text.replace("## The claim", "## Claims"),
    "another measurement": lambda text: text.replace("`texts` | `2`", "`texts` | `3`"),
    "no limits": lambda text: text.replace("**The public model.**", "**Nothing else.**"),
    "one word more": lambda text: f"{text}P.S. It is anonymous.\n",
    "other line ends": lambda text: text.replace("\n", "\r\n"),
    "the claim in a comment": hide_the_claim,
}


@pytest.mark.parametrize("change", CARD_FORGERIES.values(), ids=list(CARD_FORGERIES))
def test_the_publisher_cannot_write_another_card(make_release, tmp_path, change):
    """The stewards approve the forged card, and the publisher's own key signs it."""
    release = make_release()
    honest = (release.draft / CARD).read_bytes()
    forged = change(honest.decode()).encode()
    assert forged != honest
    (release.draft / CARD).write_bytes(forged)
    files = {name: measure(release.draft / name) for name in DRAFT_FILES}
    assert failures(release.decided_again(release.draft, files), tmp_path / "out") == {"card"}


def test_a_card_that_is_not_text_is_found(folder, new_key):
    (folder / CARD).write_bytes(b"\xff\xfe")
    reseal(folder, new_key("forger"))
    assert "card" in failed(verify_release(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda all_of_them: all_of_them.pop(),
        lambda all_of_them: all_of_them.clear(),
        lambda all_of_them: all_of_them[0].update(reason="because I say so"),
        lambda all_of_them: all_of_them[0].update(approver="ursula"),
        lambda all_of_them: all_of_them[0].update(expires_at="2099-01-01T00:00:00.000000Z"),
        lambda all_of_them: all_of_them[0].update(public_key="0" * 64),
        lambda all_of_them: all_of_them[0].update(public_key=5),
        lambda all_of_them: all_of_them.append(all_of_them[0]),
        lambda all_of_them: all_of_them.append({}),
    ],
)
def test_forged_approvals_are_found_though_the_bundle_is_signed_by_the_publisher(folder, key, change):
    edit(folder, "approvals.json", change)
    reseal(folder, key)
    found = failed(verify_release(folder, key.public_key))
    assert {"approvals"} <= found <= {"approvals", "attestation"}  # and who no longer approves should not have attested


@pytest.mark.parametrize("field", ["artifact_sha256", "ledger_head", "public_key", "signature", "format"])
def test_a_forged_checkpoint_is_found(folder, key, field):
    edit(folder, CHECKPOINT, lambda stored: stored.update({field: "0" * len(stored[field])}))
    seal_as_it_is(folder, key)
    unreadable = {"charge"}  # what no checkpoint says is not charged
    assert failed(verify_release(folder, key.public_key)) - unreadable == {"checkpoint"}


@pytest.mark.parametrize("key_too_many", ["seq", "at", "attempts"])
def test_a_checkpoint_that_tells_more_is_found(folder, key, key_too_many):
    edit(folder, CHECKPOINT, lambda stored: stored.update({key_too_many: 41}))
    seal_as_it_is(folder, key)
    unreadable = {"charge"}  # what no checkpoint says is not charged
    assert failed(verify_release(folder, key.public_key)) - unreadable == {"checkpoint"}


def test_a_checkpoint_by_another_key_is_found(folder, key, new_key):
    found = json.loads((folder / CHECKPOINT).read_text())
    charged = Checkpoint.from_bytes((folder / CHECKPOINT).read_bytes()).charged
    other = Checkpoint.signed(found["artifact_sha256"], HEAD, charged, new_key("forger"))
    (folder / CHECKPOINT).write_bytes(other.to_bytes())
    seal_as_it_is(folder, key)
    assert failed(verify_release(folder, key.public_key)) == {"checkpoint"}


# --- the publisher's own forgeries: stewards approve them, and the publisher's key signs them ------------------------

FREE = uncharged("public_only")
CHEAP = replace(DRAW, references=7000)
LONG = "one of many words " * 12


def foreign(*events: PrivacyEvent, **changes: Any) -> dict[str, Any]:
    """The request of `a_request`, with these events charged for it."""
    return a_request(plan=charging(*events), **changes)


def secret(*none: None, **sizes: int) -> dict[str, Any]:
    """The honest plan with these sizes of its split, or with none."""
    plan = {name: value for name, value in a_request()["plan"].items() if not none or name != "assignment"}
    return plan if none else plan | {"assignment": {"batches": 2, "read": 2} | sizes}


FOREIGN_PLANS = {
    "nothing is charged": foreign(),
    "an uncharged event": foreign(FREE),
    "an uncharged event and no claim asked for": foreign(FREE, epsilon=None, delta=None),
    "one draw for texts of 48": foreign(DRAW.event(1), epsilon="0.6"),
    "more references than asked for": foreign(CHEAP.event(48), epsilon="0.01"),
    "another temperature": foreign(replace(DRAW, temperature=Fraction(100)).event(48), epsilon="0.1"),
    "a smaller clip norm": foreign(replace(DRAW, clip_steps=DRAW.clip_steps // 10).event(48), epsilon="1"),
    "a larger clip norm than was calibrated": foreign(DRAW.event(48), epsilon="5"),
    "the draws twice": foreign(DRAW.event(24), DRAW.event(24)),
    "a mechanism of another name": foreign(DRAW.event(48), mechanism="public_only", parameters=BASELINE),
    "no protection on governed data": foreign(FREE, mechanism="non_private", parameters=BASELINE),
    "an unknown mechanism": foreign(DRAW.event(48), mechanism="telepathy"),
    "a mechanism for another kind": foreign(DRAW.event(48), kind="poems"),
    "longer texts": foreign(DRAW.event(48), parameters=INK | {"max_new_tokens": 96}),
    "a parameter that is none": foreign(DRAW.event(48), parameters=INK | {"seed": 1}),
    "a default left out": foreign(DRAW.event(48), parameters={n: v for n, v in INK.items() if n != "top_k"}),
    "a number written otherwise": foreign(DRAW.event(48), parameters=INK | {"temperature": "1.0"}),
    "no count though no population is declared": foreign(DRAW.event(48), population=None),
    "more blocks than are charged": foreign(DRAW.event(48), blocks=2),
    "absurdly many blocks": foreign(DRAW.event(48), blocks=2**53 - 1),
    "no block": foreign(DRAW.event(48), blocks=0),
    "another block": a_request(plan=a_request()["plan"] | {"blocks": [1]}),
    "other instalments": a_request(plan=a_request()["plan"] | {"invocations": [invocation(DRAW.event(48))]}),
    "a rosier fact": a_request(plan=a_request()["plan"] | {"facts": {"clip norm C": "0.1"}}),
    "more batches while the assignment is secret": a_request(plan=secret(batches=200)),
    "fewer batches that are read": a_request(plan=secret(read=1)),
    "no figure while the assignment is secret": a_request(plan=secret(None)),
    "such a figure of a system that may not have it": a_request(plan=secret(), mechanism="private_prediction"),
    "such a figure of public data": a_request(plan=secret(), governed=False),
    "a field that no request has": a_request(claim={"epsilon": "0.001"}),
    "another format of requests": a_request(format="almoner-request/2"),
    "a population that is no number": a_request(plan=a_request()["plan"], population="14"),
}


@pytest.mark.parametrize("request_body", FOREIGN_PLANS.values(), ids=list(FOREIGN_PLANS))
def test_the_publisher_cannot_charge_for_another_request(make_release, tmp_path, request_body):
    events = planned_events(request_body)
    opinion, released = second_opinion(events, "1e-7"), {"batches_per_block": "200"}
    record = a_record(request_body, second_opinion=opinion, released=released)
    assert failures(make_release(record, (LONG, LONG)), tmp_path / "out") == {"plan"}


HONEST = {
    "a declared population": a_request(),
    "a noisy count": a_request(population=None),
    "declared batches": a_request(population=None, parameters=INK | {"batches": 3}),
    "two blocks": a_request(blocks=2),
    "the public model alone": a_request(mechanism="public_only", parameters=BASELINE, epsilon=None, delta=None),
    "no protection on public data": a_request(
        mechanism="non_private", parameters=BASELINE, epsilon=None, delta=None, governed=False
    ),
}


@pytest.mark.parametrize("request_body", HONEST.values(), ids=list(HONEST))
def test_every_honest_plan_verifies(make_release, tmp_path, request_body):
    opinion = second_opinion(planned_events(request_body), "1e-7")
    release = make_release(a_record(request_body, second_opinion=opinion, released={"batches_per_block": "3"}))
    assert verify_release(release.publish(tmp_path / "out").folder, release.key.public_key).holds


@pytest.mark.parametrize("part", ["requester", "runner"])
def test_the_publisher_cannot_let_a_requester_or_runner_approve(make_release, tmp_path, part):
    """Both names are spelt otherwise in the record, and every signature is genuine."""
    release = make_release()
    sue, _tom = release.stewards
    for number, named in enumerate((people(**{part: "Sue "}), people(**{f"{part}_key": sue.key.public_key}))):
        record = a_record(people=named)
        draft = tmp_path / f"draft {number}"
        files = write_draft(draft, record, TWO_TEXTS, metrics_of(TWO_TEXTS, "length", "distinct"))
        with refusal("NotApproved", match="requested or ran the release"):
            release.decided_again(draft, files).publish(tmp_path / "out")


@pytest.mark.parametrize(
    "laxer", [{"several_roles": True}, {"approvals": RequiredApprovals(spend=1, publish=1)}, {"attempts": 100}]
)
def test_the_publisher_cannot_state_a_laxer_policy(make_release, tmp_path, laxer):
    """The request names a strict policy by its digest; the record tells another one, and its card says so."""
    record = a_record(policy=POLICY.model_copy(update=laxer))
    assert failures(make_release(record), tmp_path / "out") == {"request"}


def under(**rules: Any) -> Any:
    """A record of a release whose request names a policy with these rules."""
    policy = Policy.model_validate({"version": 1, "approvals": {"spend": 1, "publish": 2}} | rules)
    return a_record(a_request(policy=digest(model_to_json(policy))), policy=policy)


def limits(epsilon: str) -> Json:
    return {"epsilon_max": epsilon, "delta_max": "1e-7"}


KEPT = {"release": limits("4"), "evaluation": {"required": {"length": {"texts": {"min": 2, "max": 2}}}}}


def test_a_release_that_its_policy_just_allows_verifies(make_release, tmp_path):
    assert verify_release(make_release(under(**KEPT)).publish(tmp_path / "out").folder).holds


@pytest.mark.parametrize(
    "broken",
    [
        {"release": limits("3.999")},
        {"datasets": {"clinic": {"release": limits("1")}}},
        {"mechanisms": ["public_only"]},
        {"models": ["another"]},
        {"evaluation": {"required": {"perplexity": {}}}},
        {"evaluation": {"required": {"length": {"texts": {"max": 1}}}}},
    ],
)
def test_a_release_that_its_policy_does_not_allow_is_found(make_release, tmp_path, broken):
    assert failures(make_release(under(**KEPT | broken)), tmp_path / "out") == {"policy"}


def test_the_approvers_keys_are_said_to_be_the_publishers_word(folder, key):
    assert "vouched for by the publisher alone" in verify_release(folder, key.public_key).conclusion


def test_verifying_loads_no_torch():
    code = "import tasks.publishing.verify, sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- malformed on purpose --------------------------------------------------------------------------------------------

HOSTILE = [
    b"",
    b"\x00",
    b"[" * 200_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b"1e999999",
    b"NaN",
    b'"\\ud800"',
    b"\xef\xbb\xbf{}",
    b"null\n",
    b"[]\n",
    b"{}\n",
    b'{"events":[{}]}\n',
]


@pytest.mark.parametrize("name", BUNDLE_FILES)
def test_nothing_makes_it_crash(folder, name):
    for data in HOSTILE:
        (folder / name).write_bytes(data)
        report = verify_release(folder)
        assert not report.holds
        assert report.conclusion.startswith("Do not rely")
        json.dumps(report.to_json())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rho", "9" * 4000),
        ("rho", "-1"),
        ("rho", "x"),
        ("delta", str(10**30)),
        ("count", 2**53 - 1),
        ("parameters", []),
        ("parameters", {"clip_steps": 1, "grid_exponent": 20, "references": 7, "temperature": "1e-399"}),
        ("parameters", {"clip_steps": 1, "grid_exponent": 20, "references": 7, "temperature": "1/0"}),
        ("mechanism", "x" * 100_000),
    ],
)
def test_absurd_events_are_failed_checks(folder, new_key, name, value):
    edit(folder, RECORD, lambda stored: event_of(stored).update({name: value}))
    reseal(folder, new_key("forger"))
    report = verify_release(folder)
    assert failed(report) & {"record", "events"}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_damage_is_found(folder, data):
    name = data.draw(st.sampled_from(BUNDLE_FILES))
    original = (folder / name).read_bytes()
    start = data.draw(st.integers(0, len(original) - 1))
    length = data.draw(st.integers(0, 40))
    damaged = original[:start] + data.draw(st.binary(max_size=40)) + original[start + length :]
    (folder / name).write_bytes(damaged)
    try:
        assert verify_release(folder).holds == (damaged == original)
    finally:
        (folder / name).write_bytes(original)


def test_every_check_is_of_one_kind() -> None:
    named = [name for names in KINDS.values() for name in names]
    assert len(named) == len(set(named))
    every = {name for name, _ in CHECKS} | {"authenticity", "retraction"}
    documents = {CHECKED_AS.get(name, name) for name in MAKERS}
    assert every - set(named) == documents
    assert set(named) <= every
