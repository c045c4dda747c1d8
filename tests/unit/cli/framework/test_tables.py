"""One look for all tables; nothing from outside is markup."""

import io

from rich.console import Console

from cli.framework.tables import fact_list, table


def shown(what: object) -> list[str]:
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(what)
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip()]


def test_a_table_shows_text_as_it_is_and_nothing_for_none() -> None:
    lines = shown(table(("name", "note"), [("[bold]x[/bold]", None), (7, "y")], "Title"))
    assert lines[0] == "Title"
    assert "[bold]x[/bold]" in "\n".join(lines)
    assert "None" not in "\n".join(lines)


def test_a_terminal_too_narrow_for_the_words_folds_none_of_them() -> None:
    columns = ("request", "kind", "mechanism", "state", "at (UTC)")
    rows = [
        (7, "synthetic_corpus", "invisible_ink", "published", "2026-11-28T16:39:08"),
        (8, "insights", "urania", None, ""),
    ]
    assert shown(table(columns, rows, "Releases")) == [
        "Releases",
        "request 7",
        "  kind synthetic_corpus, mechanism invisible_ink, state",
        "  published, at (UTC) 2026-11-28T16:39:08",
        "request 8",
        "  kind insights, mechanism urania",
    ]
    assert shown(table((*columns, "a long heading", "withoutspaces"), []))[-1].strip() == "none"


def test_numbers_stand_to_the_right() -> None:
    lines = shown(table(("name", "epsilon"), [("a", "0.5"), ("b", "10")]))
    assert lines[-1].endswith(" 10")
    assert lines[-2].endswith("0.5")


def test_a_column_with_one_word_in_it_stands_to_the_left() -> None:
    lines = shown(table(("name", "epsilon"), [("a", "0.5"), ("b", "none")]))
    assert lines[-2].split() == ["a", "0.5"]
    assert lines[-2].index("0.5") == lines[-1].index("none")


def test_an_empty_table_has_its_headings_and_says_that_it_is_empty() -> None:
    lines = shown(table(("name",), []))
    assert "name" in lines[0]
    assert lines[-1].split() == ["none"]
    assert "none" not in "\n".join(shown(table(("name",), [("a",)])))


def test_facts_are_one_a_line() -> None:
    lines = shown(fact_list({"rho": "0.27", "left": None, "who": "[i]me[/i]"}, title="Price"))
    assert [line.split() for line in lines] == [["Price"], ["rho", "0.27"], ["left", "-"], ["who", "[i]me[/i]"]]


def test_several_things_have_commas_between_them_and_nothing_is_a_dash() -> None:
    assert [line.split() for line in shown(fact_list({"languages": ["en", "de"], "page": None}))] == [
        ["languages", "en,", "de"],
        ["page", "-"],
    ]
