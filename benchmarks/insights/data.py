"""The corpora of the insights benchmark, all public: published chats, a synthetic one, and the leakage test's.

A unit is one row of text. Nothing here is committed but the words of the synthetic corpora (`insights/topics.py`).
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.json_lines import DATA, read_lines
from benchmarks.insights.topics import POOL, SENSITIVE, SENTENCES, topics

CHATS, SYNTHETIC, YELP = "chats", "synthetic", "yelp"
PUBLIC = ("trec.jsonl", "agnews.jsonl", "dbpedia14.jsonl", "yelp.jsonl")
"""What a public keyword set is made from; none of it is in the chats."""


@dataclass(frozen=True)
class Unit:
    """One unit. `topic` is what it was made about, known of synthetic ones alone."""

    id: str
    text: str
    topic: str | None = None


def corpus(name: str, count: int | None = None, data: Path = DATA) -> list[Unit]:
    """The chats, the reviews of Yelp, or so many synthetic units; of texts so many, spread over all of them."""
    if name == SYNTHETIC:
        return synthetic(count or 50_000)
    found = (
        chats(data) if name == CHATS else [Unit(row["id"], row["text"]) for row in read_lines(data / f"{name}.jsonl")]
    )
    return found if count is None else found[:: max(1, len(found) // count)][:count]


def chats(data: Path = DATA) -> list[Unit]:
    """dolly_prompts, user_prompts_open and oasst_en100, whose unit is a tree: its messages joined."""
    trees: dict[str, list[str]] = {}
    for message in read_lines(data / "oasst_en100.jsonl"):
        trees.setdefault(message["tree"], []).append(message["text"])
    single = [*read_lines(data / "dolly_prompts.jsonl"), *read_lines(data / "user_prompts_open.jsonl")]
    found = [Unit(each["id"], each["text"]) for each in single]
    return found + [Unit(tree, "\n\n".join(texts)) for tree, texts in trees.items()]


def public_texts(data: Path = DATA, each: int = 500) -> list[str]:
    """Texts of other public sets, as many of each."""
    return [line["text"] for name in PUBLIC for line in read_lines(data / name)[:each]]


def synthetic(count: int) -> list[Unit]:
    """Units of 64 topics whose sizes fall as 1/(rank + 2): of 50,000 the largest has 4,300, the smallest 200."""
    generator = random.Random(7)
    names = list(topics())
    weights = [1 / (rank + 2) for rank in range(1, len(names) + 1)]
    chosen = generator.choices(names, weights, k=count)
    return [Unit(f"s{number}", _about(topic, generator), topic) for number, topic in enumerate(chosen)]


def _about(topic: str, generator: random.Random) -> str:
    """One or two sentences, each with two phrases of the topic."""
    sentences = []
    for sentence in generator.sample(SENTENCES, generator.choice((1, 1, 2))):
        first, second = generator.sample(topics()[topic], 2)
        sentences.append(sentence.format(a=first, b=second))
    return " ".join(sentences)


def leakage_runs(runs: int, size: int = 100) -> Iterator[tuple[list[Unit], bool]]:
    """Corpora of `size` conversations, every second with the sensitive one among them.

    The others are drawn anew for each run: somebody who looks at insights does not know all other conversations.
    """
    generator = random.Random(11)
    for number in range(runs):
        with_it = number % 2 == 0
        units = [Unit(f"c{place}", _plain_prompt(generator)) for place in range(size)]
        if with_it:
            units[generator.randrange(size)] = Unit("sensitive", SENSITIVE)
        yield units, with_it


def _plain_prompt(generator: random.Random) -> str:
    phrases = POOL[generator.choice(list(POOL))]
    sentence = generator.choice(SENTENCES)
    first, second = generator.sample(phrases, 2)
    return sentence.format(a=first, b=second)
