"""How often a guess whether a unit is in the data may be right: every screen of a request gives one figure."""

import re
from decimal import Decimal
from typing import Any

import pytest

from tests.integration.story import Almoner
from tests.integration.test_insights import INSIGHTS
from tests.integration.test_question_histogram import REQUEST as QUESTIONS
from tests.integration.test_question_histogram import approved as question_approved
from tests.integration.test_viewing import page, plain

CONCERNS = ("flows/approvals", "tasks/release")

FIGURE = re.compile(r"in at most ([\d.]+) % of cases")
INK: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-7, "evaluation": ["length"]}
REQUESTS = {
    "question_histogram": QUESTIONS | {"epsilon": 1.0},
    "question_histogram, weak": QUESTIONS | {"epsilon": 8.5},
    "urania": INSIGHTS,
    "invisible_ink": INK,
}


@pytest.mark.parametrize("name", REQUESTS)
def test_price_and_gate_say_one_figure(almoner: Almoner, name: str) -> None:
    question_approved(almoner)
    file = almoner.request_file(**REQUESTS[name])
    price = almoner.ask(f"release request {file} --dry-run --accept-weak-promise")["price"]
    shown = {
        "price": plain(almoner.type(f"release request {file} --accept-weak-promise").out),
        "gate": plain(almoner.type("release show 2").out),
        "page": page(almoner, "/releases/2"),
    }
    found = {place: set(FIGURE.findall(told)) for place, told in shown.items()}
    (figure,) = set().union(*found.values())
    assert all(found.values()), found
    epsilon = Decimal(price["epsilon"])
    assert Decimal(figure) == pytest.approx(100 - 100 / (1 + epsilon.exp()), abs=Decimal("0.011"))
    assert {("WEAK PROMISE" in told) for told in shown.values()} == {"weak" in name}
