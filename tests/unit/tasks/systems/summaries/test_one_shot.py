"""One-shot summaries: what they cost, by hand, what a request says of the adapter, and when private text is read."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from pydantic import ValidationError

from models_db.home import ProjectHome
from models_db.values.canonical_json import encode_canonical
from tasks.adapters import store as adapter_store
from tasks.adapters.adapter import Adapter, tensors_of
from tasks.adapters.metadata import KnownAdapter
from tasks.adapters.store import AdapterDamaged, AdapterUnknown
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.engine import hidden_states
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.pricing.quote import Quote, quote, written_request
from tasks.release.approved_request import ApprovedRequest
from tasks.systems.summaries import (
    OneShotParameters,
    OneShotSummary,
    TokenLevelParameters,
    TokenLevelSummary,
    UsedAdapter,
)
from tasks.values.plan import Plan
from tasks.values.results import Generated
from tests.refusals import refusal
from tests.unit.tasks.pricing.test_quote import MODEL, facts, priced
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.summaries.planted import WORDING, adapter
from tests.unit.tasks.systems.summaries.summing import (
    FORM,
    GIVEN,
    GROUPS,
    context,
    kept,
    notes,
    one_thread,
)
from tests.unit.tasks.systems.workshop import NOTES, Step, Workshop, refusing, store

__all__ = ["one_thread"]  # a fixture
SYSTEM = OneShotSummary()
REQUEST: dict[str, Any] = {
    "kind": "summaries",
    "mechanism": "one_shot_summary",
    "prompt": {"description": "a short summary"},
}
TOKENS: dict[str, Any] = {"groups": ["lamp", "sofa"], "references": 4, "max_new_tokens": 12, "temperature": 1}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALMONER_MODELS", str(tmp_path / "models"))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return kept(tmp_path_factory.mktemp("reviews"), notes())


def saved(made: Adapter) -> KnownAdapter:
    return adapter_store.save_adapter(made.meta, tensors_of(made.space, made.decoder), {})


def wanted(made: Adapter | None = None, **changes: Any) -> OneShotParameters:
    known = saved(made or adapter())
    used = UsedAdapter(sha256=known.digest, meta=known.meta)
    return OneShotParameters.model_validate(GIVEN | {"adapter": used, "clip_norm": "2.5", "instalment": 1} | changes)


def plan_of(parameters: OneShotParameters, blocks: int = 1) -> Plan:
    return SYSTEM.plan(ask(parameters, blocks=blocks))


def make(workshop: Workshop, parameters: Any = None, *, work: RunContext | None = None, **more: Any) -> Generated:
    parameters = parameters or wanted()
    return SYSTEM.generate(plan_of(parameters, workshop.blocks), parameters, work or context(workshop, **more))


def one_shot_request(**changes: Any) -> Quote:
    return priced(parameters=TOKENS | {"adapter": "planted"} | changes.pop("parameters", {}), **REQUEST | changes)


# --- what it costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shots", [1, 3])
@pytest.mark.parametrize("bound", [1, 2])
@pytest.mark.parametrize("centres", [1, 4])
def test_the_charge_is_the_hand_calculation(shots: int, bound: int, centres: int) -> None:
    """rho = m k C^2 / (2 sigma^2), mu = sqrt(m k) C / sigma; neither tokens, centres nor a form cost anything."""
    own = {"shots": shots, "groups_per_unit": bound, "instalment": shots}
    plan = plan_of(wanted(adapter(centres=centres), **own))
    (invocation,) = plan.invocations
    mean = NoisyMean.from_event(invocation.event)
    assert invocation.event.count == shots * bound
    with mpmath.workdps(60):
        sigma = mpmath.mpf(mean.sigma_steps.numerator) / mean.sigma_steps.denominator
        each = mpmath.ceil(mpmath.mpf(mean.clip_steps) ** 2 / (2 * sigma**2) * 10**12)
        assert plan.loss.rho == int(each) * shots * bound <= AMOUNT.rho
        mu = mpmath.sqrt(shots * bound) * mean.clip_steps / sigma
        assert float(mu**2 / 2) == pytest.approx(plan.loss.rho / 10**12, rel=1e-6)
    assert float(plan.facts["mu of Gaussian differential privacy"]) == pytest.approx(float(mu), abs=2e-6)
    noise, clip = (Fraction(plan.facts[name]) for name in ("noise on each entry of a mean", "clip norm C"))
    assert shots * bound * float(clip / 4) ** 2 / (2 * float(noise) ** 2) == pytest.approx(
        plan.loss.rho / 1e12, rel=1e-3
    )
    assert [part.rho for part in invocation.instalments] == [plan.loss.rho]
    longer = plan_of(wanted(adapter(centres=centres), max_new_tokens=200, form=FORM, **own))
    assert (longer.loss, longer.invocations) == (plan.loss, plan.invocations)


@pytest.mark.parametrize(("size", "parts"), [(1, [1, 1, 1, 1, 1]), (2, [2, 2, 1]), (5, [5]), (16, [5])])
@pytest.mark.parametrize("bound", [1, 3])
def test_instalments_add_up_to_the_plan(size: int, parts: list[int], bound: int) -> None:
    plan = plan_of(wanted(shots=5, instalment=size, groups_per_unit=bound))
    (invocation,) = plan.invocations
    each = invocation.event.loss.rho // invocation.event.count
    assert [part.rho for part in invocation.instalments] == [each * bound * part for part in parts]
    assert plan.loss == invocation.event.loss


def test_a_token_level_summary_of_one_token_costs_the_same() -> None:
    other = TokenLevelParameters.model_validate(GIVEN | {"max_new_tokens": 1, "clip_norm": "2.5"})
    assert TokenLevelSummary().plan(ask(other)).invocations[0].event == plan_of(wanted()).invocations[0].event


@pytest.mark.parametrize("own", [{"shots": 0}, {"shots": 1001}, {"clip_norm": 0}, {"adapter": "name"}, {"top_k": -1}])
def test_parameters_out_of_range_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        wanted(**own)


# --- the request -------------------------------------------------------------------------------------------------


def test_a_name_becomes_all_that_is_known_of_the_adapter() -> None:
    known = saved(adapter())
    body: Any = one_shot_request().body
    assert body["parameters"]["adapter"]["sha256"] == known.digest
    assert body["parameters"]["adapter"]["meta"]["training"]["sha256"] == "a" * 64
    assert (body["parameters"]["clip_norm"], body["parameters"]["max_reference_tokens"]) == ("2.5", 40)
    assert (body["prompt"]["system"], body["prompt"]["private"]) == (WORDING.system, WORDING.private)
    assert [len(each["instalments"]) for each in body["plan"]["invocations"]] == [1]
    assert body["plan"]["facts"]["adapter"] == f"planted, SHA-256 {known.digest}"
    many: Any = one_shot_request(parameters={"shots": 4, "clip_norm": 9}).body
    assert [len(each["instalments"]) for each in many["plan"]["invocations"]] == [1]
    assert (many["parameters"]["clip_norm"], many["parameters"]["instalment"]) == ("9", 4)


@pytest.mark.parametrize("named", ["planted", "digest", "start", "stored"])
def test_an_adapter_may_be_named_in_any_way_and_the_body_is_the_same(named: str) -> None:
    known = saved(adapter())
    first: Any = one_shot_request().body
    names = {
        "planted": "planted", "digest": known.digest, "start": known.digest[:8],
        "stored": first["parameters"]["adapter"],
    }  # fmt: skip
    assert encode_canonical(one_shot_request(parameters={"adapter": names[named]}).body) == encode_canonical(first)


def test_the_stored_request_is_verified_without_the_adapter(tmp_path: Path) -> None:
    saved(adapter(centres=2, tokens=5, words=2))
    body: Any = json.loads(
        encode_canonical(one_shot_request(parameters={"shots": 2, "groups_per_unit": 2, "form": FORM}).body)
    )
    again = quote(written_request(body), facts(), MODEL, "p" * 64, "c" * 64)
    assert encode_canonical(again.body) == encode_canonical(body)
    shutil.rmtree(tmp_path / "models")
    with pytest.raises(AdapterUnknown):
        quote(written_request(body), facts(), MODEL, "p" * 64, "c" * 64)
    body |= {"nonce": "n" * 32, "policy": "a" * 64, "code": "c" * 64}
    ApprovedRequest.model_validate(body).require_planned()
    for name, value in (("clip_norm", "2"), ("shots", 3), ("groups_per_unit", 1), ("references", 5)):
        forged = body | {"parameters": body["parameters"] | {name: value}}
        with refusal("PlanMismatch"):
            ApprovedRequest.model_validate(forged).require_planned()


@pytest.mark.parametrize("which", ["description", "system", "private"])
def test_another_wording_than_the_adapters_is_refused(which: str) -> None:
    saved(adapter())
    prompt = {"description": "a short summary", which: "Other words for {label}: {reference}"}
    with refusal("AdapterPromptDiffers") as refused:
        one_shot_request(prompt=prompt)
    assert refused.value.facts["field"] == which
    same = {"description": "a short summary", "system": WORDING.system, "private": WORDING.private}
    assert one_shot_request(prompt=same).body == one_shot_request().body


def test_an_adapter_that_cannot_be_told_of_groups_is_named() -> None:
    made = adapter()
    words = WORDING.model_copy(update={"private": "{reference}\n\nWrite {description}."})
    saved(replace(made, meta=made.meta.model_copy(update={"wording": words})))
    with refusal("AdapterUnlabelled"):
        one_shot_request()


def test_unfit_adapters_are_named_when_a_request_is_priced() -> None:
    with pytest.raises(AdapterUnknown):
        one_shot_request()
    known = saved(adapter())
    with pytest.raises(AdapterUnknown):
        one_shot_request(parameters={"adapter": "planted2"})
    with refusal("AdapterUnfit", match="not for 'other'"):
        one_shot_request(model="other")
    for wrong in (3, None, ["planted"], {"name": "planted"}):
        with refusal("FileInvalid"):
            one_shot_request(parameters={"adapter": wrong})
    (adapter_store.adapter_folder(known.digest) / adapter_store.TENSORS).write_bytes(b"x")
    with pytest.raises(AdapterDamaged):
        one_shot_request(parameters={"adapter": known.digest})


def test_pricing_names_what_groups_lack() -> None:
    saved(adapter())
    with refusal("GroupsNeeded"):
        one_shot_request(parameters={"groups": []})


# --- when it reads -----------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every time the model reads documents goes onto this list (put it into a Workshop)."""
    seen: list[Step] = []
    read = hidden_states._read

    def watched(*given: Any) -> Any:
        seen.append(("read",))
        return read(*given)

    monkeypatch.setattr(hidden_states, "_read", watched)
    return seen


