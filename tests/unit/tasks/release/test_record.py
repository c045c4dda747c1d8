"""release.json: complete, closed, and made from nothing that was read off private data."""

import json

import pytest
from pydantic import ValidationError

from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json, encode_canonical
from tasks.accounting.zcdp import release_amount
from tasks.common.files import FileUnfit, encode_json
from tasks.mechanisms.core.uncharged import uncharged
from tasks.pricing.quote import plan_json
from tasks.release.claim import ClaimTooSmall
from tasks.release.record import CUT_FIGURE, RELEASED_FIGURES, ReleaseRecord
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.values.plan import PlanInputs
from tests.unit.tasks.publishing.builders import a_record, a_request, event, invocation, standing

pytestmark = pytest.mark.dear

FORBIDDEN = [
    "units",
    "unit_count",
    "documents",
    "records",
    "corpus_sha256",
    "data_sha256",
    "source_mark",
    "manifest_mark",
    "seconds",
    "run_time",
    "started_at",
    "created_at",
    "device",
    "chunks",
    "rows",
    "attempt",
    "attempts",
    "crashes",
    "forfeited",
    "perplexity_gap",
    "verbatim_overlap",
    "nearest_neighbour",
    "seed",
]

KEYS = {
    "": "cap_changes claim code_sha256 dataset events facts format kind libraries lifetime mechanism model people"
    " policy prompt release released request request_sha256 rng second_opinion standing",
    "claim": "conversion delta delta_fail epsilon replace_one rho secret_assignment",
    "claim.secret_assignment": "add batches epsilon method read remove rho rho_other",
    "claim.replace_one": "delta epsilon rho",
    "dataset": "governed name relation unit",
    "lifetime": "delta epsilon shared",
    "model": "licence name sha256",
    "people": "requester runner",
    "people.requester": "name public_key",
    "people.runner": "name public_key",
    "policy": "approval_days approvals attempts delta_below_population evaluation"
    " refusals request_days several_roles version",
    "policy.approvals": "proposal publish spend",
    "second_opinion": "accountant delta epsilon library",
}
PLACES = list(KEYS)


def part(stored: dict[str, Json], place: str) -> dict[str, Json]:
    for name in filter(None, place.split(".")):
        stored = stored[name]
    return stored


def plan_of(**parameters: object) -> dict[str, object]:
    asked = {"samples": 4, "references": 7, "max_new_tokens": 48, "temperature": "1.0"}
    plan = InvisibleInk().plan(
        PlanInputs(
            release_amount("4", "1e-7"), InvisibleInkParameters.model_validate(asked | parameters), 1, None, True
        )
    )
    return plan_json(plan)


def test_it_reads_back():
    record = a_record()
    again = ReleaseRecord.from_bytes(record.to_bytes())
    assert again == record
    assert again.to_bytes() == record.to_bytes()
    assert again.events[0].loss == event().loss


def test_it_is_canonical_and_without_floats():
    stored = json.loads(a_record().to_bytes(), parse_float=lambda text: pytest.fail(f"a float: {text}"))
    assert encode_canonical(stored) + b"\n" == a_record().to_bytes()


@pytest.mark.parametrize("place", PLACES)
def test_the_fields_are_exactly_the_listed_ones(place):
    assert set(part(a_record().to_json(), place)) == set(KEYS[place].split())


@pytest.mark.parametrize("place", PLACES)
def test_a_field_that_is_not_listed_is_refused(place):
    for key in FORBIDDEN:
        stored = a_record().to_json()
        part(stored, place)[key] = "1"
        with pytest.raises(FileUnfit):
            ReleaseRecord.from_bytes(encode_json(stored))


@pytest.mark.parametrize("key", FORBIDDEN)
def test_a_figure_that_no_mechanism_releases_is_refused(key):
    with pytest.raises(ValidationError, match="publishable"):
        a_record(released={key: "154"})


@pytest.mark.parametrize("figure", sorted(RELEASED_FIGURES - {CUT_FIGURE}))
def test_released_figures_are_listed_one_by_one(figure):
    assert a_record(released={figure: "22"}).released == {figure: "22"}


