"""Names of the files of a draft and of a bundle."""

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
"""Files that every run produces; the publish gate approves their digest. Further files of one kind are in
`tasks.release.format_versions`."""

APPROVALS: Final = "approvals.json"
ATTESTATION: Final = "attestation.json"
CHECKPOINT: Final = "checkpoint.json"
REVOCATIONS: Final = "revocations.json"
SUMS: Final = "SHA256SUMS"
SUMS_SIGNATURE: Final = "SHA256SUMS.sig"


def checksum_lines(files: Mapping[str, str]) -> bytes:
    """Return the content of SHA256SUMS for {name: digest}, as `sha256sum -c` reads it."""
    return "".join(f"{files[name]}  {name}\n" for name in sorted(files)).encode()


def bundle_name(dataset: str, release: int) -> str:
    """Return the folder name of a bundle: one plain path component for any dataset name."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset).strip(".-") or "dataset"
    return f"{plain}-release-{release}"
