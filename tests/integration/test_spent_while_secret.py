"""What is spent while assignments are secret, on every surface."""

from pathlib import Path

import pytest

import almoner as almoner_package
from flows.governance.exposure import SIZES_FIXED
from tests.integration.story import Almoner
from tests.integration.test_viewing import page, plain, words

pytestmark = pytest.mark.contract

DOCS = Path(__file__).resolve().parents[2] / "docs"
SMALL = {"epsilon": 1.0, "evaluation": ["length"]}


def test_what_is_spent_while_secret_stands_nowhere_without_its_condition(almoner: Almoner) -> None:
    """Where outputs decided the later sizes it is no guarantee: each surface that has the figure says so beside it."""
    almoner.published(**SMALL)
    figure = almoner.ask("budget show clinic")["epsilon_spent_while_secret"]
    assert figure["condition"] == SIZES_FIXED
    sentence = (
        "While the assignment of one release is secret, what is spent comes to epsilon"
        f" {figure['epsilon']} at the same delta, {SIZES_FIXED}."
    )
    budget = almoner_package.open(almoner.home.root).dataset("clinic").budget()
    surfaces = {
        "budget show": plain(almoner.type("budget show clinic").out),
        "budget show --details": plain(almoner.type("budget show clinic --details").out),
        "terminal of the Python API": plain(str(budget)),
        "notebook": words(budget._repr_html_()),
    }
    assert [name for name, shown in surfaces.items() if sentence not in shown] == []
    surfaces |= {
        "dashboard, dataset": page(almoner, "/datasets/clinic"),
        "dashboard, release": page(almoner, "/releases/1"),
        "page of budgets": (DOCS / "budgets.md").read_text(),
        "stored notebook": (DOCS / "notebooks" / "first-release.ipynb").read_text(),
        **{path.name: path.read_text() for path in almoner.bundle.iterdir() if path.suffix in (".md", ".html")},
    }
    assert {"README.md", "report.html"} <= surfaces.keys()
    for name, shown in surfaces.items():
        assert shown.count("what is spent comes to") <= shown.count(SIZES_FIXED), name
    assert SIZES_FIXED in words(surfaces["page of budgets"])
