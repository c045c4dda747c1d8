"""Demo corpus: a fictional clinic of 150 patients with several short notes each, and secrets planted in them.

Every patient has a name, a telephone number, an e-mail address and a record number, and each of the four stands in
at least one note. A test that finds one of them in a log, a database or a release has found a leak.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.corpus.demo import phrases

DEMO_SEED = 1517
DEMO_PATIENTS = 150
_NOTES_PER_PATIENT = (3, 6)
_FEWEST_WORDS = (34, 60)


@dataclass(frozen=True)
class Patient:
    """A person who does not exist."""

    patient_id: str
    name: str
    is_woman: bool
    age: int
    job: str
    condition: phrases.Condition
    phone: str
    email: str
    record: str

    @property
    def secrets(self) -> tuple[str, str, str, str]:
        """Secrets of the patient, which must never leave the corpus."""
        return (self.name, self.phone, self.email, self.record)


def write_demo_corpus(path: Path, seed: int = DEMO_SEED) -> list[str]:
    """Write the corpus as JSONL with the fields id, patient_id, section and text; the planted secrets.

    One seed always gives the same bytes.
    """
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for note in demo_notes(seed):
            file.write(json.dumps(note, ensure_ascii=False) + "\n")
    return planted_secrets(seed)


def write_joined_corpus(path: Path, seed: int = DEMO_SEED) -> None:
    """Write the same notes as JSONL with the fields patient_id and text: a line for each patient, in order of the ids.

    Private rows read a patient's notes joined (docs/requests.md, "What is cut"). `non_private` reads one document for
    each text, so it reads as much as a private row does only from such a corpus.
    """
    notes: dict[str, list[str]] = {}
    for note in demo_notes(seed):
        notes.setdefault(note["patient_id"], []).append(note["text"])
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for patient_id, texts in sorted(notes.items()):
            file.write(json.dumps({"patient_id": patient_id, "text": "\n\n".join(texts)}, ensure_ascii=False) + "\n")


def find_secrets(texts: Sequence[str], secrets: Sequence[str]) -> list[str]:
    """Return the secrets that stand in at least one text, letter by letter, in the order of `secrets`."""
    return [secret for secret in secrets if any(secret in text for text in texts)]


def planted_secrets(seed: int = DEMO_SEED) -> list[str]:
    """Return every secret of `write_demo_corpus(..., seed)`: all different, each to be found in at least one note."""
    return [secret for patient in _patients(_teller(seed)) for secret in patient.secrets]


def demo_notes(seed: int = DEMO_SEED) -> Iterator[dict[str, str]]:
    """Yield the notes, as the clinic would have written them: patients in turn and out of turn."""
    teller = _teller(seed)
    notes = [note for patient in _patients(teller) for note in _notes_of(teller, patient)]
    teller.shuffle(notes)
    for number, (patient, section, text) in enumerate(notes, 1):
        yield {"id": f"note-{number:04}", "patient_id": patient.patient_id, "section": section, "text": text}


def _teller(seed: int) -> random.Random:
    # Fiction that everybody may repeat, so a seeded generator is right here; privacy randomness never has one.
    return random.Random(seed)  # noqa: S311


def _patients(teller: random.Random) -> list[Patient]:
    firsts = [(first, first in phrases.WOMEN) for first in phrases.WOMEN + phrases.MEN]
    people = [(first, last, woman) for first, woman in firsts for last in phrases.SURNAMES]
    lines = [(area, line) for area in range(201, 990) for line in range(100, 200)]
    numbers = teller.sample(range(100_000, 1_000_000), DEMO_PATIENTS)
    entries = zip(teller.sample(people, DEMO_PATIENTS), teller.sample(lines, DEMO_PATIENTS), numbers, strict=True)
    return [
        Patient(
            patient_id=f"patient-{index:03}",
            name=f"{first} {last}",
            is_woman=woman,
            age=teller.randrange(19, 89),
            job=teller.choice(phrases.JOBS),
            condition=teller.choice(phrases.CONDITIONS),
            phone=f"({area}) 555-0{line}",
            email=f"{first}.{last}@{teller.choice(phrases.MAIL_HOSTS)}".lower(),
            record=f"MRN-{number}",
        )
        for index, ((first, last, woman), (area, line), number) in enumerate(entries, 1)
    ]


def _notes_of(teller: random.Random, patient: Patient) -> Iterator[tuple[Patient, str, str]]:
    """Return notes that together hold all four of the patient's secrets."""
    kinds = teller.sample(list(phrases.IDENTITIES), len(phrases.IDENTITIES))
    count = teller.randint(*_NOTES_PER_PATIENT)
    for index, section in enumerate(teller.sample(list(phrases.SECTIONS), count)):
        yield patient, section, _text(teller, patient, section, kinds[index::count])


def _text(teller: random.Random, patient: Patient, section: str, kinds: list[str]) -> str:
    """Write an opening, then sentences and identities in any order, until the note is long enough."""
    openings, others = phrases.SECTIONS[section]
    slots = _slots(teller, patient)
    body = [teller.choice(phrases.IDENTITIES[kind]).format(**slots) for kind in kinds]
    opening = teller.choice(openings).format(**slots)
    enough = teller.randint(*_FEWEST_WORDS)
    for sentence in teller.sample(others, len(others)):
        if len(" ".join((opening, *body)).split()) >= enough:
            break
        body.append(sentence.format(**slots))
    teller.shuffle(body)
    return " ".join((opening, *body))


def _slots(teller: random.Random, patient: Patient) -> dict[str, object]:
    """Return a value for every slot of the sentences; those that come in pairs differ."""
    condition = patient.condition
    complaint, complaint2 = teller.sample(condition.complaints, 2)
    trigger, trigger2 = teller.sample(condition.triggers, 2)
    finding, finding2 = teller.sample(condition.findings, 2)
    medicine, medicine2 = teller.sample(condition.medicines, 2)
    advice, advice2 = teller.sample(condition.advice, 2)
    she, her, him = ("she", "her", "her") if patient.is_woman else ("he", "his", "him")
    support = teller.choice(phrases.SUPPORTS)
    return {
        "name": patient.name, "phone": patient.phone, "email": patient.email, "record": patient.record,
        "age": patient.age, "past_age": teller.randrange(12, patient.age), "job": patient.job,
        "she": she, "She": she.capitalize(), "her": her, "Her": her.capitalize(), "him": him,
        "condition": condition.name, "complaint": complaint, "complaint2": complaint2,
        "trigger": trigger, "trigger2": trigger2, "finding": finding, "finding2": finding2,
        "medicine": medicine, "medicine2": medicine2, "advice": advice, "advice2": advice2,
        "hobby": teller.choice(phrases.HOBBIES), "relative": teller.choice(phrases.RELATIVES),
        "since": teller.choice(phrases.SINCE), "allergy": teller.choice(phrases.ALLERGIES),
        "support": support, "Support": support[0].upper() + support[1:],
        "return_": teller.choice(phrases.RETURNS), "score": teller.randrange(3, 10),
        "temperature": f"36.{teller.randrange(3, 9)}", "pulse": teller.randrange(58, 88),
    }  # fmt: skip
