"""Token-level summaries: what they cost, by hand, and what one unit can move in any of their sums."""

import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
from pydantic import ValidationError

from models_db.home import ProjectHome
from models_db.values.amounts import Amount
from models_db.values.requests import ReleaseRequest
from tasks.accounting.zcdp import replace_one
from tasks.corpus.store import Corpus
from tasks.decoding import loop
from tasks.inference.engine.session import Session
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.noisy_count import SIGMA_GRID
from tasks.mechanisms.registry import MECHANISMS
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.systems.summaries import CLIP_NORMS, NOISE, TokenLevelParameters, TokenLevelSummary
from tasks.systems.summaries.token_level_rule import TokenLevelRule
from tasks.values.plan import Plan
from tests.refusals import refusal
from tests.unit.tasks.systems.asking import AMOUNT, ask
from tests.unit.tasks.systems.summaries.summing import FORM, GIVEN, GROUPS, Diary, context, kept, notes, one_thread
from tests.unit.tasks.systems.workshop import NOTES, Step, Workshop, refusing, store

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/systems/summaries",)

__all__ = ["one_thread"]  # a fixture
SYSTEM = TokenLevelSummary()
FORMED = {"form": FORM, "slot_tokens": 3, "max_new_tokens": 40}


def wanted(**changes: Any) -> TokenLevelParameters:
    return TokenLevelParameters.model_validate(GIVEN | changes)


def plan_of(parameters: TokenLevelParameters, amount: Amount = AMOUNT, blocks: int = 1) -> Plan:
    return SYSTEM.plan(ask(parameters, amount, blocks=blocks))


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return kept(tmp_path_factory.mktemp("reviews"), notes())


def make(workshop: Workshop, parameters: Any = None, *, work: Any = None, **more: Any) -> Any:
    parameters = parameters or wanted()
    return SYSTEM.generate(plan_of(parameters, blocks=workshop.blocks), parameters, work or context(workshop, **more))


# --- what it costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 4])
@pytest.mark.parametrize(("own", "draws"), [({}, 12), (FORMED, 6), ({"space": "logits"}, 12)])
def test_the_charge_is_the_hand_calculation(bound: int, own: dict[str, Any], draws: int) -> None:
    """rho = m T C^2 / (2 sigma^2), mu = sqrt(m T) C / sigma: in steps, in the vectors' unit, and on the mean."""
    parameters = wanted(groups_per_unit=bound, clip_norm="3.7", **own)
    plan = plan_of(parameters)
    (invocation,) = plan.invocations
    mean = NoisyMean.from_event(invocation.event)
    assert invocation.event.count == bound * draws
    assert MECHANISMS["noisy_mean"](invocation.event) == invocation.event
    with mpmath.workdps(60):
        steps, sigma = (
            mpmath.mpf(mean.clip_steps),
            mpmath.mpf(mean.sigma_steps.numerator) / mean.sigma_steps.denominator,
        )
        each = mpmath.ceil(steps**2 / (2 * sigma**2) * 10**12)
        assert plan.loss.rho == int(each) * bound * draws <= AMOUNT.rho
        # No less noise would be affordable.
        finer = sigma - mpmath.mpf(1) / SIGMA_GRID
        assert int(mpmath.ceil(steps**2 / (2 * finer**2) * 10**12)) * bound * draws > AMOUNT.rho
        mu = mpmath.sqrt(bound * draws) * steps / sigma
        assert mean.gdp_mu(bound * draws) == pytest.approx(float(mu), rel=1e-12)
        assert float(mu**2 / 2) == pytest.approx(plan.loss.rho / 10**12, rel=1e-6)
    assert plan.loss.delta == 0
    assert replace_one(plan.loss).rho == 4 * plan.loss.rho
    # What people are shown is the same, rounded up.
    shown_noise, shown_clip = (Fraction(plan.facts[name]) for name in ("noise on each entry of a mean", "clip norm C"))
    assert shown_noise == pytest.approx(float(mean.sigma / 4), abs=1e-6)
    assert shown_clip == pytest.approx(3.7, abs=2e-6)
    on_the_mean = bound * draws * float(shown_clip / 4) ** 2 / (2 * float(shown_noise) ** 2)
    assert on_the_mean == pytest.approx(plan.loss.rho / 10**12, rel=1e-3)
    assert float(plan.facts["mu of Gaussian differential privacy"]) == pytest.approx(float(mu), abs=2e-6)
    assert plan.facts["draws per text T"] == str(draws)
    assert plan.facts["groups per unit m"] == str(bound)