@pytest.mark.parametrize("shots", [1, 3])
def test_all_is_armed_before_the_first_private_byte_is_read(reviews: Corpus, reads: list[Step], shots: int) -> None:
    workshop = Workshop(reviews, seen=reads)
    made = make(workshop, wanted(shots=shots))
    kinds = [step if step[0] == "arm" else step[0] for step in workshop.seen]
    assert kinds[: shots + 2] == [*(("arm", 0, number) for number in range(shots)), "batches", "read"]
    assert set(kinds[shots + 2 :]) <= {"read"}
    assert [(text.label, text.tokens) for text in made.texts] == [(group, 12) for group in GROUPS]
    assert made.released == {}


@pytest.mark.parametrize("refused", [0, 2])
def test_a_refused_instalment_keeps_everything_unread(reviews: Corpus, reads: list[Step], refused: int) -> None:
    workshop = Workshop(reviews, seen=reads)
    with pytest.raises(PermissionError):
        make(workshop, wanted(shots=3), arm=refusing((0, refused)))
    assert workshop.seen == [("arm", 0, number) for number in range(refused + 1)]


def changed_on_disk(parameters: OneShotParameters) -> OneShotParameters:
    path = adapter_store.adapter_folder(parameters.adapter.sha256) / adapter_store.TENSORS
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    return parameters


