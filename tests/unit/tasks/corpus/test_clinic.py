"""The demo corpus: the same for everybody, varied, and full of secrets that are really there."""

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from models_db.home import ProjectHome
from tasks.corpus import demo_clinic
from tasks.corpus.demo_clinic import (
    DEMO_PATIENTS,
    demo_notes,
    find_secrets,
    planted_secrets,
    write_demo_corpus,
    write_joined_corpus,
)
from tasks.corpus.ingest import ingest

SEEDS = [1517, 0, 1, 2]


def test_one_seed_gives_the_same_bytes_everywhere(tmp_path: Path) -> None:
    secrets = write_demo_corpus(tmp_path / "a.jsonl")
    assert secrets == planted_secrets()
    digest = hashlib.sha256((tmp_path / "a.jsonl").read_bytes()).hexdigest()
    assert digest == "4f58b96f32c28dd9404791b1dc9315d1acfdf931a4e02daaf6d7557b7c3cf175"
    write_demo_corpus(tmp_path / "b.jsonl", seed=2)
    assert (tmp_path / "a.jsonl").read_bytes() != (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_secret_is_different_and_stands_in_a_note_of_its_patient_only(seed: int) -> None:
    notes, secrets = list(demo_notes(seed)), planted_secrets(seed)
    assert len(set(secrets)) == len(secrets) == 4 * DEMO_PATIENTS
    for secret in secrets:
        owners = {note["patient_id"] for note in notes if secret in note["text"]}
        assert len(owners) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_telephone_numbers_and_addresses_are_reserved_ones(seed: int) -> None:
    text = "\n".join(note["text"] for note in demo_notes(seed))
    phones, emails = re.findall(r"\(\d{3}\) [\d-]+", text), re.findall(r"\S+@[\w.]*\w", text)
    assert len(phones) == len(emails) == DEMO_PATIENTS
    assert all(re.fullmatch(r"\([2-9]\d\d\) 555-01\d\d", phone) for phone in phones)
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+@example\.(org|net|com)", email) for email in emails)


@pytest.mark.parametrize("seed", SEEDS)
def test_notes_are_short_varied_and_several_a_patient(seed: int) -> None:
    notes = list(demo_notes(seed))
    assert all(30 <= len(note["text"].split()) <= 90 for note in notes)
    assert len({note["text"] for note in notes}) == len(notes)
    per_patient = Counter(note["patient_id"] for note in notes)
    assert len(per_patient) == DEMO_PATIENTS
    assert set(per_patient.values()) == {3, 4, 5, 6}
    assert {note["section"] for note in notes} == set(demo_clinic.SECTIONS)
    assert not any("{" in note["text"] or "  " in note["text"] for note in notes)


def test_it_can_be_ingested(home: ProjectHome, tmp_path: Path) -> None:
    write_demo_corpus(tmp_path / "clinic.jsonl")
    version = ingest(home, tmp_path / "clinic.jsonl", "patient_id", bytes(32))
    assert version.units == DEMO_PATIENTS
    assert version.documents == len(list(demo_notes()))


def test_every_line_has_the_same_fields() -> None:
    assert {tuple(json.loads(json.dumps(note))) for note in demo_notes()} == {("id", "patient_id", "section", "text")}


def test_joined_notes_are_the_same_notes_one_line_a_patient(tmp_path: Path) -> None:
    write_joined_corpus(tmp_path / "patients.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "patients.jsonl").read_text().splitlines()]
    assert [line["patient_id"] for line in lines] == sorted({note["patient_id"] for note in demo_notes()})
    joined = sorted(text for line in lines for text in line["text"].split("\n\n"))
    assert joined == sorted(note["text"] for note in demo_notes())
    assert all(secret in "\n".join(line["text"] for line in lines) for secret in planted_secrets())


def test_secrets_are_found_letter_by_letter_and_once() -> None:
    secrets = planted_secrets()
    texts = ["a note without any", f"Record number: {secrets[3]}", f"{secrets[3]}, {secrets[0].upper()}"]
    assert find_secrets(texts, secrets) == [secrets[3]]
    assert find_secrets([note["text"] for note in demo_notes()], secrets) == secrets
    records = [secret for secret in secrets if secret.startswith("MRN-")]
    assert find_secrets([note["text"] for note in demo_notes(seed=2)], records) == []