def test_m_groups_cost_m_times_as_much_noise_variance() -> None:
    sigmas = [
        float(NoisyMean.from_event(plan_of(wanted(groups_per_unit=m)).invocations[0].event).sigma) for m in (1, 4)
    ]
    assert sigmas[1] / sigmas[0] == pytest.approx(2, rel=1e-5)


def test_neither_the_number_of_rows_nor_of_groups_changes_the_noise_on_a_sum() -> None:
    events = [
        plan_of(wanted(**changes)).invocations[0].event
        for changes in ({}, {"references": 999}, {"groups": ["a"]}, {"space": "logits"}, {"top_k": 0})
    ]
    assert all(event == events[0] for event in events)


@pytest.mark.parametrize(("own", "parts"), [({}, [4, 4, 4]), ({"instalment": 5}, [5, 5, 2]), (FORMED, [4, 2])])
@pytest.mark.parametrize("bound", [1, 3])
def test_instalments_add_up_to_the_plan(own: dict[str, Any], parts: list[int], bound: int) -> None:
    plan = plan_of(wanted(groups_per_unit=bound, **own))
    (invocation,) = plan.invocations
    each = invocation.event.loss.rho // invocation.event.count
    assert [part.rho for part in invocation.instalments] == [each * bound * part for part in parts]
    assert sum((part.rho for part in invocation.instalments), 0) == invocation.event.loss.rho == plan.loss.rho


def test_the_clip_norm_is_the_centres_own_where_a_request_says_nothing() -> None:
    for centre, norm in CLIP_NORMS.items():
        mean = NoisyMean.from_event(plan_of(wanted(centre=centre)).invocations[0].event)
        assert norm * Decimal("0.999999") < Decimal(float(mean.clip_norm)) <= norm


def test_a_stored_request_says_its_clip_norm_so_another_default_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ReleaseRequest.model_validate({
        "dataset": "d", "kind": "summaries", "mechanism": "token_level_summary", "model": "tiny",
        "prompt": {"description": "x"}, "parameters": {"centre": "none"},
    })  # fmt: skip
    written = TokenLevelSummary().resolve_names(asked)
    assert written.parameters == {"centre": "none", "clip_norm": CLIP_NORMS["none"]}
    differences = TokenLevelSummary().resolve_names(asked.model_copy(update={"parameters": {}}))
    assert differences.parameters == {"clip_norm": CLIP_NORMS["public"], "noise": NOISE}
    of_logits = TokenLevelSummary().resolve_names(asked.model_copy(update={"parameters": {"space": "logits"}}))
    assert of_logits.parameters == {"space": "logits", "clip_norm": CLIP_NORMS["public"]}
    less = TokenLevelSummary().resolve_names(asked.model_copy(update={"parameters": {"noise": "0.1"}}))
    assert less.parameters == {"clip_norm": CLIP_NORMS["public"], "noise": "0.1"}
    monkeypatch.setitem(CLIP_NORMS, "none", Decimal(5))
    assert TokenLevelSummary().resolve_names(written) == written
    for own in ({"clip_norm": "3"}, {"centre": "nowhere"}):
        other = asked.model_copy(update={"parameters": own})
        assert TokenLevelSummary().resolve_names(other) == other


