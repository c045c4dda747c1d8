"""Attribute inference: a release that carries people over is worse for them than for others, and only that one is."""

import json
from collections import Counter

import numpy as np
import pytest

from tasks.attacks.attribute_inference import Person, infer
from tasks.attacks.extraction import Extracted
from tests.support import shared_data
from tests.unit.tasks.attacks.people import WordEmbedder, random_texts

pytestmark = pytest.mark.dear
CONCERNS = ("tasks/attacks",)


class Line:
    """Texts are angles: near on the circle is near in the space."""

    name = "line"

    def __call__(self, texts):
        angles = np.array([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)


def test_a_guess_by_hand():
    """Released 0.0 .. 0.2 stand nearest to people of value a, 2.0 .. 2.2 to those of b; each person to one group."""
    public = [Person(str(at), value) for value, start in (("a", 0.0), ("b", 2.0)) for at in np.arange(5) * 0.01 + start]
    released = ["0.0", "0.1", "0.2", "2.0", "2.1", "2.2"]
    members = [Person("0.1", "a"), Person("2.1", "a")]
    held_out = [Person("2.3", "b")]
    found = infer(Line(), released, public, members, held_out)
    assert found.members == Extracted(1, 2)
    assert found.held_out == Extracted(1, 1)
    # a and b are equally common among the public: the first by name, right for two of three.
    assert found.commonest == Extracted(2, 3)


def test_nothing_to_go_by_is_no_figure():
    person = Person("0.1", "a")
    assert infer(Line(), [], [person], [person], []) is None
    assert infer(Line(), ["0.1"], [], [person], []) is None
    assert infer(Line(), ["0.1"], [person], [], []).members.share is None


def people(texts, seed):
    values = np.random.default_rng(seed).choice(["north", "south", "east"], len(texts))
    return [Person(text, value) for text, value in zip(texts, values, strict=True)]


def test_texts_without_any_relation_to_the_attribute_tell_nothing():
    public, members, others = (people(random_texts(60, 20, seed), seed) for seed in (1, 2, 3))
    found = infer(WordEmbedder(), random_texts(30, 20, 4), public, members, others)
    low, high = found.members.interval
    assert low < 1 / 3 < high


@pytest.mark.slow
def test_real_comments_that_are_copied_give_their_authors_away():
    """personal_reddit_synth, the worst release there is: what the attacker knows, with the answer beside it."""
    rows = [json.loads(line) for line in shared_data("personal_reddit_synth.jsonl").read_text().splitlines()]
    every = Counter(json.dumps(row["author_attributes"], sort_keys=True) for row in rows)
    assert len(every) > 20
    known = [Person(row["question"] + " " + row["text"], row["author_attributes"]["sex"]) for row in rows]
    found = infer(WordEmbedder(), [p.known_text for p in known[:150]], known[:150], known[:150], known[150:])
    assert found.members.share > found.held_out.share
    assert found.members.interval[0] > 0.5 > found.held_out.interval[0]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_texts_than_neighbours_are_enough(count):
    public = [Person("0.1", "a")] * count
    assert infer(Line(), ["0.2"] * count, public, public, public).members == Extracted(count, count)
