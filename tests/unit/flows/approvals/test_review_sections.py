"""What a steward is shown, and warned of, before deciding."""

import pytest

from flows.approvals.build_review import INSIGHTS_SHOWN, build_publish_review, build_spend_review, shown_insights
from models_db.policies.policy import Policy
from models_db.values.canonical_json import digest
from models_db.values.requests import model_to_json
from tasks.publishing.draft import write_draft
from tasks.release.claim import ClaimTooSmall
from tasks.release.sections import FieldList, Table, Warnings
from tasks.release.signatures.attestation import attestation_payload
from tests.insights_rows import (
    described,
    hostile,
    insights_record,
    insights_request,
    known,
    many,
    plausible,
    unmeasured,
)
from tests.refusals import refusal
from tests.unit.flows.asking import a_draft, a_question, doubts, produced, text_of
from tests.unit.tasks.publishing.builders import BASELINE, POLICY, SUMMARIES, TEXTS, a_request, charging, event, people

ANA = people().requester.public_key
ROBIN = people().runner.public_key


def section(asked, title):
    return next(one for one in asked.sections if one.title.startswith(title))


def test_everything_that_matters_is_on_the_screen():
    said = text_of(build_spend_review(a_question(), None))
    for fact in (
        "Dataset clinic - Request 1, spend gate",
        "epsilon 4 at delta 1e-7",
        "before | 2.1519",
        "after | 4.4012",
        "cap | 8",
        "all releases together at delta 1e-6",
        "id: all records with one id count as one",
        "add_or_remove_one",
        "epsilon 8.7055 at delta 1e-7, one unit exchanged",
        "integer_draw | 48 | 0.266311880304",
        "clip_steps 773192",
        "1 of 1 may be read",
        "1 to spend, 2 to publish",
        "yes: nobody approves a release that they requested or ran",
        digest(model_to_json(POLICY)),
        "0 of 1",
        "This is the first release of clinic.",
        "Short dialogues between a doctor and a patient.",
    ):
        assert fact in said


def test_what_almoner_chose_is_marked_with_its_reason():
    values = {**a_request(), "choices": {"references": "each text has about 20 of the declared 2000 units"}}
    review = build_spend_review(a_question(request=values), None)
    chosen = section(review, "Chosen by almoner")
    assert chosen.rows == (("references", str(values["parameters"]["references"]), values["choices"]["references"]),)
    assert chosen.signed
    assert not [one for one in build_spend_review(a_question(), None).sections if one.title.startswith("Chosen")]


def test_a_steward_reads_how_far_the_private_texts_count():
    assert "influence | The private texts move the next word clearly: clip norm " in text_of(
        build_spend_review(a_question(), None)
    )


def test_what_is_signed_and_what_is_only_reported_is_told_apart():
    signed = {one.title.split(":")[0]: one.signed for one in build_spend_review(a_question(), None).sections}
    assert signed["Privacy cost"] is signed["Mechanisms"] is signed["Content of the release"] is True
    assert signed["Who"] is signed["Difference"] is False
    assert [kept for title, kept in signed.items() if title.startswith("Lifetime budget")] == [False]


def test_the_digest_is_computed_from_the_request():
    assert build_spend_review(a_question(), None).subject_digest == digest(a_request())


def test_a_calm_question_has_no_warning():
    assert doubts(a_question()) == ()


def test_own_requests_are_pointed_out_to_their_author_alone():
    assert doubts(a_question(), ANA) == ("You requested this release yourself.",)
    assert doubts(a_question(), ROBIN) == ()


def test_a_second_decision_is_pointed_out_to_whoever_took_the_first():
    given = ({"by": "robin", "decision": "approve", "reason": "fine", "counts": True},)
    question = a_question(people().runner, given=given, counted=1)
    assert doubts(question, ROBIN) == ("You have decided on this already.",)
    assert doubts(question, ANA) == ("You requested this release yourself.",)
    assert doubts(question) == ()


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"budget": {"rho_spent": "580000000000"}}, "81.0 % of the lifetime budget is used up"),
        ({"budget": {"rho_spent": "900000000000"}}, "cannot pay for this now"),
        ({"budget": {"rho_held": "700000000000"}}, "cannot pay for this now"),
        ({"expires_at": "2020-01-01T00:00:00.000000Z"}, "has expired"),
        ({"notices": ("almoner itself has changed.",)}, "almoner itself has changed."),
        (
            {"given": ({"by": "tom", "decision": "reject", "reason": "no", "counts": True},)},
            "A steward has rejected it.",
        ),
        ({"request": a_request(population=10_000_000)}, "Delta is not below 1/(declared population)"),
        (
            {"request": a_request(plan=charging(event(47)))},
            "It can only be rejected: PlanMismatch. The plan does not follow",
        ),
    ],
)
def test_a_doubt_is_said_first(changes, warning):
    question = a_question(**changes)
    assert any(warning in line for line in doubts(question))
    assert isinstance(build_spend_review(question, None).sections[0], Warnings)


