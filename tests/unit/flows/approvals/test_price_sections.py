"""What a price looks like: a judgement first, figures and digests only for who asks."""

import io
from typing import Any

from rich.console import Console

from cli.framework.review_screen import render_sections
from flows.approvals.price_sections import price_sections

PRICE: dict[str, Any] = {
    "dataset": "shop",
    "unit": "customer",
    "epsilon": "4",
    "delta": "0.0000001",
    "rho": "0.5",
    "delta_fail": "0",
    "influence": "The private texts move the next word clearly: clip norm 0.737.",
    "prompt_sha256": "f9" * 32,
    "expected_texts": 3,
    "expected_seconds": 75,
    "facts": {"clip norm C": "16"},
    "prompt": {"description": "one sentence"},
    "public_metadata": {"language": ["en", "de"]},
    "budget": {"rho_cap": "2", "rho_left_after": "1.25", "affordable": True},
    "cost": "It costs 25.0 % of the lifetime budget of shop; 62.5 % is left afterwards. No refunds.",
}


def shown(price: dict[str, Any], *, details: bool = False) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(*render_sections(price_sections(price), details=details))
    return " ".join(console.export_text().split())


def test_what_it_costs_and_promises_comes_first() -> None:
    said = shown(PRICE)
    assert said.startswith("It costs 25.0 % of the lifetime budget of shop; 62.5 % is left afterwards. No refunds.")
    assert "a guess whether a unit (customer) is in the data is right in at most 98.21 % of cases" in said
    assert said.index("It costs") < said.index("Epsilon 4 at delta 1e-7") < said.index("move the next word clearly")
    assert said.index("move the next word clearly") < said.index("privacy unit")


def test_figures_digests_and_parameters_are_details() -> None:
    few, whole = shown(PRICE), shown(PRICE, details=True)
    for detail in ("delta_fail", "prompt_sha256", "clip norm C", "rho_left_after", "en, de"):
        assert detail not in few
        assert detail in whole
    assert "Left out: Public parameters; Declared, public; Lifetime budget of the dataset; Other figures." in few
    assert "Left out" not in whole
    assert "expected time about 1 min 15 s on two cores" in few


def test_a_price_of_nothing_promises_nothing_more() -> None:
    assert "a guess" not in shown(PRICE | {"rho": "0"})


def test_warnings_come_before_everything_and_are_said_once() -> None:
    said = shown(PRICE | {"warnings": ["WEAK PROMISE: delta.", PRICE["influence"]]})
    assert said.index("WEAK PROMISE") < said.index("It costs")
    assert said.count("move the next word clearly") == 1


def test_a_bound_of_nearly_every_case_is_no_hundred_percent() -> None:
    said = shown(PRICE | {"epsilon": "800"})
    assert "is right in nearly every case" in said
    assert "100 %" not in said


def test_each_group_stands_with_the_words_that_the_model_is_told() -> None:
    assert "b7 Kettle - kitchen b8 b8" in shown(PRICE | {"groups": {"b7": "Kettle - kitchen", "b8": "b8"}})
    assert "group" not in shown(PRICE)


def test_the_time_of_units_that_are_not_counted_stands_beside_the_time_of_the_run() -> None:
    assert " ms " not in shown(PRICE)
    said = shown(PRICE | {"expected_seconds_per_unit": "0.0067"})
    assert "about 1 min 15 s on two cores, and 6.7 ms for each customer: no population is declared" in said
