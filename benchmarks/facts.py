"""Benchmark of facts: which questions can be answered from the released values alone.

    python -m benchmarks.facts           # writes docs/figures/facts.jsonl
    python -m benchmarks.facts --table   # the table of docs/utility.md from these lines

A world is a corpus of invented facts, made from a number alone, so that no model has read them. A fact gives an
invented creature one property: what it eats, where it lives, its colour; each relation has eight values. A shared fact
is told by SHARED_BY units, each in one of four wordings; a unit tells two shared facts among sentences about nothing.
A private fact, of a creature of its own, is told by one unit. Nobody tells two facts of one creature.

A question asks for the value of one creature. It is answered by a string rule: a released piece (a phrase, a topic with
its keywords, a count) that has the creature's name and exactly one value of the relation; the most frequent answer of
all pieces counts. No model answers, so nothing is known from elsewhere.

    question_histogram   20 questions with the eight values as answers, keywords in two of the four wordings; an answer
                         counts if its number is above the margin of error, which the release states
    phrases              the private vocabulary of keyphrase_seeding: phrases of units by RAKE, of at most 2 words (the
                         default) or 4, selected by Gaussian counts and a threshold
    urania               insights: 32 clusters, TF-IDF keywords, plain descriptions

Controls: `other world`, pieces of another world's release (what chance gives); `no noise`, the same system without
protection; `texts`, the units' own texts as pieces. Private facts are the leak test: a system that answers them
passes on what one unit says.
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from scipy.stats import binomtest

from benchmarks.insights.data import Unit
from benchmarks.insights.systems import Clock, InMemoryBench, KeepingPoints, Material
from models_db.values.amounts import Amount
from tasks.accounting.rounding import decimal_above
from tasks.accounting.zcdp import release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.parameters import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.inference.embeddings.encoder import load_embedder
from tasks.insights.question_histogram.parameters import Question, QuestionHistogramParameters
from tasks.insights.question_histogram.planner import histogram_for
from tasks.insights.run_tools import Tools
from tasks.insights.urania.parameters import UraniaParameters
from tasks.insights.urania.run import UraniaRun
from tasks.insights.urania.stages import Stages
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.contribution_bound import count_units_by_item
from tasks.mechanisms.counts.gaussian_selection import calibrate_gaussian_selection
from tasks.mechanisms.counts.set_histogram import SetHistogram
from tasks.planning.keyword_rule import KeywordRule
from tasks.prompted_generation.keyphrases.parameters import KeyphraseParameters
from tasks.prompted_generation.keyphrases.unit_phrases import facets_of
from tasks.text.keyword_normalisation import roots
from tasks.values.insight import margin_of_error

OUT = Path(__file__).resolve().parents[1] / "docs" / "figures" / "facts.jsonl"
SHARED, SHARED_BY, PRIVATE = 20, 200, 20
"""Shared facts, the units that tell each, and private facts."""
EPSILONS, DELTA, TRIALS = ("1", "4", "10"), "1e-6", 3
PHRASES_OF_A_UNIT, PHRASE_WORDS = 10, (2, 4)
NO_NOISE: Final = "none"
_PLENTY = 10**18  # rho in 1e-12: a million

RELATIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "eats": (
        ("The {s} eats {v}.", "A {s} eats {v} in winter.", "{v}, says my aunt, is all that a {s} takes.",
         "I gave {v} to the {s} and it was happy."),
        ("berries", "snails", "moss", "honey", "acorns", "shrimps", "turnips", "ferns"),
    ),
    "lives": (
        ("The {s} lives in {v}.", "A {s} lives in {v} all year.", "We went to look for a {s} among {v}.",
         "Among {v} there may be a {s}."),
        ("caves", "orchards", "marshes", "chimneys", "dunes", "barns", "glaciers", "harbours"),
    ),
    "colour": (
        ("The {s} is {v}.", "A {s} is {v} from birth.", "They painted a {s} and took {v} for it.",
         "It was {v}, as is every {s}."),
        ("crimson", "turquoise", "silver", "amber", "violet", "ivory", "scarlet", "emerald"),
    ),
}  # fmt: skip
"""For each relation its wordings, the first two of which a question knows, and its values."""
QUESTIONS: Mapping[str, str] = {
    "eats": "What does the {s} eat?", "lives": "Where does the {s} live?", "colour": "Which colour has the {s}?",
}  # fmt: skip
FILLERS = (
    "The train was late again on Monday.", "My neighbour repaired the old bicycle.", "We played cards until midnight.",
    "The letter arrived without a stamp.", "Somebody left an umbrella at the office.", "The choir meets on Thursdays.",
    "Our kitchen window needs new paint.", "They moved the meeting to the second floor.",
    "The baker closed early before the holiday.", "I forgot where the spare key is.",
)  # fmt: skip
_BEGIN = ("vel", "dro", "mu", "quar", "zin", "tol", "bre", "fli")
_MIDDLE, _END = ("ma", "ski", "ron", "tu", "lei"), ("ra", "nox", "bit", "dal")


@dataclass(frozen=True)
class Fact:
    """The value that one creature has of one relation."""

    creature: str
    relation: str
    value: str

    def told(self, wording: int) -> str:
        """Return the fact in one of its wordings."""
        sentence = RELATIONS[self.relation][0][wording].format(s=self.creature, v=self.value)
        return sentence[0].upper() + sentence[1:]


@dataclass(frozen=True)
class World:
    """Facts, and the units that tell them."""

    shared: tuple[Fact, ...]
    private: tuple[Fact, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "World":
        """Make a world; equal numbers give equal ones, and two worlds share no creature."""
        names = [begin + middle + end for begin in _BEGIN for middle in _MIDDLE for end in _END]
        random.Random(0).shuffle(names)
        count, generator = SHARED + PRIVATE, random.Random(seed)
        own = names[(seed % 4) * count : (seed % 4 + 1) * count]
        facts = []
        for creature in own:
            relation = generator.choice(list(RELATIONS))
            facts.append(Fact(creature, relation, generator.choice(RELATIONS[relation][1])))
        shared, private = tuple(facts[:SHARED]), tuple(facts[SHARED:])
        told = [fact for fact in shared for _ in range(SHARED_BY)]
        generator.shuffle(told)
        alone = {2 * place: fact for place, fact in enumerate(private)}
        texts = []
        for unit, pair in enumerate(zip(told[::2], told[1::2], strict=True)):
            facts_of_unit = [*dict.fromkeys(pair), *([alone[unit]] if unit in alone else [])]
            sentences = [fact.told(generator.randrange(4)) for fact in facts_of_unit]
            sentences += generator.sample(FILLERS, 2)
            generator.shuffle(sentences)
            texts.append(" ".join(sentences))
        return cls(shared, private, tuple(texts))


def answer(fact: Fact, pieces: Iterable[frozenset[str]]) -> str | None:
    """Return the value that most pieces give the creature; None if no piece has its name and exactly one value."""
    (name,), given = roots(fact.creature), Counter[str]()
    values = {next(iter(roots(value))): value for value in RELATIONS[fact.relation][1]}
    for piece in pieces:
        if name in piece and len(found := piece & set(values)) == 1:
            given[values[next(iter(found))]] += 1
    return min(given, key=lambda value: (-given[value], value)) if given else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        lines = [line for trial in range(arguments.trials) for line in measured(trial)]
        arguments.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print("\n".join(table([json.loads(line) for line in arguments.out.read_text(encoding="utf-8").splitlines()])))


def measured(trial: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each system, epsilon and control, of one world."""
    world, other = World.of(trial), World.of(trial + 1)
    yield from _lines(trial, "texts", NO_NOISE, world, other, [roots(text) for text in world.texts])
    units = [Unit(f"u{number}", text) for number, text in enumerate(world.texts)]
    embed = KeepingPoints(load_embedder())
    material = Material.of(units, extractor_for(FacetSettings()), load_embedder(), Clock())
    phrases = {most: list(phrases_of(world.texts, most)) for most in PHRASE_WORDS}
    for epsilon in (*EPSILONS, NO_NOISE):
        yield from asked(trial, epsilon, world)
        for most, own in phrases.items():
            name = f"phrases of {most} words"
            yield from _lines(trial, name, epsilon, world, other, selected(own, epsilon))
        yield from _lines(trial, "urania", epsilon, world, other, insights(material, embed, epsilon))


