"""`almoner docs`: the pages of the installation, one of them, and what it says where there is none."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from cli.commands.operations import docs
from cli.framework.command import print_problem
from models_db.errors import UsageError


def typed(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["docs", *words])
    return done.exit_code, done.stdout + done.stderr


def test_all_pages_are_listed_and_each_can_be_read() -> None:
    code, said = typed("--json")
    listed = {one["page"]: one["title"] for one in json.loads(said)}
    assert code == 0
    assert listed["requests"] == "The request file"
    assert {path.stem for path in docs.CHECKOUT.glob("*.md")} < set(listed)
    assert "guides/first-release" in listed
    assert all(listed.values())


@pytest.mark.parametrize("page", ["requests", "requests.md", "docs/requests.md"])
def test_a_page_is_shown(page: str) -> None:
    code, said = typed(page)
    assert code == 0
    assert "The request file" in said
    assert json.loads(typed(page, "--json")[1])["text"].startswith("# The request file")


def test_pages_that_contain_words() -> None:
    found = {one["page"] for one in json.loads(typed("--find", "almoner Insights Compare", "--json")[1])}
    assert "commands" in found
    assert "gpu" not in found


def test_an_unknown_page_is_named_with_similar_ones() -> None:
    code, said = typed("requets")
    assert code == 2
    assert "Did you mean requests?" in " ".join(said.split())
    assert "lists all pages" in typed("zzzz")[1]


def test_an_installation_prefers_its_own_copy_and_says_where_it_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("INSTALLED", "CHECKOUT"):
        monkeypatch.setattr(docs, place, tmp_path / place)
    code, said = typed()
    assert code == 3
    assert "This installation has no documentation." in said
    for place in ("CHECKOUT", "INSTALLED"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "index.md").write_text(f"# {place}\n")
        assert f"{place}" in typed("index")[1]


def test_an_error_that_names_a_page_says_how_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_problem(UsageError("It is wrong.", "See docs/requests.md or docs/guides/stewards.md."), as_json=False)
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "Read it: `almoner docs requests`",
        "Read it: `almoner docs guides/stewards`",
    ]
    print_problem(UsageError("It is wrong.", "Write another."), as_json=False)
    assert "almoner docs" not in capsys.readouterr().err
