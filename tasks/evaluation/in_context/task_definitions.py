"""Definitions of the five tasks: the instruction, and the allowed answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from models_db.errors import UsageError

SHOTS = (1, 2, 4, 8, 12)
"""Numbers of demonstrations in the tables of Bhusal et al. (2026, Tables 2 and 3)."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: its name here; also that of the public data set.
        instruction: the first line of every prompt; like Bhusal et al. (2026, Figure 2) it does not name the labels.
        naming: for classification, a first line that names them, which can stand in for demonstrations.
        text_word, answer_word: what stands before a text and before its answer.
        words: for classification, the word that stands for each label, as the model reads and writes it; empty for
            slot filling, where the answer is a run of words of the text itself.
        answer_tokens: for slot filling, the most tokens of an answer.
    """

    name: str
    instruction: str
    text_word: str
    answer_word: str
    words: Mapping[str, str] = field(default_factory=dict)
    answer_tokens: int = 0
    naming: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of a classification, in a fixed order; empty for slot filling."""
        return tuple(self.words)

    @property
    def fills_slots(self) -> bool:
        """True where answers are free text."""
        return not self.words

    def word(self, label: str) -> str:
        """Return the word of a prompt for the answer `label`."""
        return label if self.fills_slots else self.words[label]


def task_named(name: str) -> Task:
    """Return the task of that name.

    Raises:
        UnknownTask.
    """
    if name not in TASKS:
        raise UsageError(
            f"There is no in-context task named {name!r}.",
            f"Choose one of {', '.join(TASKS)}.",
            {"task": name, "known": list(TASKS)},
            code="UnknownTask",
        )
    return TASKS[name]


_NEWS = {"World": "World", "Sports": "Sports", "Business": "Business", "Sci/Tech": "Technology"}

_QUESTIONS = {
    "abbreviation": "Abbreviation",
    "description": "Description",
    "entity": "Entity",
    "human": "Person",
    "location": "Location",
    "number": "Number",
}

_TOPICS = {
    "Album": "Album",
    "Animal": "Animal",
    "Artist": "Artist",
    "Athlete": "Athlete",
    "Building": "Building",
    "Company": "Company",
    "EducationalInstitution": "School",
    "Film": "Film",
    "MeanOfTransportation": "Vehicle",
    "NaturalPlace": "Nature",
    "OfficeHolder": "Politician",
    "Plant": "Plant",
    "Village": "Village",
    "WrittenWork": "Book",
}


def _classification(name: str, naming: str, words: Mapping[str, str]) -> Task:
    *most, last = words.values()
    naming = f"{naming}: {', '.join(most)} or {last}."
    return Task(name, "Classify each of these texts.", "Input", "Answer", MappingProxyType(words), naming=naming)


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        task.name: task
        for task in (
            _classification("agnews", "Name the section of the newspaper that each article belongs to", _NEWS),
            _classification("trec", "Name the kind of answer that each question asks for", _QUESTIONS),
            _classification("dbpedia14", "Name the kind of thing that each entry describes", _TOPICS),
            Task(
                "mit_movies_genre",
                "Copy from each request the words that name the genre of the film.",
                "Request",
                "Genre",
                answer_tokens=12,
            ),
            Task(
                "mit_movies_director",
                "Copy from each request the words that name the director of the film.",
                "Request",
                "Director",
                answer_tokens=12,
            ),
        )
    }
)
