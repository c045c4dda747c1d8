"""Released demonstrations for the in-context benchmark: the real generators, at a bench in memory.

The data sets are public, which is why a bench without a ledger may arm nothing and why the loss it counts protects
nobody. A pool is kept in a file with what made it, and serves every number of shots. Labels are public sets, declared
here from general knowledge: for classification the task's own, for slots well-known genres and directors. A slot's
text that came out without its value is no demonstration and is left out.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.common.json_lines import append_lines
from benchmarks.common.open_bench import KEY, open_bench
from models_db.home import ProjectHome
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.ingest import ingest
from tasks.corpus.store import Corpus, open_corpus
from tasks.evaluation.in_context.demonstrations import Example, Task
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.values.plan import PlanInputs
from tasks.values.results import Generated

DELTA = Decimal("1e-6")
PUBLIC_ONLY = "public_only"
TOP_K = 100
"""Public candidates of a token. With the whole vocabulary and so few references, what is drawn is noise."""

DESCRIPTIONS = {
    "agnews": "Short newspaper articles of one or two sentences.",
    "trec": "Short factual questions, one sentence each. The category is the kind of answer.",
    "dbpedia14": "The first two sentences of an encyclopedia entry. The category is what it is about.",
    "mit_movies_genre": "What a person says to a search engine for films, one sentence that contains the category.",
    "mit_movies_director": "What a person says to a search engine for films, one sentence with the director's name.",
}
GENRES = (
    "comedy",
    "horror",
    "thriller",
    "musical",
    "drama",
    "western",
    "science fiction",
    "documentary",
    "romantic comedy",
    "action",
    "fantasy",
    "animated",
)
DIRECTORS = (
    "steven spielberg",
    "alfred hitchcock",
    "martin scorsese",
    "stanley kubrick",
    "quentin tarantino",
    "james cameron",
    "tim burton",
    "ridley scott",
    "woody allen",
    "clint eastwood",
    "ron howard",
    "spike lee",
)
SLOTS = {"mit_movies_genre": GENRES, "mit_movies_director": DIRECTORS}


@dataclass(frozen=True)
class Sizes:
    """Public sizes of a release; see docs/requests.md."""

    samples: int
    references: int
    max_new_tokens: int
    max_reference_tokens: int
    temperature: str
    precision: str


def kept_pool(
    kept: Path | None, task: Task, column: str, sizes: Sizes, make: Callable[[], list[Example]]
) -> list[Example]:
    """The pool that `kept` has of these sizes, or the one that `make` makes, which is then appended to it."""
    made_by = {"task": task.name, "column": column, "sizes": asdict(sizes)}
    if kept and kept.exists():
        for row in map(json.loads, kept.open(encoding="utf-8")):
            if {name: row[name] for name in made_by} == made_by:
                return [Example(text, label) for text, label in row["texts"]]
    started = time.process_time()
    pool = make()
    row = made_by | {"texts": [[made.text, made.label] for made in pool], "seconds": time.process_time() - started}
    if kept:
        append_lines(kept, [row])
    return pool


def public_labels(task: Task) -> dict[str, str]:
    """Each declared label's word for the model -> the label."""
    return (
        {word: word for word in SLOTS[task.name]} if task.fills_slots else {w: label for label, w in task.words.items()}
    )


def store(task: Task, examples: Sequence[Example], folder: Path) -> Corpus:
    """The examples as an ingested version whose labels are the model's words; every text is a unit."""
    home, source = ProjectHome(folder / "home"), folder / "private.jsonl"
    home.create()
    with source.open("w", encoding="utf-8") as lines:
        for number, example in enumerate(examples):
            record = {"id": f"{number}", "unit": f"{number}", "text": example.text, "label": task.word(example.label)}
            lines.write(json.dumps(record) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY, label_field="label").uid)


def released(
    engine: Engine, task: Task, corpus: Corpus, units: int, mechanism: str, epsilon: str, sizes: Sizes
) -> list[Example]:
    """The demonstrations of one release by a private mechanism."""
    words = public_labels(task)
    system = SYSTEMS[mechanism]
    parameters = system.parameters.model_validate(_parameters(sizes) | {"labels": tuple(words)})
    plan = system.plan(PlanInputs(release_amount(Decimal(epsilon), DELTA), parameters, 1, units, governed=True))
    prompt = PromptSpec.of(Prompt(description=DESCRIPTIONS[task.name]), tuple(words))
    made = system.generate(plan, parameters, open_bench(engine, corpus, prompt))
    labels = [text.label or "" for text in made.texts]
    return _usable(task, made, [words[label] for label in labels])


def public_only(engine: Engine, task: Task, corpus: Corpus, sizes: Sizes) -> list[Example]:
    """Demonstrations that the public model writes by itself, label by label."""
    words = public_labels(task)
    each = -(-sizes.samples // len(words))
    system, found = SYSTEMS[PUBLIC_ONLY], []
    for word, label in words.items():
        parameters = system.parameters.model_validate(_parameters(sizes) | {"samples": each})
        plan = system.plan(PlanInputs(None, parameters, 1, None, governed=True))
        prompt = PromptSpec.of(Prompt(description=f"{DESCRIPTIONS[task.name]}\n\nCategory: {word}"))
        found += _usable(task, system.generate(plan, parameters, open_bench(engine, corpus, prompt)), [label] * each)
    return found


def _parameters(sizes: Sizes) -> dict[str, Any]:
    return {
        "samples": sizes.samples,
        "references": sizes.references,
        "max_new_tokens": sizes.max_new_tokens,
        "max_reference_tokens": sizes.max_reference_tokens,
        "temperature": sizes.temperature,
        "top_k": TOP_K,
        "precision": sizes.precision,
    }


def _usable(task: Task, made: Generated, labels: Sequence[str]) -> list[Example]:
    pairs = [Example(text.text, label) for text, label in zip(made.texts, labels, strict=True)]
    pairs = [pair for pair in pairs if pair.text.strip()]
    return [pair for pair in pairs if not task.fills_slots or pair.label in pair.text.lower()]
