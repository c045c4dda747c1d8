"""Rules, dashboard and runbooks of the service level: they speak of metrics that exist, and of each other."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from flows.observability.prometheus import METRICS

CONCERNS = ("deploy/prometheus", "flows/observability")
ROOT = Path(__file__).resolve().parents[1]
RULES = yaml.safe_load((ROOT / "deploy" / "prometheus" / "almoner.rules.yml").read_text())
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "almoner.json").read_text())
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()

EXPOSED = {metric.name + ("_total" if metric.kind == "counter" else ""): metric.labels for metric in METRICS}
"""Metrics as Prometheus sees them, with their labels."""
RULE_LIST = [rule for group in RULES["groups"] for rule in group["rules"]]
RECORDED = {rule["record"] for rule in RULE_LIST if "record" in rule}
ALERTS = {rule["alert"]: rule for rule in RULE_LIST if "alert" in rule}
EXPRESSIONS = [rule["expr"] for rule in RULE_LIST] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]

_SERIES = re.compile(r"(almoner[a-zA-Z0-9_:]*)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")

PANEL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id", "title", "description", "type", "gridPos", "targets", "datasource", "fieldConfig"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "title": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "type": {"enum": ["stat", "timeseries", "bargauge"]},
        "datasource": {"properties": {"uid": {"const": "${datasource}"}}},
        "gridPos": {
            "required": ["x", "y", "w", "h"],
            "properties": {"x": {"minimum": 0, "maximum": 23}, "w": {"minimum": 1, "maximum": 24}},
        },
        "targets": {"type": "array", "minItems": 1, "items": {"required": ["refId", "expr", "legendFormat"]}},
    },
}
DASHBOARD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["title", "uid", "schemaVersion", "panels", "templating", "time"],
    "properties": {
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "minItems": 1, "items": PANEL_SCHEMA},
    },
}


def series_of(expression: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The series that an expression names, with the labels of their selectors."""
    for name, selector in _SERIES.findall(expression):
        yield name, tuple(re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selector))


def faults_of(expression: str) -> list[str]:
    """Names of series and labels in an expression that do not exist."""
    faults, labels = [], set()
    for name, selected in series_of(expression):
        if name in RECORDED:
            labels |= {label for metric in EXPOSED.values() for label in metric}
            continue
        if name not in EXPOSED:
            faults.append(name)
            continue
        labels |= set(EXPOSED[name])
        faults += [f"{name}.{label}" for label in selected if label not in EXPOSED[name]]
    grouped = {label.strip() for group in _GROUPING.findall(expression) for label in group.split(",") if label.strip()}
    return faults + sorted(grouped - labels)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_name_what_almoner_exposes(expression: str) -> None:
    assert list(series_of(expression))
    assert faults_of(expression) == []


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("almoner_rho_spend > 1", "almoner_rho_spend"),
        ("almoner_attempts > 1", "almoner_attempts"),  # Prometheus sees it with _total
        ('almoner_requests{status="running"}', "almoner_requests.status"),
        ("sum by (datasets) (almoner_rho_spent)", "datasets"),
    ],
)
def test_a_wrong_expression_would_be_found(expression: str, fault: str) -> None:
    assert faults_of(expression) == [fault]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == [*ALERTS]
    for section in RUNBOOKS.split("\n## ")[1:]:
        assert [part in section for part in ("**Meaning.**", "**Look.**", "**Do.**", "**Never**")] == [True] * 4


def test_the_dashboard_has_the_form_that_grafana_reads() -> None:
    jsonschema.validate(DASHBOARD, DASHBOARD_SCHEMA)
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in DASHBOARD["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


def test_every_metric_is_on_the_dashboard_or_in_a_rule() -> None:
    used = {name for expression in EXPRESSIONS for name, _ in series_of(expression)}
    assert set(EXPOSED) - used == {"almoner_delta_spent"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian package prometheus) is not installed")
@pytest.mark.parametrize(
    ("check", "file"),
    [
        ("check", "almoner.rules.yml"),
        pytest.param("test", "almoner.rules.test.yml", marks=pytest.mark.slow),  # promtool evaluates months of samples
    ],
)
def test_prometheus_agrees(check: str, file: str) -> None:
    path = ROOT / "deploy" / "prometheus" / file
    done = subprocess.run(["promtool", check, "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
