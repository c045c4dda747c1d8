"""Calibration texts of the judge: public pairs of which one is clearly the better.

A fluent text is better than its own words in another order, and better than a fluent text about something else.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class JudgeProbe:
    """A topic and a fluent text about it."""

    topic: str
    text: str

    @property
    def shuffled(self) -> str:
        """The text's words, ordered by how they end: no sentence is left, and no word is missing."""
        return " ".join(sorted(self.text.split(), key=lambda word: word[::-1]))


JUDGE_PROBES = (
    JudgeProbe(
        "baking bread",
        "Let the dough rest under a damp cloth until it has doubled in size. Then shape the loaf gently, so that the"
        " air stays inside, and bake it in a very hot oven.",
    ),
    JudgeProbe(
        "a hotel stay",
        "Our room was clean and quiet, with a lovely view of the harbour. Breakfast was a little plain, but the staff"
        " could not have been friendlier.",
    ),
    JudgeProbe(
        "the moon",
        "The moon always shows us the same face, because it turns once on its axis in the time it takes to go around"
        " the earth. Its far side was first photographed in 1959.",
    ),
    JudgeProbe(
        "repairing a bicycle",
        "Before you patch the tube, find out what made the hole. Run your fingers carefully along the inside of the"
        " tyre; there is often a small piece of glass or wire in it.",
    ),
    JudgeProbe(
        "a visit to the dentist",
        "The dentist explained every step before she began, and the filling hardly hurt. I was asked to come back in"
        " six months for a check of the other side.",
    ),
    JudgeProbe(
        "growing tomatoes",
        "Tomatoes want sun, warmth and regular water. Pinch out the side shoots once a week, and tie the main stem to a"
        " stick before the fruit becomes heavy.",
    ),
    JudgeProbe(
        "a football match",
        "The home side scored twice before the break and then sat back. A late penalty made the last minutes nervous,"
        " but the goalkeeper held the ball and the match.",
    ),
    JudgeProbe(
        "learning the piano",
        "Practise slowly, one hand at a time, and only put the hands together when each is sure of its notes. Ten"
        " minutes every day are worth more than two hours on Sunday.",
    ),
    JudgeProbe(
        "a train delay",
        "The train stood outside the station for forty minutes because of a broken signal. Nobody told the passengers"
        " anything, and most of them missed their connection.",
    ),
    JudgeProbe(
        "choosing a laptop",
        "If you mostly write and read mail, a light machine with a good keyboard matters more than a fast processor."
        " Spend what is left over on memory.",
    ),
    JudgeProbe(
        "whales",
        "Humpback whales swim thousands of miles each year between cold waters, where they feed, and warm ones, where"
        " their calves are born. They sing on the way, and the songs change.",
    ),
    JudgeProbe(
        "moving to a new flat",
        "We packed the kitchen last and unpacked it first, which was wise. The sofa would not go up the stairs, so four"
        " friends lifted it over the balcony.",
    ),
    JudgeProbe(
        "a sprained ankle",
        "The patient slipped on wet stairs and turned his left ankle. It is swollen but not broken; he should rest it,"
        " cool it, and come again if he cannot walk in a week.",
    ),
    JudgeProbe(
        "saving money",
        "Write down what you spend for one month before you decide where to save. Most people find two or three small"
        " habits that cost more than they thought.",
    ),
    JudgeProbe(
        "a thunderstorm",
        "By four o'clock the sky over the hills had turned almost green. Then the wind dropped, the first heavy drops"
        " fell, and within a minute the street was a stream.",
    ),
    JudgeProbe(
        "training a dog",
        "Reward the dog in the same second in which it does what you want. If the treat comes late, the dog learns"
        " something, but seldom what you meant to teach.",
    ),
)
