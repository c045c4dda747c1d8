"""What somebody can do to a bundle that lies in a folder, and to its seal."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models_db.values.canonical_json import digest
from tasks.common.files import encode_json, measure
from tasks.publishing.bundle import _sha256
from tasks.publishing.verify import VerificationReport
from tasks.release.bundle_format import CHECKPOINT, RECORD, checksum_lines, drafted_files, stated_kind, summed_files
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Checkpoint, Seal
from tests.refusals import refusal
from tests.unit.tasks.publishing.builders import HEAD, Release

Json = dict[str, Any]


def failed(report: VerificationReport) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


def reseal(folder: Path, key: SigningKey) -> None:
    """Make checkpoint, digests and seal fit the files as they are now."""
    names = drafted_files(stated_kind((folder / RECORD).read_bytes()))
    artifact = digest({name: measure(folder / name) for name in names})
    charged = Checkpoint.from_bytes((folder / CHECKPOINT).read_bytes()).charged
    (folder / CHECKPOINT).write_bytes(Checkpoint.signed(artifact, HEAD, charged, key).to_bytes())
    seal_as_it_is(folder, key)


def seal(folder: Path, key: SigningKey, listed: bytes) -> None:
    (folder / "SHA256SUMS").write_bytes(listed)
    (folder / "SHA256SUMS.sig").write_bytes(Seal.on(listed, key).to_bytes())


def seal_as_it_is(folder: Path, key: SigningKey) -> None:
    names = summed_files(stated_kind((folder / RECORD).read_bytes()))
    seal(folder, key, checksum_lines({name: _sha256((folder / name).read_bytes()) for name in names}))


def edit(folder: Path, name: str, change: Callable[[Json], None]) -> None:
    stored = json.loads((folder / name).read_text())
    change(stored)
    (folder / name).write_bytes(encode_json(stored))


def failures(release: Release, out: Path) -> set[str]:
    """What the publisher's own check finds before delivery; it is the check a stranger makes."""
    with refusal("BundleInvalid") as refused:
        release.publish(out)
    assert not os.listdir(out)
    return {failure.partition(":")[0] for failure in refused.value.facts["failures"]}