def test_just_below_the_line_there_is_no_warning_of_the_budget():
    assert doubts(a_question(budget={"rho_spent": "530000000000"})) == ()


def test_a_plan_that_costs_more_than_it_claims_is_not_shown_as_if_it_were_fine():
    with pytest.raises(ClaimTooSmall):
        build_spend_review(a_question(request=a_request(plan=charging(event(49)))), None)


def test_a_release_without_protection_says_so_first():
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, parameters={
        name: BASELINE[name] for name in BASELINE if name not in ("references", "top_k", "max_reference_tokens")
    })  # fmt: skip
    assert any("NO privacy claim" in line for line in doubts(a_question(request=request)))


def test_the_difference_to_the_release_before_is_a_small_table():
    previous = {"number": 7, "state": "published", "request": a_request(model={**a_request()["model"], "name": "old"})}
    shown = section(build_spend_review(a_question(previous=previous), None), "Difference")
    assert isinstance(shown, Table)
    assert shown.title == "Difference to release 7 (published)"
    assert shown.rows == (("model.name", "old", "tiny"),)
    again = section(build_spend_review(a_question(previous=previous | {"request": a_request()}), None), "Difference")
    assert (again.rows, again.empty) == ((), "The two requests are the same.")


def test_decisions_so_far_are_shown_and_only_those_that_count_are_counted():
    given = [
        {"by": "tom", "decision": "approve", "reason": "fine", "counts": True},
        {"by": "eve", "decision": "approve", "reason": "was fine", "counts": False},
    ]
    rows = section(build_spend_review(a_question(given=tuple(given), counted=1), None), "Who").rows
    assert ("approved so far", "1 of 1") in rows
    assert ("tom", "approved: fine") in rows
    assert ("eve", "approved (no longer counts): was fine") in rows


def test_a_policy_says_what_it_demands_of_this_dataset():
    policy = Policy.model_validate(
        {
            "version": 1,
            "release": {"epsilon_max": "4", "delta_max": "0.000001"},
            "mechanisms": ["invisible_ink"],
            "evaluation": {"required": {"length": {"cut_share": {"max": "0.5"}}, "distinct": {}}},
            "datasets": {"clinic": {"approvals": {"spend": 3}}},
        }
    )
    question = a_question(policy=policy, request=a_request(policy=digest(model_to_json(policy))), needed=3)
    asked = build_spend_review(question, None)
    rows = dict(section(asked, "Policy").rows)
    assert rows["approvals needed"] == "3 to spend, 1 to publish"
    assert rows["one release"] == "epsilon at most 4, delta at most 1e-6"
    assert rows["must have length"] == "cut_share at most 0.5"
    assert rows["must have distinct"] == "measured"
    assert ("approved so far", "0 of 3") in section(asked, "Who").rows


def test_another_policy_than_the_requests_is_refused():
    with pytest.raises(ValueError, match="not the one that the request names"):
        a_question(policy=Policy(several_roles=True))


def test_at_the_publish_gate_texts_and_measurements_come_before_the_price_and_digests_last(tmp_path):
    asked = produced(tmp_path, a_question(needed=2))
    titles = [one.title for one in asked.sections]
    assert titles[:3] == ["Summary", "Texts: all 2", "Evaluation"]
    assert titles[-1] == "Files to publish"
    said = text_of(asked)
    assert TEXTS[0] in said
    assert "spent | 2.1519" in said
    assert "nothing more is charged" in said
    assert "before |" not in said
    assert "0 of 2" in said
    assert "almoner report 1" in said
    assert isinstance(section(asked, "Privacy cost"), FieldList)


