"""Metrics are what the ledger says, and on the list of the page."""

import re
import urllib.request
from datetime import datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event

from flows.observability import prometheus
from flows.workspace.workspace import ReadOnlyWorkspace, open_read_only
from models_db.home import ProjectHome
from models_db.sessions.read_only import ReadOnlyDatabase
from models_db.values.amounts import RHO_UNIT, Amount
from tests.integration.story import SECRETS, Almoner
from tests.support import PATIENCE, World, fetch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text()


def scraped(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every sample by name and labels, as Prometheus reads them."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_metrics_are_what_the_ledger_says(world: World, tmp_path: Path) -> None:
    """On both backends, with credentials that can only read."""
    world.dataset()
    request_id = world.published().request_id
    world.request()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    record = ReadOnlyWorkspace(ProjectHome(tmp_path), ReadOnlyDatabase(world.database.url), "")
    for sample in prometheus.read_samples(record):
        found.setdefault(sample.metric, {})[sample.labels] = sample.value
    [[name]] = fetch(world.database, "SELECT d.name FROM dataset d JOIN request r ON r.dataset_id = d.id"
                     " WHERE r.id = :id", id=request_id)  # fmt: skip
    on, balance = (("dataset", str(name)),), world.balance()
    assert balance.spent != Amount()
    for metric, amount in (("cap", balance.cap), ("spent", balance.spent), ("held", balance.held)):
        assert found[f"almoner_rho_{metric}"][on] == pytest.approx(amount.rho / RHO_UNIT)
    [[armed]] = fetch(world.database, "SELECT count(*) FROM audit WHERE kind = 'ledger.arm'")
    assert found["almoner_instalments_armed"] == {on: armed}
    assert found["almoner_requests"] == {(("state", "published"),): 1, (("state", "submitted"),): 1}
    assert found["almoner_attempts"] == {(("outcome", "produced"), ("at_most_seconds", "60")): 1}
    [[since]] = fetch(world.database, "SELECT max(at) FROM transition WHERE to_state = 'submitted'")
    waiting = datetime.fromisoformat(str(since)).timestamp()
    assert found["almoner_gate_waiting_since_seconds"] == {(("gate", "spend"),): waiting}
    [[links]] = fetch(world.database, "SELECT seq FROM audit_head")
    assert found["almoner_chain_links"] == {(): links}


def test_a_scrape_asks_as_little_of_a_long_ledger_as_of_a_short_one(world: World, tmp_path: Path) -> None:
    world.dataset()
    world.published()
    database = ReadOnlyDatabase(world.database.url)
    record, asked = ReadOnlyWorkspace(ProjectHome(tmp_path), database, ""), []
    event.listen(database.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    prometheus.read_samples(record)
    short = len(asked)
    for name in ("ward", "harbour"):
        world.dataset(name)
        world.published(name)
    asked.clear()
    assert len(prometheus.read_samples(record)) > len(prometheus.METRICS)
    assert len(asked) == short


def test_what_is_written_is_read_by_prometheus(almoner: Almoner) -> None:
    almoner.produced()
    file = almoner.folder / "almoner.prom"
    told = {(each["metric"], *sorted(each["labels"].items())): each["value"] for each in almoner.ask("metrics")}
    almoner.type(f"metrics --to {file}")
    read = {
        (name.removesuffix("_total"), *labels): value
        for name, samples in scraped(file.read_text()).items()
        for labels, value in samples.items()
    }
    assert read == told
    assert read["almoner_rho_spent", ("dataset", "clinic")] > 0
    for secret in (*SECRETS, "patient", str(almoner.folder)):
        assert secret not in file.read_text()


def test_the_page_lists_every_metric_with_its_labels(almoner: Almoner) -> None:
    rows = re.findall(r"^\| `(almoner_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE)
    written = {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    suffix = {"counter": "_total", "gauge": ""}
    assert written == {each.name + suffix[each.kind]: each.labels for each in prometheus.METRICS}
    almoner.submitted()
    samples = prometheus.read_samples(open_read_only(almoner.home))
    assert {each.metric for each in samples} <= {each.name for each in prometheus.METRICS}
    labels = {each.name: each.labels for each in prometheus.METRICS}
    assert all(tuple(name for name, _ in each.labels) == labels[each.metric] for each in samples)


def test_failed_attempts_are_counted_by_name_and_nothing_else_of_a_reason_is_told(
    almoner: Almoner, monkeypatch: pytest.MonkeyPatch
) -> None:
    almoner.approved()
    for problem in (ValueError("Ann Smith"), MemoryError("Ann Smith")):
        with monkeypatch.context() as patch:
            patch.setattr("flows.releases.execute.generate_texts", raising(problem))
            with pytest.raises(type(problem)):
                almoner.type("run 1", expected=None)
    found = scraped(almoner.type("metrics").out)
    assert found["almoner_attempts_failed_total"] == {
        (("refusal", "ValueError"),): 1, (("refusal", "MemoryError"),): 1,
    }  # fmt: skip
    assert prometheus._error_name("the text of Ann Smith") == "other"


def raising(problem: Exception) -> object:
    def fail(*_: object, **__: object) -> None:
        raise problem

    return fail


def test_a_scrape_reads_the_ledger_again_and_writes_nothing(almoner: Almoner) -> None:
    almoner.submitted()
    with prometheus.serve_metrics(open_read_only(almoner.home), 0) as port:
        before = almoner.everything()
        first = scraped(fetched(port))
        assert almoner.everything() == before
        almoner.type('approve 1 --gate spend --reason "a first look"')
        again = scraped(fetched(port))
    assert first["almoner_requests"] == {(("state", "submitted"),): 1}
    assert again["almoner_requests"] == {(("state", "approved"),): 1}
    assert again["almoner_chain_links_total"][()] > first["almoner_chain_links_total"][()]


def fetched(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read().decode())


def test_a_port_that_is_taken_is_told(almoner: Almoner) -> None:
    almoner.submitted()
    record = open_read_only(almoner.home)
    with prometheus.serve_metrics(record, 0) as port:
        told = almoner.ask(f"metrics --port {port}", expected=3)
    assert told["error"] == "PortTaken"
    assert almoner.ask("metrics --to /proc/almoner.prom", expected=3)["error"] == "MetricsUnwritable"