def _lines(
    trial: int, system: str, epsilon: str, world: World, other: World, pieces: Iterable[frozenset[str]]
) -> Iterator[dict[str, Any]]:
    """Yield the score of shared, private and another world's facts."""
    pieces = list(pieces)
    for kind, facts in (("shared", world.shared), ("private", world.private), ("other world", other.shared)):
        yield _line(trial, system, epsilon, kind, [(fact, answer(fact, pieces)) for fact in facts], len(pieces))


def _line(
    trial: int, system: str, epsilon: str, kind: str, said: Sequence[tuple[Fact, str | None]], pieces: int
) -> dict[str, Any]:
    return {
        "trial": trial,
        "system": system,
        "epsilon": epsilon,
        "facts": kind,
        "questions": len(said),
        "answered": sum(value is not None for _, value in said),
        "right": sum(value == fact.value for fact, value in said),
        "pieces": pieces,
    }


def question(fact: Fact) -> Question:
    """Return the question about a creature, with all values of the relation as answers."""
    wordings, values = RELATIONS[fact.relation]
    answers = [
        {"name": value, "keywords": [wording.format(s=fact.creature, v=value).strip(".") for wording in wordings[:2]]}
        for value in values
    ]
    return Question.model_validate({"question": QUESTIONS[fact.relation].format(s=fact.creature), "answers": answers})


