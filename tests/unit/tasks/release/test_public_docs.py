"""The promises in docs/ follow the code: figures are recomputed, and every file that is named exists."""

import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from models_db.values.amounts import Amount
from tasks.accounting.zcdp import lifetime_cap, release_amount, spent_epsilon
from tasks.evaluation.registry import METRICS
from tasks.mechanisms.tokens.integer_table import IntegerTableMechanism
from tasks.release.claim import guessing_bounds, implied_epsilon, state_claim
from tasks.release.record import second_opinion
from tasks.systems.invisible_ink import InvisibleInk, InvisibleInkParameters
from tasks.values.plan import PlanInputs

ROOT = Path(__file__).resolve().parents[4]
GUARANTEE = (ROOT / "docs" / "privacy-guarantee.md").read_text()
THREATS = (ROOT / "docs" / "threat-model.md").read_text()
ROWS = [line.strip("| ").split(" | ") for line in THREATS.splitlines() if re.match(r"\| [0-9]+ \|", line)]

PLAN = InvisibleInk().plan(
    PlanInputs(
        release_amount("4.0", "1.0e-7"),
        InvisibleInkParameters(samples=4, references=7, max_new_tokens=48, temperature=Decimal("1.0")),
        blocks=1,
        population=None,
        governed=True,
    )
)


def up(value: Decimal | str, places: int) -> str:
    return str(Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=ROUND_CEILING))


def down(value: str, places: int) -> str:
    return str(Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=ROUND_FLOOR))


def stated() -> dict[str, str]:
    lines = GUARANTEE.partition("| figure |")[2].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1] for row in table if len(row) == 3}


def test_the_figures_of_the_example():
    count, draws = (invocation.event for invocation in PLAN.invocations)
    draw = IntegerTableMechanism.from_event(draws)
    claim = state_claim([count, draws], "4", "1e-7")
    figures = stated()
    assert figures["rho the claim allows"] == down(release_amount("4", "1e-7").rho_text, 9)
    assert figures["noisy count of the units"] == f"rho {up(count.loss.rho_text, 6)}, sigma 30.7"
    assert "sigma 30.7," in PLAN.facts["batches per block"]
    assert figures["clip norm C"] == f"{float(draw.clip_norm):.4f}"
    assert figures["rho of one draw"] == up(draw.loss().rho_text, 6)
    assert figures["rho of the release"] == up(PLAN.loss.rho_text, 9)
    assert figures["epsilon it implies at 1e-7"] == up(implied_epsilon(PLAN.loss, Fraction(1, 10**7)), 4)
    opinion = second_opinion([count, draws], "1e-7")
    assert opinion is not None
    assert figures["dp-accounting's figure"] == up(opinion.epsilon, 4)
    secret = state_claim([count, draws], "4", "1e-7", PLAN.assignment).secret_assignment
    assert secret is not None
    assert figures["epsilon while the assignment is secret"] == up(secret.epsilon, 4)
    assert figures["replace-one"] == f"epsilon {up(claim.replace_one.epsilon, 4)} at 1e-7"


def test_what_an_attacker_may_reach():
    factor, right = guessing_bounds(Decimal(4), Decimal("1e-7"))
    assert stated()["likelihood ratio"] == f"at most {factor:.1f}"
    assert stated()["guessing membership at even odds"] == f"right at most {right} %"
    assert f"At epsilon 1 it is {guessing_bounds(Decimal(1), Decimal('1e-7'))[1]} %" in GUARANTEE


def test_the_lifetime_of_the_example_dataset():
    cap = lifetime_cap("8", "1e-6")
    affordable = cap.amount.rho // PLAN.loss.rho
    assert stated()["the dataset's rho cap"] == down(cap.amount.rho_text, 6)
    assert stated()["such releases in its lifetime"] == str(affordable)
    after = [up(spent_epsilon(Amount(PLAN.loss.rho * n), cap.delta_conv), 4) for n in range(1, affordable + 1)]
    assert f"lifetime epsilon after each: {', '.join(after)} |" in GUARANTEE


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_every_metric_is_listed_under_its_exposure(metric):
    words = {"distinct": "distinct-n", "verbatim_overlap": "overlap with the corpus"}
    words["perplexity_gap"] = "perplexity gap"
    words |= {"mauve": "MAUVE", "frechet": "Frechet", "bert_score": "BERTScore", "self_similarity": "self-similarity"}
    words |= {"precision_recall": "precision and recall", "train_on_synthetic": "train on synthetic"}
    words |= {"rouge": "ROUGE", "jaccard": "Jaccard", "length_gap": "length gap", "in_context": "in-context learning"}
    words |= {"judge_preference": "judge's preference"}
    (line,) = [line for line in GUARANTEE.splitlines() if line.startswith(f"| `{metric.exposure}`:")]
    assert words.get(metric.name, metric.name) in line


def test_the_threats_are_numbered_and_each_has_a_control_and_a_state():
    assert [int(row[0]) for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) >= 44
    for row in ROWS:
        assert len(row) == 5, row[0]
        assert row[4] in ("tested", "built", "part", "planned")
        assert all(row)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_file_a_threat_names_exists(row):
    named = re.findall(r"`([\w/.]+\.py)`", row[3])
    assert named
    for path in named:
        assert (ROOT / path).is_file(), path
    if row[4] == "tested":
        assert any(path.startswith("tests/") for path in named)
    if row[4] in ("part", "planned"):
        assert "planned" in row[2] or "to follow" in row[2]


def test_every_file_the_guarantee_names_exists():
    named = re.findall(r"`((?:tasks|models_db|flows|cli)/[\w/.]+\.py)`", GUARANTEE)
    assert named
    for path in named:
        assert (ROOT / path).is_file(), path
    for decision in re.findall(r"docs/decisions/([0-9]{4})", GUARANTEE):
        assert list((ROOT / "docs" / "decisions").glob(f"{decision}-*.md"))