@pytest.mark.parametrize("noise", ["0.001", "0.3", "5"])
@pytest.mark.parametrize("bound", [1, 2])
def test_the_clip_norm_is_brought_down_until_the_noise_is_what_is_borne(noise: str, bound: int) -> None:
    """At the same price: the ratio of noise and clip norm is the budget's, whatever their size."""
    whole, less = (plan_of(wanted(groups_per_unit=bound, **own)) for own in ({}, {"noise": noise}))
    before, after = (NoisyMean.from_event(plan.invocations[0].event) for plan in (whole, less))
    assert less.loss.rho == pytest.approx(whole.loss.rho, rel=1e-4)
    n = GIVEN["references"]
    if before.sigma / n <= Fraction(noise):
        assert after == before
    else:
        assert float(noise) * 0.99 <= float(after.sigma / n) <= float(noise) * 1.0001
        assert after.clip_norm < before.clip_norm


@pytest.mark.parametrize(
    ("own", "amount", "error"),
    [
        ({}, Amount(1), "NoiseInvalid"),
        ({"clip_norm": "1e-40"}, AMOUNT, "MeanInvalid"),
        ({"temperature": "1e-9"}, AMOUNT, "TokenDrawInvalid"),
    ],
)
def test_what_cannot_be_bought_is_named(own: dict[str, Any], amount: Amount, error: str) -> None:
    with refusal(error):
        plan_of(wanted(**own), amount)


