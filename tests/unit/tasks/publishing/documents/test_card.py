"""The card says the whole claim, and nothing a user types can make it say another."""

from dataclasses import replace
from decimal import Decimal

import pytest
import yaml
from markdown_it import MarkdownIt
from mpmath import exp, mp

from models_db.policies.policy import Policy
from models_db.values.requests import model_to_json
from tasks.common.files import FileUnfit
from tasks.common.published_values import read_as
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.core.uncharged import uncharged
from tasks.publishing.documents.card import card
from tasks.release.approved_request import ApprovedRequest
from tasks.release.card_text import (
    CAP_CHANGES,
    DECLARED,
    MEASURED_BY_EXPOSURE,
    NO_CLAIM,
    OWN_GUARANTEES,
    SEPARATE_ROLES,
    SEVERAL_ROLES,
    STANDING,
    limits_section,
)
from tasks.release.claim import guessing_bounds
from tasks.release.record import CapChange, Lifetime
from tests.unit.tasks.publishing.builders import (
    POLICY,
    SUMMARIES,
    TEXTS,
    a_record,
    a_request,
    event,
    invocation,
    metrics_of,
    people,
    standing,
)

pytestmark = pytest.mark.contract

FAKE = "x\n\n## The claim\n\n| epsilon | `0.1` |\n| delta | `0.1` |\n\n# end `` ` <b>"


def the_card(**changes) -> str:
    return card(a_record(**changes), metrics_of(TEXTS, "length", "distinct"))


def without_claim() -> str:
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]}
    request = a_request(mechanism="non_private", governed=False, epsilon=None, delta=None, plan=plan)
    return card(a_record(request, lifetime=None, second_opinion=None, released={}), ())


def test_the_claim_comes_first_and_is_complete():
    text = the_card()
    claim = text.split("## The claim")[1].split("## How it was made")[0]
    for stated in (
        "| epsilon | `4` |",
        "| delta | `0.0000001` |",
        "all records of the dataset with one value of `id`",
        "add or remove one unit",
        "| rho (zCDP) behind it | `0.266311880304` |",
        "epsilon 8.705414862406 at delta 0.0000001",
        "54.6 times",
        "98.21 %",
        "(epsilon `8`, delta `0.000001`)",
    ):
        assert stated in claim
    assert text.index("## The claim") < text.index("## How it was made") < text.index("## What is not protected")


def test_mechanisms_parameters_people_and_measurements_are_stated():
    text = the_card()
    for stated in (
        "`integer_draw` | 48",
        "`clip norm C` | `0.737374`",
        "`ana`",
        "`robin`",
        "dp-accounting",
        "`distinct_2`",
    ):
        assert stated in text
    for name in ("approvals.json", "almoner verify-release", "sha256sum -c SHA256SUMS"):
        assert name in text


def test_a_models_own_guarantee_is_stated_and_no_other_models():
    model = {"revision": "1", "sha256": "1f" * 32, "licence": "Gemma"}
    named = a_request(model={"name": f"google/vaultgemma-1b@{'0a' * 20}", **model})
    sentence = OWN_GUARANTEES["google/vaultgemma-1b"]
    assert sentence in card(a_record(named), ())
    for other in ("google/vaultgemma-1b-it@x", "someone/vaultgemma-1b@x", "vaultgemma-1b"):
        assert sentence not in card(a_record(a_request(model={"name": other, **model})), ())


def test_a_merged_model_s_base_and_adapter_are_stated():
    model = {"name": "tuned", "revision": "local", "sha256": "1f" * 32, "licence": "MIT"}
    parts = {"base_sha256": "2e" * 32, "adapter_sha256": "3d" * 32}
    stated = card(a_record(a_request(model=model | parts)), ())
    assert f"SHA-256 of the base `{'2e' * 32}`, of the adapter `{'3d' * 32}`." in stated
    assert "LoRA" not in card(a_record(a_request(model=model)), ())
    for part in parts:
        with pytest.raises(FileUnfit, match="digests of its base and of its adapter"):
            read_as(ApprovedRequest, a_request(model=model | {part: parts[part]}), "request")


def test_what_is_not_protected_is_said_wherever_something_is_claimed():
    assert limits_section(None) in the_card()
    assert limits_section(None) not in without_claim()


