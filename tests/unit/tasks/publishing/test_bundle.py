"""Publishing: whole or not at all, the approved bytes and no others, and nothing about how the run went."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from models_db.values.canonical_json import digest
from tasks.publishing import bundle
from tasks.publishing.bundle import BundleExists
from tasks.publishing.verify import verify_release
from tasks.release.bundle_format import DRAFT_FILES, bundle_files, bundle_name
from tests.refusals import refusal
from tests.support import require
from tests.unit.tasks.publishing.builders import HEAD, TEXTS, Steward, a_record, a_request

pytestmark = [pytest.mark.dear, pytest.mark.contract]

BUNDLE_FILES = bundle_files("synthetic_corpus")
KEYS = {
    "texts.jsonl": {"id", "text"},
    "evaluation.json": {"format", "metrics"},
    "attestation.json": {"payload", "payloadType", "signatures"},
    "revocations.json": {"exposed", "format", "revoked"},
    "checkpoint.json": {"artifact_sha256", "charged", "format", "ledger_head", "public_key", "signature"},
    "SHA256SUMS.sig": {"format", "public_key", "signature"},
}
TIME = re.compile(rb"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{2}:[0-9]{2}")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def published(release, out):
    return release.publish(out).folder


def test_it_holds_the_approved_bytes_and_the_listed_files(release, published, out):
    assert published == out / "clinic-release-1"
    assert set(os.listdir(published)) == set(BUNDLE_FILES)
    assert os.listdir(out) == ["clinic-release-1"]
    for name in DRAFT_FILES:
        assert (published / name).read_bytes() == (release.draft / name).read_bytes()


@pytest.mark.parametrize("umask", [0o077, 0])
def test_it_is_public_whatever_the_umask(release, out, umask):
    before = os.umask(umask)
    try:
        folder = release.publish(out).folder
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_sha256sum_reads_its_list(published):
    require(shutil.which("sha256sum"), "the tool sha256sum is not installed")
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=published, capture_output=True, check=True)
    assert done.stdout.count(b": OK") == len(BUNDLE_FILES) - 2


def test_its_digest_names_every_byte(release, out):
    made = release.publish(out)
    assert made.digest == digest_of(made.folder / "SHA256SUMS")


def digest_of(path: Path) -> str:
    return bundle._sha256(path.read_bytes())


@pytest.mark.parametrize("name", KEYS)
def test_its_documents_have_exactly_the_listed_fields(published, name):
    for line in (published / name).read_text().splitlines():
        assert set(json.loads(line)) == KEYS[name]


def test_it_tells_no_time_but_the_end_of_an_approval(published):
    for name, data in content(published).items():
        times = TIME.findall(re.sub(rb'"expires_at":"[^"]*"', b"", data))
        assert not times, name


def test_publishing_again_finds_it(release, out):
    first = release.publish(out)
    before = content(first.folder)
    assert release.publish(out) == first
    assert content(first.folder) == before


def test_publishing_again_finds_it_though_the_chain_has_grown(release, out):
    first = release.publish(out)
    assert release.publish(out, ledger_head="cd" * 32) == first
    assert json.loads((first.folder / "checkpoint.json").read_text())["ledger_head"] == HEAD


@pytest.mark.parametrize("name", BUNDLE_FILES)
def test_a_bundle_that_was_changed_is_not_overwritten(release, out, published, name):
    (published / name).write_bytes((published / name).read_bytes() + b"\n")
    before = content(published)
    with pytest.raises(BundleExists):
        release.publish(out)
    assert content(published) == before


@pytest.mark.parametrize("spoil", ["extra", "missing", "link", "file", "empty"])
def test_whatever_else_is_in_its_place_stays(release, out, published, spoil, tmp_path):
    if spoil == "extra":
        (published / "notes.txt").write_text("x")
    elif spoil == "missing":
        (published / "texts.jsonl").unlink()
    elif spoil == "link":
        published.rename(tmp_path / "moved")
        published.symlink_to(tmp_path / "moved")
    else:
        shutil.rmtree(published)
        published.write_text("x") if spoil == "file" else published.mkdir()
    with pytest.raises(BundleExists):
        release.publish(out)


def test_another_release_of_the_same_number_is_refused(release, out, published, new_key):
    with pytest.raises(BundleExists):
        replace(release, key=new_key("other")).publish(out)


@pytest.mark.parametrize("name", DRAFT_FILES)
def test_a_draft_that_is_not_the_approved_one_is_refused(release, out, name):
    with (release.draft / name).open("ab") as file:
        file.write(b" ")
    with refusal("ArtifactChanged"):
        release.publish(out)
    assert not out.exists()


def test_a_draft_that_changes_while_it_is_copied_is_refused(release, out, monkeypatch):
    """The check before copying has passed; the copies must be checked themselves."""
    monkeypatch.setattr(bundle, "rehash", lambda draft, files: None)
    texts = release.draft / "texts.jsonl"
    texts.write_bytes(texts.read_bytes().replace(b"Better", b"Worse!"))
    with refusal("BundleInvalid") as refused:
        release.publish(out)
    assert any(failure.startswith("digests:") for failure in refused.value.facts["failures"])
    assert os.listdir(out) == []


def test_without_approvals_nothing_is_written(release, out):
    with refusal("NotApproved"):
        release.publish(out, approvals=release.approvals[:2])
    assert not out.exists()


@pytest.mark.parametrize("kept", [0, 1])
def test_an_approval_without_attestation_does_not_count_for_the_attestation(release, out, kept):
    with refusal("NotAttested", match=f"{kept} of 2 approvers signed"):
        release.publish(out, attestations=release.attestations[:kept])
    assert not out.exists()


def test_an_attestation_of_somebody_who_did_not_approve_is_refused(release, out, new_key):
    stranger = Steward("uma", new_key("uma")).attest(release.draft, release.files)
    with refusal("NotAttested", match="neither approved nor published"):
        release.publish(out, attestations=(*release.attestations, stranger))
    assert not out.exists()


def test_a_publisher_who_approved_attests_once(release, out):
    sue, tom = release.stewards
    made = replace(release, key=sue.key).publish(out)
    signatures = json.loads((made.folder / "attestation.json").read_text())["signatures"]
    assert [one["keyid"] for one in signatures] == sorted({sue.key.public_key, tom.key.public_key})
    assert verify_release(made.folder, sue.key.public_key).holds


def test_decisions_on_other_bytes_are_left_out(release, out):
    sue, _ = release.stewards
    earlier = sue.decide(release.record, "publish", "12" * 32, verdict="reject")
    folder = release.publish(out, approvals=(*release.approvals, earlier)).folder
    assert "12" * 32 not in (folder / "approvals.json").read_text()


def test_a_release_that_contradicts_itself_is_not_delivered(make_release, out):
    with refusal("BundleInvalid", match="texts"):
        make_release(texts=TEXTS[:1]).publish(out)
    assert os.listdir(out) == []


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("step", ["copy_new", "write_new", "verify_release", "sync_folder"])
def test_a_crash_leaves_only_what_the_next_call_removes(release, out, monkeypatch, step):
    real, calls = getattr(bundle, step), []

    def dies(*arguments: object) -> object:
        calls.append(step)
        if len(calls) == (1 if step in ("verify_release", "sync_folder") else 2):
            raise PowerCut
        return real(*arguments)

    monkeypatch.setattr(bundle, step, dies)
    with pytest.raises(PowerCut):
        release.publish(out)
    assert os.listdir(out) == [".clinic-release-1.partial"]
    monkeypatch.undo()
    folder = release.publish(out).folder
    assert os.listdir(out) == ["clinic-release-1"]
    assert verify_release(folder, release.key.public_key).holds


def test_a_crash_after_the_renaming_left_it_whole(release, out, monkeypatch):
    real = bundle.sync_folder

    def dies(folder: Path) -> None:
        real(folder)
        if folder == out:
            raise PowerCut

    monkeypatch.setattr(bundle, "sync_folder", dies)
    with pytest.raises(PowerCut):
        release.publish(out)
    monkeypatch.undo()
    assert verify_release(release.publish(out).folder, release.key.public_key).holds


def test_a_leftover_of_any_kind_is_removed(release, out, tmp_path):
    out.mkdir()
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x")
    (out / ".clinic-release-1.partial").symlink_to(tmp_path / "precious")
    release.publish(out)
    assert os.listdir(out) == ["clinic-release-1"]
    assert (tmp_path / "precious" / "file").exists()


def test_two_at_once_publish_one_bundle(release, out):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: release.publish(out), range(4)))
    assert len(set(made)) == 1
    assert os.listdir(out) == ["clinic-release-1"]


def test_a_publisher_waits_for_another_process(release, out, tmp_path):
    """Somebody else holds the lock for a moment; nothing is written meanwhile."""
    out.mkdir()
    script = (
        "import fcntl, os, sys, time\n"
        "fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(0.5)\n"
        "assert os.listdir(sys.argv[1]) == []\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(out)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        release.publish(out)
    assert other.returncode == 0


def test_a_destination_that_is_a_file_is_named(release, tmp_path):
    (tmp_path / "taken").write_text("x")
    with refusal("DestinationUnusable"):
        release.publish(tmp_path / "taken")
    with refusal("DestinationUnusable"):
        release.publish(tmp_path / "taken" / "below")


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("clinic", "clinic-release-7"),
        ("../../etc", "etc-release-7"),
        ("a/b c", "a-b-c-release-7"),
        ("..", "dataset-release-7"),
        ("\u00e4rzte", "rzte-release-7"),
        (".hidden", "hidden-release-7"),
        ("", "dataset-release-7"),
    ],
)
def test_a_bundles_name_is_one_plain_component(dataset, name):
    assert bundle_name(dataset, 7) == name


def test_a_strange_dataset_name_stays_inside_the_destination(make_release, out):
    request = a_request(dataset={"name": "../../etc/x", "version": 1, "uid": "4d"})
    assert make_release(a_record(request)).publish(out).folder == out / "etc-x-release-1"


def test_the_publish_gate_approves_the_table_of_files(release):
    assert {one.subject_sha256 for one in release.approvals if one.gate == "publish"} == {digest(release.files)}
