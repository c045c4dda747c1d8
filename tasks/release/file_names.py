"""The files of a draft and of a bundle, by name."""

import re
from collections.abc import Mapping
from typing import Final

TEXTS: Final = "texts.jsonl"
EVALUATION: Final = "evaluation.json"
RECORD: Final = "release.json"
CARD: Final = "README.md"
CHECKLIST: Final = "checklist.md"
CROISSANT: Final = "croissant.json"
DEPLOYMENT: Final = "deployment.yaml"
PARQUET: Final = "texts.parquet"
REPORT: Final = "report.html"
EXPLORER: Final = "explorer.html"
DRAFT_FILES: Final = (CARD, CHECKLIST, CROISSANT, DEPLOYMENT, EVALUATION, RECORD, REPORT, TEXTS, PARQUET)
"""What a run produces, whatever its kind; their digest is what the publish gate approves. What a kind has besides is in
`tasks.release.format_versions`."""

APPROVALS: Final = "approvals.json"
ATTESTATION: Final = "attestation.json"
CHECKPOINT: Final = "checkpoint.json"
REVOCATIONS: Final = "revocations.json"
SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"


def checksum_lines(files: Mapping[str, str]) -> bytes:
    """SHA256SUMS of {name: digest}, as `sha256sum -c` reads it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def bundle_name(dataset: str, release: int) -> str:
    """The folder name of a bundle; whatever a dataset is called, it is one plain path component."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset).strip(".-") or "dataset"
    return f"{plain}-release-{release}"