@pytest.mark.parametrize(
    "own",
    [{"space": "words"}, {"centre": "group"}, {"clip_norm": 0}, {"clip_norm": -1}, {"clip_norm": "1e10"}, {"top_k": -1},
     {"references": 0}, {"seed": 3}, {"slot_tokens": 65, "form": FORM}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(own: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        wanted(**own)


def test_pricing_loads_no_torch() -> None:
    code = """
import sys
from models_db.values.amounts import Amount
from tasks.values.plan import PlanInputs
from tasks.systems.registry import system_for
system = system_for('token_level_summary', 'summaries')
wanted = system.parameters.model_validate(
    {'groups': ['a'], 'references': 4, 'max_new_tokens': 9, 'temperature': 1, 'form': 'It is {x}.', 'slot_tokens': 2})
assert system.plan(PlanInputs(Amount(10**11), wanted, 1, None, True)).loss.rho > 0
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- when it reads -----------------------------------------------------------------------------------------------


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Every time private rows are looked at goes onto this list (put it into a Workshop)."""
    seen: list[Step] = []
    for name in ("private_hidden", "private_logits"):
        ask_rows = getattr(Session, name)

        def watched(self: Session, *given: Any, of: Any = ask_rows) -> Any:
            seen.append(("read",))
            return of(self, *given)

        monkeypatch.setattr(Session, name, watched)
    return seen


@pytest.mark.parametrize("space", ["hidden", "logits"])
def test_every_instalment_is_armed_before_rows_are_read_for_it(reviews: Corpus, reads: list[Step], space: str) -> None:
    workshop = Workshop(reviews, seen=reads)
    made = make(workshop, wanted(space=space))
    kinds = [step if step[0] == "arm" else step[0] for step in workshop.seen]
    assert kinds == [
        ("arm", 0, 0), "batches", *["read"] * 4, ("arm", 0, 1), *["read"] * 4, ("arm", 0, 2), *["read"] * 4,
    ]  # fmt: skip
    assert [text.label for text in made.texts] == list(GROUPS)
    assert made.released == {"batches_per_block": "1"}


@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize(("own", "draws"), [({}, 12), (FORMED, 6)])
def test_a_text_gets_no_more_draws_than_are_charged_for_one_group(
    reviews: Corpus, monkeypatch: pytest.MonkeyPatch, bound: int, own: dict[str, Any], draws: int
) -> None:
    """The event has m times as many; none of a text's own may be taken from another group's."""
    meters: list[tuple[int, int]] = []

    class Meter(loop.DrawMeter):
        def __init__(self, size: int, most: int, *rest: Any, **more: Any) -> None:
            meters.append((size, most))
            super().__init__(size, most, *rest, **more)

    monkeypatch.setattr(loop, "DrawMeter", Meter)
    make(Workshop(reviews), wanted(groups_per_unit=bound, **own), stops=True)
    assert meters == [(4, draws)]


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_refused_instalment_keeps_what_it_pays_for_unread(reviews: Corpus, reads: list[Step], refused: int) -> None:
    workshop = Workshop(reviews, seen=reads)
    with pytest.raises(PermissionError):
        make(workshop, arm=refusing((0, refused)))
    assert workshop.seen[-1] == ("arm", 0, refused)
    assert workshop.seen.count(("read",)) == 4 * refused
    assert (("batches", 1, tuple((0, g, 0) for g in range(4))) in workshop.seen) is bool(refused)


@pytest.mark.parametrize(
    ("own", "error"),
    [({"max_new_tokens": 2000}, "ContextTooLong"), (FORMED | {"max_new_tokens": 20}, "FormTooLong")],
)
def test_what_does_not_fit_is_refused_before_anything_is_armed(
    reviews: Corpus, own: dict[str, Any], error: str
) -> None:
    workshop = Workshop(reviews)
    with refusal(error):
        make(workshop, wanted(**own), stops=True)
    assert workshop.seen == []


def test_a_version_without_groups_is_refused_before_anything_is_armed(tmp_path: Path) -> None:
    workshop = Workshop(store(ProjectHome(tmp_path / "home"), tmp_path / "notes.jsonl", NOTES))
    with refusal("LabelsNotKept"):
        make(workshop)
    assert workshop.seen == []


# --- forms -------------------------------------------------------------------------------------------------------


def test_a_forced_token_costs_no_draw(reviews: Corpus, reads: list[Step]) -> None:
    """Two slots of at most three tokens: six choices at most, so two instalments of four; not ten for forty tokens."""
    workshop = Workshop(reviews, seen=reads)
    parameters = wanted(**FORMED)
    made = make(workshop, parameters, rng=OS_RANDOM, stops=True)
    assert [step for step in workshop.seen if step[0] == "arm"] in ([("arm", 0, 0)], [("arm", 0, 0), ("arm", 0, 1)])
    assert workshop.seen.count(("read",)) <= 4 * 6
    shape = re.compile(r"It is ([^\[\]{}<>\n]+)\. Some say ([^\[\]{}<>\n]+)!")
    for text in made.texts:
        assert text.complete
        assert shape.fullmatch(text.text), text.text
        assert text.tokens > 6


@pytest.mark.slow_except("1-2", "2-64")
@pytest.mark.parametrize(("slot_tokens", "size"), [(1, 1), (1, 2), (3, 1), (3, 4), (2, 64)])
def test_as_few_instalments_are_armed_as_there_are_choices(reviews: Corpus, slot_tokens: int, size: int) -> None:
    workshop, diary = Workshop(reviews), Diary()
    parameters = wanted(**FORMED | {"slot_tokens": slot_tokens, "instalment": size})
    draws: Counter[int] = Counter()
    with diary.watching(), pytest.MonkeyPatch.context() as patch:
        _counting(patch, draws)
        make(workshop, parameters, stops=True)
    armed = [step for step in workshop.seen if step[0] == "arm"]
    assert set(draws) == set(range(4))
    assert max(draws.values()) <= 2 * slot_tokens
    assert armed == [("arm", 0, number) for number in range(-(-max(draws.values()) // size))]
    assert len(diary.sums) <= sum(draws.values())
    assert sum(len(each) for each in diary.sums) == sum(draws.values())  # no noise is drawn where nothing is chosen


def _counting(patch: pytest.MonkeyPatch, draws: Counter[int]) -> None:
    honest = TokenLevelRule.next_tokens

    def next_tokens(rule: Any, step: Any) -> list[int]:
        draws.update(step.numbers)
        assert all(position == draws[number] - 1 for number, position in zip(step.numbers, step.positions, strict=True))
        return honest(rule, step)

    patch.setattr(TokenLevelRule, "next_tokens", next_tokens)
