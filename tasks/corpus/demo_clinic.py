"""Demo corpus: a fictional clinic of 150 patients with several short notes each, and secrets planted in them.

Every patient has a name, a telephone number, an e-mail address and a record number, and each of the four stands in
at least one note. A test that finds one of them in a log, a database or a release has found a leak.

All people, conditions and sentences were written for this project. Telephone numbers come from 555-01xx and addresses
from example.org, .net and .com, which are reserved for fiction and documentation.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Condition:
    """Medical condition of a patient, in phrases that fit after "with", "shows", "takes" and "to"."""

    name: str
    complaints: tuple[str, ...]
    triggers: tuple[str, ...]
    findings: tuple[str, ...]
    medicines: tuple[str, ...]
    advice: tuple[str, ...]


CONDITIONS = (
    Condition(
        "reflux",
        ("a burning feeling behind the breastbone", "sour fluid rising into the throat", "a nagging night cough"),
        ("after late suppers", "when lying flat", "after strong coffee", "while bending over flower beds"),
        ("a soft belly without guarding", "slight tenderness below the breastbone", "a normal throat"),
        ("omeprazole 20 mg before breakfast", "famotidine 20 mg at night", "an alginate after meals"),
        ("eat supper three hours before bed", "raise the head of the bed", "leave out peppermint and chocolate"),
    ),
    Condition(
        "asthma",
        ("a tight chest", "wheezing at night", "a dry cough that will not settle"),
        ("in cold air", "around the neighbour's cats", "on running for the bus", "during the hay season"),
        ("a faint wheeze at both bases", "a peak flow of 380", "easy breathing at rest"),
        ("a salbutamol inhaler as needed", "beclometasone two puffs twice a day", "montelukast 10 mg at night"),
        ("rinse the mouth after the inhaler", "keep a peak flow diary", "use the spacer every time"),
    ),
    Condition(
        "migraine",
        ("throbbing pain over one eye", "zigzag lights before a headache", "headaches with sickness"),
        ("after short nights", "in flickering light", "on the first day of a weekend", "when meals are skipped"),
        ("a normal look at the back of the eyes", "no weakness in face or limbs", "a supple neck"),
        ("sumatriptan 50 mg at the first sign", "propranolol 40 mg twice a day", "naproxen 250 mg with food"),
        ("keep a headache diary", "rest in a dark room early", "drink water before the second coffee"),
    ),
    Condition(
        "knee arthritis",
        ("a stiff right knee in the mornings", "a grinding left knee", "a knee that swells by evening"),
        ("on stairs", "after a day of standing", "in damp weather", "when kneeling at the allotment"),
        ("a small effusion", "crepitus on bending", "full extension with some pain", "a slightly bowed leg"),
        ("paracetamol 1 g up to four times a day", "ibuprofen gel three times a day", "naproxen 250 mg with food"),
        ("do the thigh exercises daily", "try a stick on the other side", "swim twice a week"),
    ),
    Condition(
        "high blood pressure",
        ("no symptoms but high readings at home", "a dull morning headache", "a pounding feeling in the ears"),
        ("in the first hour after waking", "during busy weeks", "after salty take-away meals"),
        ("a pressure of 158 over 94", "a regular pulse of 76", "no swelling of the ankles"),
        ("amlodipine 5 mg each morning", "ramipril 2.5 mg at night", "indapamide 1.5 mg each morning"),
        ("measure twice a day for a week", "cook without the salt cellar", "walk for half an hour after lunch"),
    ),
    Condition(
        "eczema",
        ("itchy patches inside both elbows", "cracked fingertips", "a red rash behind the knees"),
        ("after washing up", "in centrally heated rooms", "after using a new washing powder", "under woollen sleeves"),
        ("dry, thickened skin without infection", "fine scratches on the forearms", "two weeping patches"),
        ("an emollient four times a day", "hydrocortisone 1 % cream for a week", "cetirizine 10 mg at night"),
        ("wear cotton under gloves", "apply the cream downwards along the hair", "keep baths short and cool"),
    ),
    Condition(
        "type 2 diabetes",
        ("more thirst than usual", "tired afternoons", "tingling toes at night"),
        ("after sweet breakfasts", "on days without a walk", "after the winter holidays"),
        ("good pulses in both feet", "reduced feeling at the big toe", "a long-term sugar of 61"),
        ("metformin 500 mg twice a day", "metformin 1 g with supper", "sitagliptin 100 mg each morning"),
        ("look at the soles of the feet each evening", "swap juice for water", "come to the Thursday class"),
    ),
    Condition(
        "poor sleep",
        ("waking at three every night", "lying awake for hours", "sleep that does not refresh"),
        ("after night shifts", "before early starts", "after evenings at the screen"),
        ("a calm, tired impression", "a normal thyroid", "no sign of low mood on the questionnaire"),
        ("melatonin 2 mg at night", "no medicine for now", "a herbal tea that does no harm"),
        ("get up at the same hour every day", "leave the telephone in the kitchen", "keep naps under twenty minutes"),
    ),
    Condition(
        "low back pain",
        ("an ache across the lower back", "back pain that shoots into the left leg", "a back that locks"),
        ("after lifting crates", "on long drives", "getting out of low chairs", "in the last hour of a shift"),
        ("a straight leg raise of 70 degrees", "tight muscles beside the spine", "equal reflexes in both legs"),
        ("ibuprofen 400 mg with food", "paracetamol 1 g at night", "a heat patch in the evening"),
        ("keep moving rather than lying down", "see the physiotherapist", "lift with bent knees"),
    ),
    Condition(
        "hay fever",
        ("streaming eyes and sneezing", "a blocked nose", "an itching palate"),
        ("when the birches bloom", "on windy days in June", "after mowing the lawn"),
        ("pale, swollen lining of the nose", "red eyes without discharge", "clear lungs"),
        ("loratadine 10 mg each morning", "a fluticasone nasal spray", "cromoglicate eye drops"),
        ("rinse the nose in the evening", "wear wraparound glasses outside", "dry the washing indoors"),
    ),
    Condition(
        "anaemia",
        ("breathlessness on the stairs", "pale skin and cold hands", "a heavy tiredness"),
        ("on steep hills", "after a strict diet", "towards the end of every week"),
        ("a haemoglobin of 98", "a low ferritin", "a quick but regular pulse"),
        ("ferrous sulfate 200 mg every other day", "folic acid 5 mg daily", "an iron syrup with orange juice"),
        ("leave an hour between iron and tea", "eat lentils and greens", "repeat the blood test in six weeks"),
    ),
    Condition(
        "an ankle sprain",
        ("a swollen right ankle", "pain on the outside of the left foot", "an ankle that keeps giving way"),
        ("after stepping off a kerb", "after a fall on wet leaves", "after five-a-side football"),
        ("bruising below the ankle bone", "no bony tenderness", "a stable joint with a sore ligament"),
        ("paracetamol as needed", "ibuprofen gel", "a support bandage for two weeks"),
        ("stand on one leg while brushing teeth", "rest it on a cushion", "begin with short walks"),
    ),
)

WOMEN = (
    "Adelheid", "Beatrix", "Clementine", "Dorothea", "Eluned", "Fenella", "Gwendolen", "Hyacinth", "Isolde",
    "Jacintha", "Keziah", "Leocadia", "Marigold", "Nerys", "Ottilie", "Philippa", "Rosamund", "Sunniva",
)  # fmt: skip
MEN = (
    "Ambrose", "Bartholomew", "Caradoc", "Dunstan", "Evander", "Fergus", "Gideon", "Hamish", "Ignatius",
    "Jocelyn", "Kester", "Leopold", "Montague", "Nathaniel", "Osric", "Peregrine", "Rafferty", "Septimus",
)  # fmt: skip
SURNAMES = (
    "Abernathy", "Birtwhistle", "Clutterbuck", "Dalrymple", "Entwistle", "Featherstone", "Goodfellow",
    "Haverstock", "Inglethorpe", "Jellicoe", "Kettlewell", "Lillywhite", "Micklethwait", "Netherby",
    "Oakapple", "Pettigrew", "Quillfeather", "Ravenscroft", "Satterthwaite", "Thistlewood", "Umfreville",
    "Vanterpool", "Wigglesworth", "Yarborough",
)  # fmt: skip
MAIL_HOSTS = ("example.org", "example.net", "example.com")

JOBS = (
    "baker", "bus driver", "teacher", "joiner", "librarian", "postal worker", "florist", "bookkeeper", "cook",
    "piano tuner", "night porter", "gardener", "dental nurse", "violin maker", "shepherd", "tram conductor",
)  # fmt: skip
HOBBIES = (
    "choir practice", "the allotment", "long walks with the dog", "chess evenings", "repairing old clocks",
    "wild swimming", "bell ringing", "the grandchildren", "amateur theatre", "bird watching", "ballroom dancing",
)  # fmt: skip
RELATIVES = ("mother", "father", "sister", "brother", "grandmother", "uncle", "aunt")
SINCE = ("for three days", "for two weeks", "since spring", "for a month", "since last Tuesday", "on and off for years")
ALLERGIES = ("penicillin", "latex gloves", "nothing we know of", "peanuts", "sticking plaster", "bee stings")
SUPPORTS = ("a neighbour", "an old friend", "the district nurse", "a cousin next door", "the lodger")
RETURNS = ("in two weeks", "in a month", "after the holidays", "if it gets worse", "when the results are back")

SECTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "presenting complaint": (
        (
            "A {age}-year-old {job} comes with {complaint} {since}.",
            "This {job}, {age}, reports {complaint}, mostly {trigger}.",
            "Seen today because of {complaint}, which {she} has had {since}.",
        ),
        (
            "It is worst {trigger} and spoils {hobby}.",
            "{She} has given up {hobby} for now because of it.",
            "Rest helps a little; {medicine} helped once before.",
            "No fever, no weight loss, and {her} appetite is good.",
            "{She} worries because {her} {relative} had something similar.",
            "On most days {she} rates it {score} out of ten.",
            "{She} also mentions {complaint2}, mostly {trigger2}.",
        ),
    ),
    "history": (
        (
            "Known with {condition} {since}; works as a {job}.",
            "Past history of {condition}, first seen here at the age of {past_age}.",
            "{Her} {relative} had {condition} too, and {she} remembers it well.",
        ),
        (
            "Allergies: {allergy}.",
            "{She} lives with {support} and enjoys {hobby}.",
            "Does not smoke; a glass of wine on Sundays.",
            "{She} gave up smoking {score} years ago and is proud of it.",
            "One operation, the appendix, as a child.",
            "Earlier episodes came {trigger} and passed without treatment.",
            "{She} has tried {medicine} with moderate success.",
            "Vaccinations are up to date, tetanus included.",
        ),
    ),
    "examination": (
        (
            "On examination there is {finding}.",
            "Looks well; examination shows {finding}.",
            "{She} walks in unaided and talks freely; there is {finding}.",
        ),
        (
            "We also note {finding2}.",
            "Heart sounds are normal and the lungs are clear.",
            "Temperature {temperature}, pulse {pulse}, all as it should be.",
            "{She} describes {complaint}, chiefly {trigger}, and points to the place.",
            "Weight has not changed since the last visit.",
            "The picture fits {condition}; nothing points to anything worse.",
            "{Her} {relative} came along and helped with the account.",
        ),
    ),
    "medication": (
        (
            "Started on {medicine} for {condition}.",
            "Current treatment is {medicine}; {she} takes it as agreed.",
            "We changed the treatment to {medicine} because of {complaint}.",
        ),
        (
            "If that is not enough, {medicine2} can be added.",
            "Allergies checked: {allergy}.",
            "{She} forgets the evening dose about once a week.",
            "Side effects were explained, above all a dry mouth and an upset stomach.",
            "{She} prefers to {advice} before taking more tablets.",
            "The pharmacist will put everything into a weekly box.",
            "{Support} reminds {him} on days of {hobby}.",
        ),
    ),
    "plan": (
        (
            "Agreed plan: {advice}, and {advice2}.",
            "For now {she} will {advice} and continue {medicine}.",
            "We explained {condition} and what {she} can do: {advice}.",
        ),
        (
            "Review {return_}.",
            "Blood count, kidney function and sugar were requested.",
            "{She} should call at once with severe pain, fainting or fever.",
            "A letter for the employer allows lighter work as a {job}.",
            "{She} hopes to be back at {hobby} soon.",
            "{Support} will bring {him} to the next visit.",
            "We will think of {medicine2} if that does not bring relief.",
        ),
    ),
    "telephone call": (
        (
            "Telephone call: {complaint} came back {trigger}.",
            "Called about {medicine}; asks whether it may be taken with supper.",
            "Rang the practice, a little anxious about {finding}.",
        ),
        (
            "Advised to {advice2} and to call again {return_}.",
            "{She} was at {hobby} when it began and had to sit down.",
            "It has been there {since} and is not getting worse.",
            "{Support} was with {him} and put {him} at ease.",
            "No alarm signs on careful questioning; {she} sounded cheerful by the end.",
            "Repeat prescription of {medicine} sent to the pharmacy.",
            "We talked about {condition} in general and how to {advice}.",
        ),
    ),
}

IDENTITIES = {
    "name": (
        "Patient's full name is {name}.",
        "{name} gave consent to this note.",
        "Note written for {name}, who read it over.",
    ),
    "phone": (
        "Best reached on {phone} after work.",
        "Please ring {phone} with the results.",
        "New telephone number: {phone}.",
    ),
    "email": (
        "Results may be sent to {email}.",
        "{She} asked for a reminder to {email}.",
        "Leaflet sent to {email} today.",
    ),
    "record": (
        "Record number {record}.",
        "Filed under {record}.",
        "The old paper file is {record}, in the cellar.",
    ),
}


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
    condition: Condition
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
    firsts = [(first, first in WOMEN) for first in WOMEN + MEN]
    people = [(first, last, woman) for first, woman in firsts for last in SURNAMES]
    lines = [(area, line) for area in range(201, 990) for line in range(100, 200)]
    numbers = teller.sample(range(100_000, 1_000_000), DEMO_PATIENTS)
    entries = zip(teller.sample(people, DEMO_PATIENTS), teller.sample(lines, DEMO_PATIENTS), numbers, strict=True)
    return [
        Patient(
            patient_id=f"patient-{index:03}",
            name=f"{first} {last}",
            is_woman=woman,
            age=teller.randrange(19, 89),
            job=teller.choice(JOBS),
            condition=teller.choice(CONDITIONS),
            phone=f"({area}) 555-0{line}",
            email=f"{first}.{last}@{teller.choice(MAIL_HOSTS)}".lower(),
            record=f"MRN-{number}",
        )
        for index, ((first, last, woman), (area, line), number) in enumerate(entries, 1)
    ]


def _notes_of(teller: random.Random, patient: Patient) -> Iterator[tuple[Patient, str, str]]:
    """Return notes that together hold all four of the patient's secrets."""
    kinds = teller.sample(list(IDENTITIES), len(IDENTITIES))
    count = teller.randint(*_NOTES_PER_PATIENT)
    for index, section in enumerate(teller.sample(list(SECTIONS), count)):
        yield patient, section, _text(teller, patient, section, kinds[index::count])


