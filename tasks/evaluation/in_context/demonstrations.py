"""Tasks and k-shot prompts: the five tasks, labelled texts from a file, the choice of demonstrations, the tokens.

k-shot prompts as token sequences.

    Name the section ... : World, Sports, Business or Technology.

    Article: one demonstration, on one line
    Section: Sports

    Article: the text that is asked about
    Section:

Every piece is tokenised on its own, so the demonstrations are the same tokens whatever is asked after them and can be
read once for all items. A text is put on one line, because lines structure the prompt, and none of its tokens is a
control token whatever it spells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np

from models_db.errors import UsageError
from models_db.values.canonical_json import parse_json
from tasks.common.files import open_user_file
from tasks.inference.prompt_rendering import reference_tokens

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


Choice: TypeAlias = Literal["balanced", "random"]


@dataclass(frozen=True)
class Example:
    """A text and its label: a demonstration, or a test item."""

    text: str
    label: str


def _too_few_demonstrations(requested: int, available: int) -> UsageError:
    return UsageError(
        f"{requested} demonstrations are asked for; there are {available} that are not empty.",
        "Ask for fewer shots, or release more texts.",
        {"wanted": requested, "available": available},
        code="TooFewDemonstrations",
    )


def _label_without_demonstration(label: str, requested: int, available: int) -> UsageError:
    return UsageError(
        f"A balanced choice takes {requested} demonstrations of {label!r}; there are {available}.",
        "Ask for fewer shots, choose at random, or release more texts of this label.",
        {"label": label, "wanted": requested, "available": available},
        code="LabelWithoutDemonstration",
    )


def require_labels(task: Task, examples: Sequence[Example]) -> None:
    """Check that a classification knows every label.

    Raises:
        UnknownLabel.
    """
    for example in examples:
        if not task.fills_slots and example.label not in task.words:
            raise UsageError(
                f"The task {task.name!r} has no label {example.label!r}.",
                f"Its labels are {', '.join(task.labels)}.",
                {"task": task.name, "label": example.label, "known": list(task.labels)},
                code="UnknownLabel",
            )


def choose(task: Task, pool: Sequence[Example], shots: int, seed: int, how: Choice | None = None) -> list[Example]:
    """`shots` different examples of `pool`, in the order they are shown, which is the seed's too.

    Balanced: every label equally often, or once more where they do not divide; with fewer shots than labels, as many
    labels as shots, chosen by the seed. Random: any. Unless told, classification is balanced and slot filling random,
    as in Bhusal et al. (2026, Table 1). A larger choice by the same seed contains the smaller ones. Empty texts are
    passed over. The generator is an ordinary one: everything it chooses among may be shown.

    Raises:
        UnknownLabel, TooFewDemonstrations, LabelWithoutDemonstration.
    """
    require_labels(task, pool)
    usable = [example for example in pool if example.text.strip() and example.label.strip()]
    if shots > len(usable):
        raise _too_few_demonstrations(shots, len(usable))
    generator = np.random.default_rng(seed)
    mixed = [usable[place] for place in generator.permutation(len(usable))]
    balanced = (how or ("random" if task.fills_slots else "balanced")) == "balanced" and not task.fills_slots
    chosen = _balanced(task, mixed, shots, generator) if balanced else mixed[:shots]
    return [chosen[place] for place in generator.permutation(shots)]


def _balanced(task: Task, mixed: Sequence[Example], shots: int, generator: np.random.Generator) -> list[Example]:
    labels = [task.labels[place] for place in generator.permutation(len(task.labels))]
    by_label = [[example for example in mixed if example.label == label] for label in labels]
    for place, label in enumerate(labels):
        quota = shots // len(labels) + (place < shots % len(labels))
        if quota > len(by_label[place]):
            raise _label_without_demonstration(label, quota, len(by_label[place]))
    rounds = chain.from_iterable(zip_longest(*by_label))
    return [example for example in rounds if example is not None][:shots]


MOST_BYTES = 16 << 20
"""Maximum number of bytes of one line."""


def _no_example(file: Path, line: int) -> UsageError:
    return UsageError(
        f"Line {line} of {file.name} is not a labelled text.",
        "Each line is a JSON object with a text `text` and a text `label`, in UTF-8.",
        {"file": file.name, "line": line},
        code="NoExample",
    )


def read_examples(task: Task, file: Path) -> list[Example]:
    """Every line's `text` and `label`; other fields are passed over. For classification a label may be written as the
    task's word for it, as requests do that tell the model their labels. The file must be released or public.

    Raises:
        NoExample, UnknownLabel.
        OSError: the file cannot be read.
    """
    labels = {word: label for label, word in task.words.items()}
    with open_user_file(file) as lines:
        parsed = [_example(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    examples = [Example(example.text, labels.get(example.label, example.label)) for example in parsed]
    require_labels(task, examples)
    return examples


def _example(file: Path, number: int, line: bytes) -> Example:
    try:
        record: Any = parse_json(line, most_bytes=MOST_BYTES)
    except ValueError:  # a line that is not UTF-8 raises one too
        raise _no_example(file, number) from None
    if not isinstance(record, dict) or not all(isinstance(record.get(name), str) for name in ("text", "label")):
        raise _no_example(file, number)
    return Example(record["text"], record["label"])


END = "\n\n"
"""Terminator of an answer."""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts without content whose answers show the model's bias (Zhao et al., 2021, section 5, and its appendix)."""