@pytest.mark.parametrize(("overrides", "choice"), [("allowed", "--override"), ("refused", "can only be rejected")])
def test_bounds_that_are_missed_are_said_first_with_what_can_be_done(tmp_path, overrides, choice):
    demands = {"required": {"length": {"empty": {"max": "0"}}}, "overrides": overrides}
    policy = Policy.model_validate({"version": 1, "evaluation": demands})
    request = a_request(policy=digest(model_to_json(policy)))
    asked = produced(tmp_path, a_question(policy=policy, request=request))
    assert [str(one) for one in asked.missed_bounds] == ["length.empty is 1, allowed is at most 0"]
    [warned] = [one.lines for one in asked.sections if isinstance(one, Warnings)]
    assert any("length.empty is 1, allowed is at most 0" in line and choice in line for line in warned)


def test_at_the_publish_gate_the_bytes_are_what_is_signed(tmp_path):
    question = a_question(state="produced")
    draft, files = a_draft(tmp_path)
    asked = build_publish_review(question, draft, files, ROBIN)
    assert asked.subject_digest == digest(files)
    assert asked.payload == attestation_payload(draft, files)
    assert "You ran this release yourself." in text_of(asked)
    (draft / "texts.jsonl").write_text("other")
    with refusal("ArtifactChanged"):
        build_publish_review(question, draft, files, None)


@pytest.mark.parametrize("changes", [{"number": 2}, {"request": a_request(nonce="88" * 16)}])
def test_files_of_another_request_are_refused(tmp_path, changes):
    draft, files = a_draft(tmp_path)
    with refusal("DraftOfAnotherRequest"):
        build_publish_review(a_question(**changes), draft, files, None)


def test_what_is_declared_about_what_is_published_is_on_the_screen():
    request = a_request(public_metadata={"licence": "CC0-1.0", "language": ["en", "de"]})
    shown = text_of(build_spend_review(a_question(request=request), None))
    assert "declared: licence | CC0-1.0" in shown
    assert "declared: language | en, de" in shown
    assert "declared:" not in text_of(build_spend_review(a_question(), None))


def test_a_steward_reads_what_is_summarised_and_which_text_is_about_what(tmp_path):
    question = a_question(request=a_request(**SUMMARIES))
    shown = section(build_spend_review(question, None), "Groups to summarise")
    assert shown.rows == (("b7", "Kettle - kitchen, electric"), ("b8", "b8"))
    assert shown.signed
    samples = section(produced(tmp_path, question), "Texts")
    assert (samples.texts, samples.names) == (TEXTS, ("b7", "b8"))


def test_other_kinds_summarise_nothing(tmp_path):
    asked = produced(tmp_path, a_question())
    assert "summarised" not in text_of(asked)
    assert section(asked, "Texts").names == (None, None)


def test_insights_are_shown_as_a_table(tmp_path, monkeypatch):
    known(monkeypatch)
    nodes, request = plausible(), insights_request()
    draft = tmp_path / "draft"
    files = write_draft(draft, insights_record(request), tuple(described(nodes)), (), insights=nodes)
    asked = build_publish_review(a_question(request=request, state="produced"), draft, files, None)
    shown = section(asked, "Insights: all 18")
    assert isinstance(shown, Table)
    assert shown.columns == ("id", "name", "size", "keywords")
    assert shown.rows[0] == ("1", "Writing and editing", "1378", "job; essay; story; slogan")
    assert shown.rows[4] == ("5", "Cover letters", "385", "job; letter; tone")
    assert shown.signed
    assert not [one for one in asked.sections if one.title.startswith("Texts")]


def test_of_many_insights_the_first_are_shown_groups_before_their_members():
    shown = shown_insights(many(300, 5))
    assert shown.title.startswith(f"Insights: the first {INSIGHTS_SHOWN} of 305")
    assert [row[1] for row in shown.rows[:6]] == [*(f"Group {number}" for number in range(1, 6)), "Topic 1"]
    assert len(shown.rows) == INSIGHTS_SHOWN
    assert shown_insights(()).rows == ()
    assert "no cluster was large enough" in shown_insights(()).empty
    assert shown_insights(unmeasured()).rows[0][2] == "not measured"
    assert shown_insights(hostile()).rows[0][2] == "-7"