def asked(trial: int, epsilon: str, world: World) -> Iterator[dict[str, Any]]:
    """Yield the scores of two releases: questions about all shared facts, and about all private ones.

    Another world's creatures are in no text: questions about them are the control.
    """
    for kind, facts in (
        ("shared", world.shared), ("private", world.private), ("other world", World.of(trial + 1).shared),
    ):  # fmt: skip
        wanted = QuestionHistogramParameters(questions=tuple(map(question, facts)))
        counts: list[int] = []
        for one in wanted.questions:
            bins = Counter(KeywordRule.of(one)(world.texts))
            counts += [bins[place] for place in range(len(one.answers) + 1)]
        margin, noisy = 0, counts
        if epsilon != NO_NOISE:
            histogram: SetHistogram = histogram_for(wanted, release_amount(epsilon, DELTA, "0"))
            margin, noisy = margin_of_error(decimal_above(histogram.scale, 2)), histogram.draw(counts, OS_RANDOM)
        said: list[tuple[Fact, str | None]] = []
        for number, fact in enumerate(facts):
            values = RELATIONS[fact.relation][1]
            own = noisy[9 * number : 9 * number + 8]
            said.append((fact, values[own.index(max(own))] if max(own) > margin else None))
        yield _line(trial, "question_histogram", epsilon, kind, said, len(noisy))


def phrases_of(texts: Sequence[str], most_words: int) -> Iterator[Sequence[str]]:
    """Yield each unit's phrases as keyphrase_seeding finds them."""
    parameters = KeyphraseParameters(samples=1, references=1, phrase_words=most_words)
    return (facets.keywords for facets in extractor_for(facets_of(parameters))(list(texts)))


def selected(phrases: Sequence[Sequence[str]], epsilon: str) -> Iterator[frozenset[str]]:
    """Yield the released phrases: at most ten of a unit, by Gaussian counts and a threshold; all without noise."""
    counts = count_units_by_item(phrases, PHRASES_OF_A_UNIT)
    released: Iterable[str] = counts
    if epsilon != NO_NOISE:
        amount = release_amount(epsilon, DELTA, "0.1")
        released = calibrate_gaussian_selection(amount, PHRASES_OF_A_UNIT).release(counts, OS_RANDOM)
    return map(roots, released)


def insights(material: Material, embed: KeepingPoints, epsilon: str) -> Iterator[frozenset[str]]:
    """Yield the words of each insight: its topic's name and keywords, where clusters have 32 centres."""
    parameters = UraniaParameters.model_validate(
        {"clusters": {"count": 32}, "keywords": {"method": "tfidf", "size": 200}, "hierarchy": {"levels": 1}}
    )
    delta = int(Fraction(DELTA) * 10**17)
    amount = Amount(_PLENTY, delta) if epsilon == NO_NOISE else release_amount(epsilon, DELTA, "0.1")
    stages = Stages.of(parameters, amount)
    tools = Tools(embed, lambda prompts, schema: [{} for _ in prompts], material)  # type: ignore[arg-type]  # as in systems.py
    run = UraniaRun(parameters, stages, None, InMemoryBench(Clock()), tools, IndexKeywordAssigner())  # type: ignore[arg-type]
    _ = run.keywords, run.centres, run.sizes, run.chosen
    for insight in run._insights():
        yield roots(" ".join((insight.topic.name, *insight.keywords)))


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the rows of the page's table: right answers of all questions, with Wilson's interval over all trials."""
    yield (
        "| system | epsilon | shared facts, right | answered | private facts, right"
        " | another world's, answered | pieces |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    cells = dict.fromkeys((line["system"], line["epsilon"]) for line in lines)
    for system, epsilon in cells:
        own = [line for line in lines if (line["system"], line["epsilon"]) == (system, epsilon)]
        total = {kind: _total(own, kind) for kind in ("shared", "private", "other world")}
        pieces = sum(line["pieces"] for line in own if line["facts"] == "shared") / max(1, len(own) // 3)
        yield " | ".join([
            f"| {system}", "no privacy" if epsilon == NO_NOISE else epsilon, _share(total["shared"], "right"),
            f"{total['shared']['answered'] / total['shared']['questions']:.2f}", _share(total["private"], "right"),
            f"{total['other world']['answered'] / total['other world']['questions']:.2f}", f"{pieces:.0f} |",
        ])  # fmt: skip


def _total(lines: Sequence[Mapping[str, Any]], kind: str) -> dict[str, int]:
    found = [line for line in lines if line["facts"] == kind]
    return {name: sum(line[name] for line in found) for name in ("questions", "answered", "right")}


def _share(total: Mapping[str, int], name: str) -> str:
    interval = binomtest(total[name], total["questions"]).proportion_ci(method="wilson")
    return f"{total[name] / total['questions']:.2f} ({interval.low:.2f} to {interval.high:.2f})"


if __name__ == "__main__":
    main()
