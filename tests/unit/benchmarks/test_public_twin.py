"""The benchmark of attacks on a public twin: lines of a result, and the table of releases beside each other."""

from types import ModuleType
from typing import Any

SCRIPTS = ("attacks.public_twin",)

VALUES: dict[str, dict[str, Any]] = {
    "membership_embedding": {"auc": "0.5000", "auc_low": "0.4000", "auc_high": "0.6000", "tpr_at_1_percent": None},
    "membership_likelihood": {"auc": "0.7500", "auc_low": "0.7000", "auc_high": "0.8000"},
    "membership_overlap": {"auc": "0.5000", "auc_low": "0.4500", "auc_high": "0.5500"},
    "canary_membership": {"auc": None, "auc_low": None, "auc_high": None},
    "canary_exposure": {
        "exposure_mean": "1.2", "exposure_mean_low": "0.8", "exposure_mean_high": "2",
        "exposure_possible": "9.967", "exposure_by_chance": "1.436",
    },
    "attribute_inference": {
        f"{name}_share{end}": value
        for name in ("right", "held_out_right", "commonest_right")
        for end, value in (("", "0.5"), ("_low", "0.25"), ("_high", "0.75"))
    },
    "replay": {"longest_run": 3, "held_out_longest_run": 4},
}  # fmt: skip


def result(releases: Any) -> dict[str, Any]:
    """A result of `almoner attack run` with the same figures for each release."""
    attacks = [{"name": name, "values": values, "line": ""} for name, values in VALUES.items()]
    runs = [{"name": name, "texts": 4, "results": attacks} for name in releases]
    configuration = {"mechanism": "invisible_ink", "epsilon": "10", "delta": "1e-5", "model": "m", "parameters": {}}
    sizes = {"members": 28, "nonmembers": 60, "canaries": 8, "copies": 3}
    return {"code": "c0de", "configuration": configuration, **sizes, "runs": runs}


def test_a_result_is_a_line_for_each_attack_and_release(bench: dict[str, ModuleType]) -> None:
    module = bench["attacks.public_twin"]
    lines = list(module.lines_of(result(module.RELEASES)))
    assert len(lines) == len(VALUES) * 3
    assert {(line["members"], line["code"], line["epsilon"]) for line in lines} == {(28, "c0de", "10")}
    head, rule, *rows = module.table(lines)
    assert {row.count("|") for row in (head, rule, *rows)} == {5}
    assert rows[2].startswith("| membership by likelihood, AUC | 0.750 (0.700 to 0.800) |")
    assert rows[1] == "| its TPR at FPR 1 % |  |  |  |"  # too few non-members
    assert rows[5].startswith("| canary exposure, bits of 9.967 (chance 1.436) | 1.20 (0.80 to 2.00) |")
    assert rows[-1].endswith("| 3 / 4 | 3 / 4 | 3 / 4 |")