def test_the_card_says_whether_one_person_may_do_everything():
    one = POLICY.model_copy(update={"several_roles": True})
    assert SEVERAL_ROLES in the_card(policy=one)
    assert SEPARATE_ROLES not in the_card(policy=one)
    assert SEPARATE_ROLES in the_card()


def test_every_change_of_the_budget_is_disclosed():
    changes = [
        CapChange(old_epsilon="2", old_delta="0.0000001", new_epsilon="4", new_delta="0.000001"),
        CapChange(old_epsilon="4", old_delta="0.000001", new_epsilon="8", new_delta="0.000001"),
    ]
    text = the_card(cap_changes=changes)
    claim = text.split("## The claim")[1].split("## How it was made")[0]
    assert CAP_CHANGES in claim
    assert "| `2` | `0.0000001` | `4` | `0.000001` |\n| `4` | `0.000001` | `8` | `0.000001` |" in claim
    assert CAP_CHANGES not in the_card()


def test_a_standing_authorisation_is_disclosed():
    assert STANDING in the_card(standing=standing())
    assert STANDING not in the_card()


def test_how_many_approve_is_said():
    assert (
        "Approved before private text was read (at least 1) and again for exactly these files (at least 2)"
        in the_card()
    )
    clinic = {"datasets": {"clinic": {"approvals": {"spend": 3, "publish": 4, "proposal": 5}}}, "version": 1}
    stricter = Policy.model_validate(model_to_json(POLICY) | clinic)
    assert "read (at least 3) and again for exactly these files (at least 4)" in the_card(policy=stricter)
    assert "for all of them (at least 5) and again" in the_card(policy=stricter, standing=standing())


def test_a_shared_budget_is_said():
    assert "Several datasets share" in the_card(lifetime=Lifetime(epsilon="8", delta="0.000001", shared=True))
    assert "Several datasets share" not in the_card()


def test_a_dataset_without_unit_field_protects_records():
    assert "**one record of the dataset**" in card(a_record(a_request(unit="record")), ())


def test_a_release_without_claim_states_none():
    text = without_claim()
    assert NO_CLAIM in text
    assert "| epsilon |" not in text
    assert "differential-privacy" not in text.split("---")[1]


def test_a_release_that_reads_nothing_says_so():
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("public_only"))]}
    text = card(a_record(a_request(mechanism="public_only", plan=plan), second_opinion=None, released={}), ())
    assert "No private text was used for it" in text
    assert "| epsilon | `0` |\n| delta | `0` |" in text


def test_a_measurement_is_shown_with_its_exposure():
    length, overlap = metrics_of(TEXTS, "length", "verbatim_overlap")
    public = a_record(a_request(governed=False))
    shown = card(public, [length, replace(length, name="mean", exposure="charged"), overlap])
    for stated in ("| `length` | public |", "| `mean` | charged |", "| `verbatim_overlap` | internal |"):
        assert stated in shown
    assert all(words in shown for words in MEASURED_BY_EXPOSURE.values())
    assert MEASURED_BY_EXPOSURE["internal"] not in the_card()
    assert MEASURED_BY_EXPOSURE["charged"] not in the_card()


@pytest.mark.parametrize("declared", [None, "never", "partly", "fully"])
def test_contamination_is_stated_as_it_is_declared_or_not_known(declared):
    said = {"texts_published": declared} if declared else {}
    text = card(a_record(a_request(public_metadata=said)), ())
    known = {each: limits_section(each) in text for each in (None, "never", "partly", "fully")}
    assert known == {each: each == declared for each in known}
    assert ("is not known" in text) is (declared is None)
    assert ("Its owner declares" in text) is (declared is not None)


def test_what_is_declared_is_on_the_card_as_words():
    said = {"licence": "MIT", "language": ["en", "de"], "description": FAKE}
    text = card(a_record(a_request(public_metadata=said)), ())
    assert "\n## The claim\n\n| epsilon | `0.1`" not in text
    assert "| licence | `MIT` |" in text
    assert "| language | `en`, `de` |" in text
    assert DECLARED in text
    assert DECLARED not in the_card()


