"""Benchmark of facts: which questions can be answered from released counts, phrases and insights alone.

    python -m benchmarks.invented_facts.released_values           # appends what is missing to docs/figures/facts.jsonl
    python -m benchmarks.invented_facts.released_values --table   # the table of docs/facts.md from these lines

Worlds and the rule that answers are those of `worlds.py`; released texts are asked in `released_texts.py`.

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
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.json_lines import append_lines, read_lines_if_there
from benchmarks.insights.data import Unit
from benchmarks.insights.systems import Clock, InMemoryBench, KeepingPoints, Material, nobody
from benchmarks.invented_facts.worlds import (
    DELTA,
    EPSILONS,
    NO_NOISE,
    RELATIONS,
    TRIALS,
    Fact,
    World,
    line_of,
    lines_of,
    table,
)
from models_db.values.amounts import Amount
from tasks.accounting.rounding import decimal_above
from tasks.accounting.zcdp import release_amount
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.facet_settings import FacetSettings
from tasks.analysis.keywords.assign import IndexKeywordAssigner
from tasks.inference.embeddings.encoder import load_embedder
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.mechanisms.counts.set_histogram import SetHistogram, count_units_by_item
from tasks.mechanisms.counts.threshold_selection import calibrate_gaussian_selection
from tasks.systems.insights.private_units import Tools
from tasks.systems.keyphrase_seeding.phrases import facets_of
from tasks.systems.keyphrase_seeding.stages import KeyphraseParameters
from tasks.systems.question_histogram import histogram_for
from tasks.systems.question_histogram.questions import Question, QuestionHistogramParameters
from tasks.systems.question_histogram.run import KeywordRule
from tasks.systems.urania.run import UraniaRun
from tasks.systems.urania.stages import Stages, UraniaParameters
from tasks.text.words import roots
from tasks.values.results import margin_of_error

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "facts.jsonl"
PHRASES_OF_A_UNIT, PHRASE_WORDS = 10, (2, 4)
_PLENTY = 10**18  # rho in 1e-12: a million

QUESTIONS: Mapping[str, str] = {
    "eats": "What does the {s} eat?", "lives": "Where does the {s} live?", "colour": "Which colour has the {s}?",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        there = read_lines_if_there(arguments.out)
        for trial in range(arguments.trials):
            measured_before = {line["epsilon"] for line in there if line["trial"] == trial}
            append_lines(arguments.out, measured(trial, measured_before))
    print("\n".join(table(read_lines_if_there(arguments.out))))


def measured(trial: int, measured_before: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a line for each system, epsilon and control of one world, but for epsilons that were measured before."""
    wanted = [epsilon for epsilon in (*EPSILONS, NO_NOISE) if epsilon not in measured_before]
    if not wanted:
        return
    world, other = World.of(trial), World.of(trial + 1)
    if NO_NOISE in wanted:
        yield from lines_of(trial, "texts", NO_NOISE, world, other, [roots(text) for text in world.texts])
    units = [Unit(f"u{number}", text) for number, text in enumerate(world.texts)]
    embed = KeepingPoints(load_embedder())
    material = Material.of(units, extractor_for(FacetSettings()), load_embedder(), Clock())
    phrases = {most: list(phrases_of(world.texts, most)) for most in PHRASE_WORDS}
    for epsilon in wanted:
        yield from asked(trial, epsilon, world)
        for most, own in phrases.items():
            name = f"phrases of {most} words"
            yield from lines_of(trial, name, epsilon, world, other, selected(own, epsilon))
        yield from lines_of(trial, "urania", epsilon, world, other, insights(material, embed, epsilon))


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
        yield line_of(trial, "question_histogram", epsilon, kind, said, len(noisy))


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
    tools = Tools(embed, nobody, material)  # type: ignore[arg-type]  # they have what is asked of them
    run = UraniaRun(parameters, stages, None, InMemoryBench(Clock()), tools, IndexKeywordAssigner())  # type: ignore[arg-type]  # as `systems.urania`
    _ = run.keywords, run.centres, run.sizes, run.chosen
    for insight in run._insights():
        yield roots(" ".join((insight.topic.name, *insight.keywords)))


if __name__ == "__main__":
    main()
