"""docs/summaries.md: its example can be asked for, and its figures are what the code computes."""

import re
from decimal import Decimal
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import yaml
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

from models_db.values.requests import PublicMetadata, ReleaseRequest, parse_model
from tasks.accounting.zcdp import release_amount
from tasks.mechanisms.vectors.noisy_mean import NoisyMean
from tasks.planning.layout import with_catalogue
from tasks.release.claim import state_claim
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import Plan, PlanInputs

PAGE = (Path(__file__).resolve().parents[5] / "docs" / "summaries.md").read_text()
BLOCKS = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
CATALOGUE, REQUEST = (next(block for block in BLOCKS if name in block) for name in ("licence", "kind"))
FIGURES = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("| figure | how | value |")[2].partition("\n\n")[0].splitlines()[2:]
]


def example() -> tuple[ReleaseRequest, Plan]:
    request = parse_model(ReleaseRequest, REQUEST, "The example")
    groups = parse_model(PublicMetadata, CATALOGUE, "The catalogue").groups
    system = SYSTEMS[request.mechanism]
    request = system.resolve_names(request)
    wanted = parse_model(system.parameters, with_catalogue(request.parameters, groups), "Its parameters")
    assert request.epsilon is not None
    assert request.delta is not None
    amount = release_amount(request.epsilon, request.delta)
    return request, system.plan(PlanInputs(amount, wanted, 1, None, governed=True))


def figure(beginning: str) -> str:
    (found,) = [row[2] for row in FIGURES if row[0].startswith(beginning) and (beginning != "C" or row[0] == "C")]
    return found


def test_the_worked_example_is_what_the_code_computes() -> None:
    request, plan = example()
    (planned,) = plan.invocations
    mean, count = NoisyMean.from_event(planned.event), planned.event.count
    parameters = request.parameters
    assert count == int(figure("sums that may read one unit"))
    assert count == parameters["groups_per_unit"] * parameters["max_new_tokens"]
    assert figure("rho per mean") == plan.facts["rho per mean"] == mean.loss().rho_text
    assert figure("C") == plan.facts["clip norm C"]
    assert figure("noise on each entry") == plan.facts["noise on each entry of a mean"]
    assert figure("rho, the charge") == plan.loss.rho_text
    assert figure("mu") == plan.facts["mu of Gaussian differential privacy"]
    assert float(figure("sigma")) == pytest.approx(float(mean.sigma), abs=1e-4)
    assert request.epsilon is not None
    assert request.delta is not None
    allowed = release_amount(request.epsilon, request.delta)
    assert allowed.rho_text.startswith(figure("rho that epsilon 8"))
    claim = state_claim([planned.event], str(request.epsilon), str(request.delta))
    assert figure("replace-one") == f"epsilon {Decimal(claim.replace_one.epsilon).quantize(Decimal('0.0001'))}"


def test_the_worked_example_is_what_a_hand_computes() -> None:
    """From the formulas of the page alone: zCDP and GDP."""
    noise, draws, n = 0.3, 40, 8
    rho = float(figure("rho that epsilon 8"))
    clip = float(figure("C"))
    assert clip == pytest.approx(noise * n * sqrt(2 * rho / draws), rel=2e-3)
    sigma = clip / sqrt(2 * rho / draws)
    assert sigma == pytest.approx(float(figure("sigma")), abs=1e-4)
    assert sigma / n == pytest.approx(float(figure("noise on each entry")), abs=1e-5)
    mu = sqrt(draws) * clip / sigma
    assert mu == pytest.approx(float(figure("mu")), abs=1e-6)
    assert mu**2 / 2 == pytest.approx(rho, abs=1e-6)
    assert gaussian_epsilon(mu, 1e-6) == pytest.approx(float(figure("epsilon of that mu")), abs=1e-4)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """dp-accounting's exact Gaussian, which solves the same equation."""
    loss = GaussianPrivacyLoss(standard_deviation=1 / mu)
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if loss.get_delta_for_epsilon(middle) > delta else (low, middle)
    return high


def test_the_rule_of_thumb_has_the_figures_of_the_price() -> None:
    _, plan = example()
    noise, clip = (float(plan.facts[name]) for name in ("noise on each entry of a mean", "clip norm C"))
    assert "leave a `clip norm C` of 0.55, where" in PAGE
    assert clip == 0.55
    assert "would be 8.7" in PAGE
    assert round(noise / clip * 16, 1) == 8.7
    one_shot = 14.2 * sqrt(2 / (2 * float(plan.loss.rho_text))) / 8
    assert "1.7 * sqrt(16) = 7 against 14" in PAGE
    assert (round(one_shot, 1), round(one_shot * 4)) == (1.7, 7)


def rows_of(heading: str) -> dict[str, str]:
    part = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `")]
    return {name: row[1].strip().strip("`") for row in cells for name in re.findall(r"`(\w+)`", row[0])}


FOLLOWS = {"samples", "labels", "batches"}


@pytest.mark.parametrize("name", ["token_level_summary", "one_shot_summary"])
def test_every_parameter_is_documented_with_its_default(name: str) -> None:
    fields: dict[str, Any] = dict(SYSTEMS[name].parameters.model_fields)
    documented = rows_of("Parameters of both") | rows_of(f"Parameters of `{name}`")
    records = {field for field in fields if "schema" in field} | {"constrained"}
    assert set(documented) | FOLLOWS | records == set(fields)
    for field, default in documented.items():
        if fields[field].default not in (None, ()) and not fields[field].is_required() and ", " not in default:
            assert default == str(fields[field].default), field
