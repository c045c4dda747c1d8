"""What a price looks like."""

import io

from rich.console import Console

from cli.framework.price_table import price_tables

PRICE = {
    "dataset": "shop",
    "expected_seconds": 75,
    "facts": {"clip norm C": "16"},
    "prompt": {"description": "one sentence"},
    "public_metadata": {"language": ["en", "de"]},
    "budget": {"affordable": True},
}


def shown(price: dict) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(*price_tables(price))
    return console.export_text()


def test_each_group_stands_with_the_words_that_the_model_is_told() -> None:
    said = shown(PRICE | {"groups": {"b7": "Kettle - kitchen", "b8": "b8"}})
    rows = [line.split(maxsplit=1) for line in said.splitlines()]
    assert ["b7", "Kettle - kitchen"] in [[cell.strip() for cell in row] for row in rows]


def test_the_time_of_units_that_are_not_counted_stands_beside_the_time_of_the_run() -> None:
    assert "ms" not in shown(PRICE)
    said = shown(PRICE | {"unit": "customer", "expected_seconds_per_unit": "0.0067"})
    assert "about 1 min 15 s on two cores, and 6.7 ms for each customer: no population is declared" in " ".join(
        said.split()
    )


def test_without_groups_nothing_is_said_of_them() -> None:
    said = shown(PRICE)
    assert "group" not in said
    assert "about 1 min 15 s on two cores" in said
    assert "en, de" in said