def _text(teller: random.Random, patient: Patient, section: str, kinds: list[str]) -> str:
    """Write an opening, then sentences and identities in any order, until the note is long enough."""
    openings, others = SECTIONS[section]
    slots = _slots(teller, patient)
    body = [teller.choice(IDENTITIES[kind]).format(**slots) for kind in kinds]
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
    support = teller.choice(SUPPORTS)
    return {
        "name": patient.name, "phone": patient.phone, "email": patient.email, "record": patient.record,
        "age": patient.age, "past_age": teller.randrange(12, patient.age), "job": patient.job,
        "she": she, "She": she.capitalize(), "her": her, "Her": her.capitalize(), "him": him,
        "condition": condition.name, "complaint": complaint, "complaint2": complaint2,
        "trigger": trigger, "trigger2": trigger2, "finding": finding, "finding2": finding2,
        "medicine": medicine, "medicine2": medicine2, "advice": advice, "advice2": advice2,
        "hobby": teller.choice(HOBBIES), "relative": teller.choice(RELATIVES),
        "since": teller.choice(SINCE), "allergy": teller.choice(ALLERGIES),
        "support": support, "Support": support[0].upper() + support[1:],
        "return_": teller.choice(RETURNS), "score": teller.randrange(3, 10),
        "temperature": f"36.{teller.randrange(3, 9)}", "pulse": teller.randrange(58, 88),
    }  # fmt: skip
