"""`almoner audit mechanism`: what it says, its exit codes, and that it needs no home."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.app import app
from tasks.auditing import audit_cases


def asked(line: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, line.split())
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_an_audit_tells_claim_bound_trials_and_confidence(tmp_path: Path) -> None:
    code, out = asked(f"audit mechanism noisy_count --trials 1000 --home {tmp_path / 'none'} --json")
    said = json.loads(out)
    assert code == 0
    assert said["claim"] == {"epsilon": "0.999999328195", "delta": "0.03"}
    assert said["trials"] == 1000
    assert said["bound"]["confidence"] == "0.9999"
    assert float(said["bound"]["epsilon"]) < 1
    assert float(said["seconds"]) >= 0
    assert not (tmp_path / "none").exists()


def test_a_mechanism_that_leaks_more_than_it_claims_ends_with_an_error_code(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(audit_cases.case_of("noisy_count"), sample=lambda present, trials: [int(present)] * trials)
    monkeypatch.setattr(audit_cases, "CASES", {"noisy_count": lambda: broken})
    code, out = asked("audit mechanism noisy_count --trials 1000")
    assert code == 1
    assert "THE CLAIM DOES NOT HOLD" in out


@pytest.mark.parametrize(
    ("line", "code", "name"),
    [
        ("audit mechanism nothing", 2, "NoAudit"),
        ("audit mechanism non_private", 1, "MechanismWithoutClaim"),
        ("audit mechanism noisy_count --trials 10", 2, "TooFewTrials"),
    ],
)
def test_what_cannot_be_audited_is_refused(line: str, code: int, name: str) -> None:
    found, out = asked(f"{line} --json")
    assert found == code
    assert json.loads(out)["error"] == name