def test_nothing_a_user_types_changes_what_is_stated():
    request = a_request(
        dataset={"name": FAKE, "version": 1, "uid": "4d"},
        unit=FAKE[:300],
        kind=FAKE,
        mechanism=FAKE,
        model={"name": FAKE, "revision": "1", "sha256": "1f" * 32, "licence": FAKE},
        prompt={"description": FAKE},
        plan={"blocks": [0], "facts": {"samples": FAKE, FAKE: "1"}, "invocations": [invocation(event())]},
    )
    text = card(a_record(request, people=people(FAKE[:290], FAKE), released={"noisy_population": FAKE}), ())
    front, _, body = text.partition("\n---\n")
    cells = [token.content for token in MarkdownIt("commonmark").enable("table").parse(body) if token.type == "inline"]
    stated = [cells[place + 1] for place, cell in enumerate(cells) if cell in ("epsilon", "delta")]
    assert stated == ["`4`", "`0.0000001`"]
    assert set(yaml.safe_load(front)) == {"pretty_name", "size_categories", "tags", "configs"}
    headings = [token.map for token in MarkdownIt("commonmark").parse(body) if token.type == "heading_open"]
    titles = [body.splitlines()[lines[0]] for lines in headings if lines]
    assert titles[1:] == [line for line in the_card().splitlines() if line.startswith("## ")]
    assert "<b>" not in MarkdownIt("commonmark").enable("table").render(body)


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "4", "8", "12.5"])
@pytest.mark.parametrize("delta", ["0", "1e-7", "0.01"])
def test_the_bounds_in_words_are_upper_bounds_and_close(epsilon, delta):
    with mp.workdps(50):
        factor = exp(mp.mpf(epsilon))
        right = 100 * (factor + mp.mpf(delta)) / (1 + factor)
        shown_factor, shown_right = guessing_bounds(Decimal(epsilon), Decimal(delta))
        assert factor <= mp.mpf(str(shown_factor)) <= factor * mp.mpf("1.001")
        assert right <= mp.mpf(str(shown_right)) <= right * mp.mpf("1.001")


@pytest.mark.parametrize("epsilon", ["14", "100", "1000000"])
def test_an_absurd_epsilon_makes_a_short_sentence(epsilon):
    factor, right = guessing_bounds(Decimal(epsilon), Decimal("1e-7"))
    assert factor > 10**6
    assert right == 100


def test_no_metric_that_may_not_be_published_is_named():
    for name, metric in METRICS.items():
        if metric.exposure == "internal":
            assert name not in the_card()


def test_a_card_of_summaries_tells_the_groups_and_how_often_a_unit_counts():
    text = the_card(request=a_request(**SUMMARIES))
    assert "| `b7` | `Kettle - kitchen, electric` |" in text
    assert "was read for at most 2 of them" in text
    assert "A unit's documents in one group are joined" in text
    alone = SUMMARIES["parameters"] | {"groups_per_unit": 1}
    assert "was read for one of them" in the_card(request=a_request(**SUMMARIES | {"parameters": alone}))


def test_a_card_of_summaries_that_read_nothing_says_nothing_of_units():
    plan = {"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("public_only"))]}
    request = a_request(**SUMMARIES | {"mechanism": "public_only", "epsilon": None, "delta": None, "plan": plan})
    text = the_card(request=request, second_opinion=None)
    assert "one text for each group of a public list" in text
    assert "A unit that wrote" not in text


def test_a_card_of_soft_tokens_does_not_say_that_the_prompt_held_a_private_text():
    plan = a_request(**SUMMARIES)["plan"]
    text = the_card(request=a_request(**SUMMARIES | {"mechanism": "one_shot_summary", "plan": plan}))
    assert "given no text, but the soft tokens" in text
    assert "is the private text of one unit" not in text
    assert "Many people wrote about this" not in text


def test_the_card_marks_what_almoner_chose():
    """Beside the parameters, as the price does; a request that leaves nothing out has no such table."""
    request = a_request()
    assert "Chosen by almoner" not in the_card()
    name = next(iter(request["parameters"]))
    text = card(a_record({**request, "choices": {name: FAKE}}), ())
    chosen = text.split("Chosen by almoner")[1].split("Licence of the model")[0]
    assert f"| `{name}` | `{request['parameters'][name]}` |" in chosen
    assert text.count("\n## The claim") == 1
