"""Names of work pools: those that Prefect does not take are refused before a server is asked, or a file is written."""

from pathlib import Path

import pytest

from flows.orchestration.deploy import deploy, require_pool_name, write_prefect_yaml
from flows.orchestration.worker import serve_pool
from models_db.home import ProjectHome
from tests.refusals import refusal

UNFIT = ["", " ", "''", "1/3", "notes.jsonl/x", "a%b", "a&b", "<a", "a>", "two\nlines", "\ud800"]


@pytest.mark.parametrize("name", UNFIT)
def test_an_unfit_name_is_refused_by_everybody(name: str, tmp_path: Path) -> None:
    file = tmp_path / "prefect.yaml"
    calls = (
        lambda: require_pool_name(name),
        lambda: deploy(name, None),
        lambda: write_prefect_yaml(file, name),
        lambda: serve_pool(ProjectHome(tmp_path / "home"), name, str(tmp_path)),
    )
    for call in calls:
        with refusal("PoolNameUnfit") as refused:
            call()
        assert (refused.value.exit_code, refused.value.facts) == (2, {"pool": name})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["almoner", "the clinic's GPUs", "Büro 2"])
def test_a_fit_name_is_written(name: str, tmp_path: Path) -> None:
    require_pool_name(name)
    write_prefect_yaml(tmp_path / "prefect.yaml", name)
    assert "work_pool" in (tmp_path / "prefect.yaml").read_text()