def told_otherwise(parameters: OneShotParameters) -> OneShotParameters:
    meta = parameters.adapter.meta.model_copy(update={"seed": 9})
    return parameters.model_copy(update={"adapter": parameters.adapter.model_copy(update={"meta": meta})})


def of_another(**fields: Any) -> OneShotParameters:
    made = adapter()
    return wanted(replace(made, meta=made.meta.model_copy(update=fields)))


UNFIT: dict[str, Any] = {
    "another width": (lambda: wanted(adapter(width=16)), "AdapterUnfit"),
    "other weights": (lambda: of_another(model_digest="e" * 64), "AdapterUnfit"),
    "another model": (lambda: of_another(model="other"), "AdapterUnfit"),
    "damaged": (lambda: changed_on_disk(wanted()), "AdapterDamaged"),
    "described otherwise": (lambda: told_otherwise(wanted()), "AdapterChanged"),
    "other shapes than it says": (lambda: of_another(dimensions=5), "AdapterDamaged"),
    "too long": (lambda: wanted(max_new_tokens=2000), "ContextTooLong"),
    "too long to read": (lambda: wanted(max_reference_tokens=2000), "ContextTooLong"),
    "a form that does not fit": (lambda: wanted(form=FORM, max_new_tokens=12), "FormTooLong"),
}


@pytest.mark.parametrize("why", UNFIT)
def test_what_cannot_be_used_is_named_before_anything_is_armed(reviews: Corpus, reads: list[Step], why: str) -> None:
    parameters, error = UNFIT[why]
    workshop = Workshop(reviews, seen=reads)
    with refusal(error):
        make(workshop, parameters(), stops=True)
    assert workshop.seen == []


def test_an_adapter_that_is_gone_is_named_before_anything_is_armed(reviews: Corpus, tmp_path: Path) -> None:
    workshop, parameters = Workshop(reviews), wanted()
    shutil.rmtree(tmp_path / "models")
    with pytest.raises(AdapterUnknown):
        make(workshop, parameters)
    assert workshop.seen == []


def test_a_version_without_groups_is_refused_before_anything_is_armed(tmp_path: Path) -> None:
    workshop = Workshop(store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", NOTES))
    with refusal("LabelsNotKept"):
        make(workshop)
    assert workshop.seen == []