@pytest.mark.parametrize(
    "place", ["", "claim", "claim.secret_assignment", "dataset", "people.runner", "policy", "policy.approvals"]
)
def test_a_missing_field_is_refused(place):
    for key in part(a_record().to_json(), place):
        stored = a_record().to_json()
        del part(stored, place)[key]
        if (place, key) in (("", "format"), ("claim.replace_one", "rho")):
            continue
        with pytest.raises(FileUnfit):
            ReleaseRecord.from_bytes(encode_json(stored))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 100_000,
        b'{"format":"almoner-release/1"}\n',
        a_record(standing=standing()).to_bytes().replace(b'"runs":12', b'"runs":12,"used":3'),
        a_record(standing=standing()).to_bytes().replace(b'"runs":12', b'"runs":0'),
        a_record().to_bytes()[:-1],
        a_record().to_bytes() + b"\n",
        a_record().to_bytes().replace(b'"release":1', b'"release":1.0'),
        a_record().to_bytes().replace(b'"release":1', b'"release":true'),
        a_record().to_bytes().replace(b'"release":1', b'"release":"1"'),
        a_record().to_bytes().replace(b'"release":1', b'"release":0'),
        a_record().to_bytes().replace(b'"release":1', b'"release":1,"release":1'),
        a_record().to_bytes().replace(b'"rng":"os"', b'"rng":"mersenne"'),
        a_record().to_bytes().replace(b'"epsilon":"4"', b'"epsilon":"4e0"'),
        a_record().to_bytes().replace(b'"epsilon":"4"', b'"epsilon":"-4"'),
        a_record().to_bytes().replace(b'"epsilon":"4"', b'"epsilon":"NaN"'),
        a_record().to_bytes().replace(b'"epsilon":"4"', b'"epsilon":"4\\n"'),
        a_record().to_bytes().replace(b'"count":48,"delta":"0","dp_event"', b'"count":true,"delta":"0","dp_event"'),
        a_record().to_bytes().replace(b'"references":7,"temperature"', b'"references":[7],"temperature"'),
    ],
)
def test_what_is_not_a_record_is_refused_by_name(data):
    with pytest.raises(FileUnfit):
        ReleaseRecord.from_bytes(data)


@pytest.mark.parametrize("value", [1, "true", None])
def test_a_policy_in_another_spelling_is_refused(value):
    stored = a_record().to_json()
    stored["policy"]["several_roles"] = value
    with pytest.raises(FileUnfit):
        ReleaseRecord.from_bytes(encode_json(stored))


def test_errors_quote_no_content():
    stored = a_record().to_json()
    stored["people"]["requester"]["public_key"] = "Jane Roe"
    with pytest.raises(FileUnfit) as refused:
        ReleaseRecord.from_bytes(encode_json(stored))
    assert "people.requester" in refused.value.message
    assert "Jane" not in refused.value.diagnostics()


def test_parameters_are_those_of_the_approved_plan():
    facts = {"samples": "2", "clip norm C": "0.5"}
    request = a_request(plan={"blocks": [0], "facts": facts, "invocations": [invocation(event())]})
    assert a_record(request).facts == facts


@pytest.mark.parametrize("batches", [None, 6])
def test_a_real_plan_makes_a_record(batches):
    record = a_record(a_request(plan=plan_of(batches=batches)))
    assert record.facts["references B"] == "7"
    assert [e.mechanism for e in record.events] == (["integer_draw"] if batches else ["noisy_count", "integer_draw"])
    assert ReleaseRecord.from_bytes(record.to_bytes()) == record


def test_a_request_that_claims_too_little_is_refused():
    with pytest.raises(ClaimTooSmall):
        a_record(a_request(epsilon="3.9", plan=a_request()["plan"]))


def test_instalments_must_add_up():
    planned = invocation(event())
    planned["instalments"][0]["rho"] = "1"
    with pytest.raises(ValueError, match="instalments"):
        a_record(a_request(plan={"blocks": [0], "facts": {}, "invocations": [planned]}))


@pytest.mark.parametrize("change", [{"lifetime": None}, {"rng": "deterministic-not-private"}])
def test_governed_data_needs_its_claims_and_real_randomness(change):
    with pytest.raises(ValidationError):
        a_record(**change)


def test_a_release_without_protection_claims_nothing_and_only_of_public_data():
    request = a_request(
        mechanism="non_private",
        governed=False,
        epsilon=None,
        delta=None,
        plan={"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("non_private"))]},
    )
    record = a_record(request, lifetime=None, second_opinion=None, released={})
    assert record.claim is None
    assert ReleaseRecord.from_bytes(record.to_bytes()) == record
    with pytest.raises(ValidationError, match="governed"):
        a_record(request | {"governed": True})


def test_a_release_that_reads_nothing_private_claims_zero_whatever_was_asked():
    request = a_request(
        mechanism="public_only",
        plan={"blocks": [0], "facts": {}, "invocations": [invocation(uncharged("public_only"))]},
    )
    record = a_record(request, second_opinion=None, released={})
    assert record.claim is not None
    assert (record.claim.epsilon, record.claim.delta) == ("0", "0")
    assert record.events[0].loss == Amount()