Tokens = tuple[int, ...]


def _prompt_too_long(needed: int, possible: int) -> UsageError:
    return UsageError(
        f"The prompt without demonstrations needs {needed} positions; the model has {possible}.",
        "Allow fewer tokens for a text, or choose a model with a longer context.",
        {"needed": needed, "possible": possible},
        code="PromptTooLong",
    )


@dataclass(frozen=True)
class SharedPrompt:
    """Prompt prefix shared by all items of a run.

    Attributes:
        tokens: instruction and demonstrations.
        shots: demonstrations in it.
        dropped: demonstrations left out, the earliest first, because the context is not long enough.
        cut: of those in it, how many have a text that was cut.
    """

    tokens: Tokens
    shots: int
    dropped: int
    cut: int


@dataclass(frozen=True)
class PromptWriter:
    """Writes the prompts of one task for one tokenizer.

    Attributes:
        task: the task.
        tokenizer: transformers' tokenizer.
        most: tokens that a text may have; the rest of it is cut off.
    """

    task: Task
    tokenizer: Any = field(repr=False)
    most: int

    def question(self, text: str) -> tuple[Tokens, bool]:
        """Return the tokens of a text and of the word before its answer, and whether the text was cut."""
        line = " ".join(text.split())
        whole = reference_tokens(self.tokenizer, f" {line}" if line else "", self.most + 1)
        head, tail = self._tokens(f"{self.task.text_word}:"), self._tokens(f"\n{self.task.answer_word}:")
        return head + whole[: self.most] + tail, len(whole) > self.most

    def answer(self, label: str) -> Tokens:
        """Return the tokens of a label's word, as they follow a question."""
        return self._tokens(f" {' '.join(self.task.word(label).split())}")

    def label_words(self) -> list[Tokens]:
        """Return the answers of a classification, in the order of its labels.

        Where the tokens of one begin those of another, all of them carry the end of an answer: "Art" would else be at
        least as likely as "Art school", whatever the text.
        """
        words = [self.answer(label) for label in self.task.labels]
        shared = any(one != other and other[: len(one)] == one for one in words for other in words)
        return [word + self._tokens(END) for word in words] if shared else words

    def shared(self, demonstrations: Sequence[Example], room: int) -> SharedPrompt:
        """Instruction and demonstrations in at most `room` tokens.

        Raises:
            PromptTooLong: the instruction alone is longer.
        """
        opening = self._opening() + self._tokens(self.task.instruction + END)
        if len(opening) > room:
            raise _prompt_too_long(len(opening), room)
        parts = [self._demonstration(example) for example in demonstrations]
        dropped = 0
        while len(opening) + sum(len(tokens) for tokens, _ in parts[dropped:]) > room:
            dropped += 1
        kept = parts[dropped:]
        tokens = opening + tuple(token for part, _ in kept for token in part)
        return SharedPrompt(tokens, len(kept), dropped, sum(was_cut for _, was_cut in kept))

    def _demonstration(self, example: Example) -> tuple[Tokens, bool]:
        question, was_cut = self.question(example.text)
        return question + self._free_answer(example.label) + self._tokens(END), was_cut

    def _free_answer(self, label: str) -> Tokens:
        """Return the tokens of a slot's value as `answer` does: private text, so without control tokens, and cut."""
        if not self.task.fills_slots:
            return self.answer(label)
        return reference_tokens(self.tokenizer, f" {' '.join(label.split())}", self.task.answer_tokens)

    def _opening(self) -> Tokens:
        """Return the control tokens that this tokenizer puts in front of any text."""
        plain = self._tokens("a")
        begun = tuple(self.tokenizer("a")["input_ids"])
        return begun[: begun.index(plain[0])]

    def _tokens(self, text: str) -> Tokens:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
