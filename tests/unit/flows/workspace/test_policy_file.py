"""`policy.yaml` as people write it."""

from pathlib import Path

import pytest

from flows.workspace.policy_file import DEFAULT_POLICY, policy_text, read_policy
from models_db.policies.policy import Policy
from tests.refusals import refusal


def read(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return read_policy(path, "policy.yaml")


def test_a_policy_that_is_printed_reads_back_as_itself(tmp_path: Path) -> None:
    full = DEFAULT_POLICY + "release: {epsilon_max: 4, delta_max: 1e-7}\ndatasets: {clinic: {approvals: {spend: 2}}}\n"
    for policy in (read(tmp_path, DEFAULT_POLICY), read(tmp_path, full), Policy()):
        assert read(tmp_path, policy_text(policy)) == policy


@pytest.mark.parametrize("text", ["version: 1\nattempts: 0", "[", "attempts: 1\nattempts: 100", "- a", ""])
def test_a_mistake_leads_to_the_page_on_policies(tmp_path: Path, text: str) -> None:
    with refusal("FileInvalid") as refused:
        read(tmp_path, text)
    assert "docs/policy.md" in refused.value.advice
