"""Truthfulness of question histograms: answers by rule against known labels, on public data.

    python -m benchmarks.insights.questions --model-units 300  # writes docs/figures/insights_questions.jsonl
    python -m benchmarks.insights.questions --table            # the table of docs/insights-results.md

The labels of a corpus are the answers to one question. Keywords were written once, from the names of the labels and
what such corpora are known to be about, before a rule had read them. A rule's answers are compared with the labels unit
by unit, and its counts with those of the labels, both without noise. Then the counts are released with the noise of
epsilon 1, and it is counted how often a count is within its margin of error. The control answers at random, each answer
equally likely. Labels of these corpora are balanced, and random answers are too, so a second corpus has few units of
some labels.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
from scipy.stats import binomtest

from benchmarks.common.controls import answers_at_random
from benchmarks.common.json_lines import DATA, read_lines, write_lines
from benchmarks.insights.cells import MODEL
from tasks.accounting.rounding import decimal_above
from tasks.accounting.zcdp import release_amount
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.systems.question_histogram import histogram_for
from tasks.systems.question_histogram.questions import NO_ANSWER, Question, QuestionHistogramParameters
from tasks.systems.question_histogram.run import AnswerRule, KeywordRule, ModelRule
from tasks.values.results import margin_of_error

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "insights_questions.jsonl"
EPSILON, DELTA, RELEASES = "1", "1e-6", 200
MOST_ANSWERS_OF_THE_MODEL = 6
"""The model takes a pass for each answer of a text: with more answers it takes too long here."""

ASKED: Mapping[str, str] = {"agnews": "What is this news item about?", "dbpedia14": "What does this text describe?"}
KEYWORDS: Mapping[str, Mapping[str, str]] = {
    "agnews": {
        "World": "war, troops, president, minister, government, election, military, attack, killed, bomb, police,"
        " peace, rebels, iraq, israel, palestinian, afghanistan, russia, china, nuclear, hostage, parliament,"
        " united nations",
        "Sports": "game, team, season, coach, player, match, win, victory, champion, championship, league, cup,"
        " olympic, football, basketball, baseball, soccer, tennis, golf, goal, score, tournament, quarterback, medal",
        "Business": "company, shares, stock, market, profit, sales, earnings, oil, price, bank, investor, economy,"
        " economic, trade, merger, dollar, billion, quarter, growth, jobs, inflation, airline, deal, ceo",
        "Sci/Tech": "software, computer, internet, microsoft, google, apple, web, online, technology, scientist,"
        " research, space, nasa, satellite, phone, wireless, chip, virus, security, server, linux, game console, study",
    },
    "dbpedia14": {
        "Company": "company, corporation, manufacturer, headquartered, firm, inc, ltd",
        "EducationalInstitution": "school, university, college, students, academy, campus",
        "Artist": "singer, musician, painter, artist, songwriter, guitarist, composer, writer, author, poet",
        "Athlete": "footballer, player, played for, athlete, swimmer, cyclist, pitcher, striker, midfielder",
        "OfficeHolder": "politician, senator, minister, governor, member of parliament, mayor, elected",
        "MeanOfTransportation": "ship, aircraft, locomotive, submarine, car, airliner, destroyer, vessel, engine",
        "Building": "building, house, church, hotel, tower, museum, hospital, listed, mansion, castle",
        "NaturalPlace": "river, lake, mountain, peak, tributary, creek, glacier, volcano, elevation",
        "Village": "village, census, population, rural district, municipality, hamlet",
        "Animal": "species of moth, species of beetle, genus, snail, fish, bird, frog, spider, moth, family, gastropod",
        "Plant": "plant, flowering plant, tree, shrub, orchid, flower, endemic plant, herb, fern, leaves",
        "Album": "album, studio album, tracks, recorded, released by, records, live album",
        "Film": "film, directed by, starring, movie, comedy film, drama film, screenplay",
        "WrittenWork": "novel, book, published, newspaper, magazine, journal, comic, written by",
    },
}


class RandomRule:
    """The control: an answer at random, each equally likely, none is `no answer`."""

    def __init__(self, question: Question) -> None:
        self.answers = len(question.answers)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return an answer for each text."""
        return answers_at_random(len(texts), self.answers, seed=5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--corpus", nargs="*", choices=sorted(KEYWORDS), default=sorted(KEYWORDS))
    parser.add_argument("--model-units", type=int, default=0, help="units that the model answers for; 0 for no model")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        lines = [line for name in arguments.corpus for line in measured(name, arguments.model_units)]
        write_lines(arguments.out, lines)
    print("\n".join(table(read_lines(arguments.out))))


def question_for(corpus: str, **changes: Any) -> Question:
    """Return the question whose answers are the labels of a corpus."""
    answers = [{"name": name, "keywords": words.split(", ")} for name, words in KEYWORDS[corpus].items()]
    return Question.model_validate({"question": ASKED[corpus], "answers": answers} | changes)


def measured(corpus: str, model_units: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each rule."""
    rows = read_lines(DATA / f"{corpus}.jsonl")
    question = question_for(corpus)
    skewed = list(_skewed(rows))
    rules: dict[str, AnswerRule] = {
        "keywords, most": KeywordRule.of(question),
        "keywords, first": KeywordRule.of(question_for(corpus, match="first")),
        "at random": RandomRule(question),
    }
    for name, rule in rules.items():
        yield line_of(corpus, name, question, rows, rule)
    for name, rule in rules.items():
        yield line_of(f"{corpus}, skewed", name, question, skewed, rule)
    if model_units and len(question.answers) <= MOST_ANSWERS_OF_THE_MODEL:
        some = random.Random(7).sample(rows, model_units)
        by_model = question_for(corpus, rule="model", answers=[{"name": answer.name} for answer in question.answers])
        model = ModelRule.of(by_model, Engine(load(MODEL, "auto")), 192, lambda done, of: None)
        for name, rule in (
            ("model", model),
            ("keywords, most", rules["keywords, most"]),
            ("at random", rules["at random"]),
        ):
            yield line_of(corpus, name, question, some, rule)


def _skewed(rows: Sequence[Mapping[str, str]]) -> Iterator[Mapping[str, str]]:
    """Yield the first 1/n of the n-th label's units, in the order of the alphabet: labels of unequal shares."""
    labels = sorted({row["label"] for row in rows})
    for number, label in enumerate(labels, 1):
        own = [row for row in rows if row["label"] == label]
        yield from own[: len(own) // number]


def line_of(
    corpus: str, name: str, question: Question, rows: Sequence[Mapping[str, str]], rule: AnswerRule
) -> dict[str, Any]:
    """Return the figures of one rule on some units."""
    names, labels = question.names, [row["label"] for row in rows]
    said = [names[number] for number in rule([row["text"] for row in rows])]
    counts, true = Counter(said), Counter(labels)
    right = sum(one == label for one, label in zip(said, labels, strict=True))
    interval = binomtest(right, len(rows)).proportion_ci(method="wilson")
    answered = len(rows) - counts[NO_ANSWER]
    parameters = QuestionHistogramParameters(questions=(question,))
    histogram = histogram_for(parameters, release_amount(EPSILON, DELTA, "0"))
    margin, exact = margin_of_error(decimal_above(histogram.scale, 2)), [counts[answer] for answer in names]
    within = sum(
        abs(noisy - count) <= margin
        for _ in range(RELEASES)
        for noisy, count in zip(histogram.draw(exact, OS_RANDOM), exact, strict=True)
    )
    shares = [counts[answer] / max(1, answered) - true[answer] / len(rows) for answer in names[:-1]]
    return {
        "corpus": corpus,
        "rule": name,
        "units": len(rows),
        "answers": len(names) - 1,
        "right": right,
        "right_low": round(interval.low, 4),
        "right_high": round(interval.high, 4),
        "no_answer": counts[NO_ANSWER],
        "total_variation": round(sum(map(abs, shares)) / 2, 4),
        "largest_error": max(abs(counts[answer] - true[answer]) for answer in names[:-1]),
        "margin": margin,
        "within_margin": within,
        "draws": RELEASES * len(names),
        "counts": {answer: [counts[answer], true[answer]] for answer in names},
    }


def table(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the rows of the page's table."""
    yield (
        "| corpus | rule | units | right | no answer | right of the answered | total variation"
        " | largest error of a count | margin at epsilon 1 | within it |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for line in lines:
        units, answered = line["units"], line["units"] - line["no_answer"]
        yield " | ".join([
            f"| {line['corpus']}, {line['answers']} answers", line["rule"], f"{units:,}",
            f"{line['right'] / units:.3f} ({line['right_low']:.3f} to {line['right_high']:.3f})",
            f"{line['no_answer'] / units:.2f}", f"{line['right'] / max(1, answered):.2f}",
            f"{line['total_variation']:.3f}", f"{line['largest_error']:,}", str(line["margin"]),
            f"{line['within_margin'] / line['draws']:.3f} |",
        ])  # fmt: skip


if __name__ == "__main__":
    main()
