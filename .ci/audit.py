"""What bandit finds, held against the table of docs/security.md: all of it is explained, and each row is still true.

Run by `make audit` in an environment of its own: python .ci/audit.py < bandit's JSON
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "security.md"
ROW = re.compile(r"^\| (B\d{3}) \| `([^`]+)` \| (\d+|any) \|", re.MULTILINE)


def explained(page: str) -> dict[tuple[str, str], str]:
    """How many findings of a rule the page explains in the files of a pattern; `any` is at least one."""
    return {(rule, files): number for rule, files, number in ROW.findall(page)}


def compare(findings: Iterable[tuple[str, str]], wanted: dict[tuple[str, str], str]) -> list[str]:
    """Where findings, each a rule and a path, are not as the page says."""
    found: Counter[tuple[str, str]] = Counter()
    wrong = []
    for rule, path in findings:
        fitting = [key for key in wanted if key[0] == rule and fnmatchcase(path, key[1])]
        if fitting:
            found[fitting[0]] += 1
        else:
            wrong.append(f"{rule} in {path} is not explained in docs/security.md")
    for (rule, files), number in wanted.items():
        if str(found[rule, files]) != number and not (number == "any" and found[rule, files]):
            wrong.append(f"docs/security.md explains {number} of {rule} in {files}, there are {found[rule, files]}")
    return wrong


def main() -> int:
    """Read bandit's report from standard input."""
    report = json.load(sys.stdin)
    findings = [(each["test_id"], each["filename"].removeprefix("./")) for each in report["results"]]
    wrong = compare(findings, explained(PAGE.read_text())) + [str(error) for error in report["errors"]]
    sys.stdout.write("\n".join(wrong) or f"bandit: {len(findings)} findings, each explained in docs/security.md")
    sys.stdout.write("\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
