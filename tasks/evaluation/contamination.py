"""Contamination probe: signs that the public model had read the private documents before any release.

Passages on which the contamination probe is tried: texts that every large web corpus has, and texts of none. The known
ones are in the public domain, or are forms of words that are free to repeat. The fresh ones were written for it,
in a similar tone.

A document is cut into a beginning and a continuation. Somebody who knows a text by heart continues it as it goes on, so
its own continuation is much likelier than another document's (the control). But whoever understands a language finds a
fitting continuation likelier, too. So the same figures stand beside it for passages that every model has read, and for
passages that none has (the trial): the gain of a corpus tells something only where these two are apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.evaluation import intervals
from tasks.evaluation.evaluation_input import EvaluationInput, Scorer, figure, sample
from tasks.evaluation.intervals import wilson
from tasks.values.results import MetricResult, MetricValue, rounded

KNOWN = (
    (
        "Permission is hereby granted, free of charge, to any person obtaining a copy of this software and"
        ' associated documentation files (the "Software"), to deal in the Software without restriction,'
        " including without limitation the rights to use, copy, modify, merge, publish, distribute,"
        " sublicense, and/or sell copies of the Software"
    ),
    (
        "Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived"
        " in Liberty, and dedicated to the proposition that all men are created equal. Now we are engaged in a"
        " great civil war, testing whether that nation, or any nation so conceived and so dedicated, can long"
        " endure."
    ),
    (
        "We hold these truths to be self-evident, that all men are created equal, that they are endowed by"
        " their Creator with certain unalienable Rights, that among these are Life, Liberty and the pursuit of"
        " Happiness. That to secure these rights, Governments are instituted among Men, deriving their just"
        " powers from the consent of the governed."
    ),
    (
        "We the People of the United States, in Order to form a more perfect Union, establish Justice, insure"
        " domestic Tranquility, provide for the common defence, promote the general Welfare, and secure the"
        " Blessings of Liberty to ourselves and our Posterity, do ordain and establish this Constitution for"
        " the United States of America."
    ),
    (
        "In the beginning God created the heaven and the earth. And the earth was without form, and void; and"
        " darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And"
        " God said, Let there be light: and there was light."
    ),
    (
        "Our Father which art in heaven, Hallowed be thy name. Thy kingdom come. Thy will be done in earth,"
        " as it is in heaven. Give us this day our daily bread. And forgive us our debts, as we forgive our"
        " debtors. And lead us not into temptation, but deliver us from evil"
    ),
    (
        "The Lord is my shepherd; I shall not want. He maketh me to lie down in green pastures: he leadeth me"
        " beside the still waters. He restoreth my soul: he leadeth me in the paths of righteousness for his"
        " name's sake. Yea, though I walk through the valley of the shadow of death, I will fear no evil"
    ),
    (
        "To be, or not to be: that is the question: Whether 'tis nobler in the mind to suffer The slings and"
        " arrows of outrageous fortune, Or to take arms against a sea of troubles, And by opposing end them?"
        " To die: to sleep; No more; and by a sleep to say we end The heart-ache"
    ),
    (
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be"
        " in want of a wife. However little known the feelings or views of such a man may be on his first"
        " entering a neighbourhood, this truth is so well fixed in the minds of the surrounding families"
    ),
    (
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of"
        " foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of"
        " Light, it was the season of Darkness, it was the spring of hope"
    ),
    (
        "All human beings are born free and equal in dignity and rights. They are endowed with reason and"
        " conscience and should act towards one another in a spirit of brotherhood. Everyone is entitled to"
        " all the rights and freedoms set forth in this Declaration, without distinction of any kind"
    ),
    (
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore"
        " et dolore magna aliqua. Ut enim ad minim veniam, quis nostrud exercitation ullamco laboris nisi ut"
        " aliquip ex ea commodo consequat. Duis aute irure dolor in reprehenderit in voluptate"
    ),
)

FRESH = (
    (
        "Anybody who borrows this ladder may carry it through the yard, lean it against any wall that faces"
        " the canal, and lend it to a neighbour, provided that the red cloth stays tied to the highest rung"
        " and that it is back in the shed before the bakery closes on Thursday"
    ),
    (
        "Thirty winters have gone since the ferrymen of our valley swore to share one bell, cast from spoons"
        " and broken hinges, and to ring it for strangers as for kin. Tonight the river stands higher than the"
        " oldest mark, and we shall see whether a promise made of spoons can hold."
    ),
    (
        "We hold it to be plain that every cook may salt his own soup, that no guest shall weigh the bread of"
        " another, and that a table with three legs belongs to whoever steadies it. For the sake of peace we"
        " have written this on the lid of the flour chest, where mice may read it too."
    ),
    (
        "We, the keepers of the seven small lamps, in order to light the stairs evenly, to spare the oil, to"
        " wake no child and to frighten no cat, do hereby agree on a rota, which hangs beside the broom and"
        " may be changed by two of us with chalk, but never in March."
    ),
    (
        "Before the first kiln there was only the hill, and the hill was wet and had no name. And a woman"
        " came down with a basket of ash, and she sat where the clay was blue. And she said to the clay that"
        " it should remember her hands, and it kept the shape of them."
    ),
    (
        "Old wind that sleeps behind the barn, be gentle with our roof. Let the hens lie still, let the gate"
        " keep its one good hinge. Send us enough rain for beans, and forgive us the kites that we lost in"
        " your branches, as we forgive you the washing that you took"
    ),
    (
        "My uncle is a patient man; he has never once been late. He lets me sit beside the loom on grey"
        " mornings: he shows me how the shuttle sulks. He mends what I have torn: he takes me by the quiet"
        " road to market on account of the geese. Even when the bridge is iced I do not mind"
    ),
    (
        "To sell the boat, or keep it one more spring: so I lay awake and reckoned: whether a man is wiser to"
        " endure the caulking and the bills of a stubborn hull, or to hand it to his cousins and be done with"
        " tar. To sell: to rest; no more; and by that rest to lose the smell of rope"
    ),
    (
        "It is agreed by everybody in our street that a widow with two umbrellas must be expecting rain."
        " However seldom she opens either of them in the first week after moving in, the belief is so firmly"
        " kept behind all the curtains that she is thought to own the weather of the whole parish"
    ),
    (
        "It was the year of the good plums, it was the year of the bad cider, it was the summer of tall"
        " ladders, it was the summer of sprained ankles, it was a season for lending, it was a season for"
        " counting spoons, it was the month when the postman sang, it was the month when nobody wrote"
    ),
    (
        "All the chairs of this house are made of pear wood and were sat on by our aunts. They are gifted"
        " with squeaks and warmth and should be moved towards the window in a spirit of courtesy. Every"
        " visitor may choose among the chairs named on this list, without regard to muddy boots of any kind"
    ),
    (
        "Take four measures of rye and one of patience, fold them under a damp sack, and wait until the clock"
        " with the missing hand looks undecided. Press a thumb of lard into each corner, in memory of the"
        " miller, and carry the tin slowly past the cellar door, so that the draught may tell you"
    ),
)


MOST, BEGINNING, CONTINUATION = 100, 24, 12
"""Documents that are asked about, a sample where there are more; words of either part. Shorter ones are left out."""
BY_HEART = 0.5
"""Nats a token: a continuation that is likelier on average is known by heart."""


@dataclass(frozen=True)
class Continuations:
    """Losses of continuations, nats per token, float64 [n] each.

    Attributes:
        own: of each document's own continuation.
        others: of another document's, behind the same beginning.
    """

    own: NDArray[np.float64]
    others: NDArray[np.float64]

    @classmethod
    def of(cls, score: Scorer, texts: Sequence[str]) -> "Continuations":
        """Score texts of at least BEGINNING + CONTINUATION words; none if there are fewer than two."""
        parts = [_cut(text) for text in texts if len(text.split()) >= BEGINNING + CONTINUATION]
        if len(parts) < 2:
            return cls(np.empty(0), np.empty(0))
        later = [*parts[1:], parts[0]]
        begun = score([beginning for beginning, _ in parts])
        own = score([beginning + rest for beginning, rest in parts])
        others = score([beginning + rest for (beginning, _), (_, rest) in zip(parts, later, strict=True)])
        losses = np.array([[*map(_loss, begun, whole)] for whole in (own, others)])
        finite = losses[:, np.isfinite(losses).all(axis=0)]
        return cls(finite[0], finite[1])

    @property
    def gain(self) -> NDArray[np.float64]:
        """How much likelier the own continuation is, nats per token."""
        return self.others - self.own

    @property
    def by_heart(self) -> int:
        """Documents whose own continuation is known by heart, and no other one behind the same beginning."""
        return int(((self.own <= BY_HEART) & (self.others > BY_HEART)).sum())

    def values(self, name: str) -> dict[str, MetricValue]:
        """Return the figures, each under its name with this one before it."""
        count = len(self.own)
        return {
            f"{name}documents": count,
            f"{name}by_heart": self.by_heart if count else None,
            **figure(f"{name}gain", float(self.gain.mean()) if count else None, intervals.of_mean(self.gain), 3),
        }


def contamination(subject: EvaluationInput) -> MetricResult:
    """Own continuations against other documents', under the public model. INTERNAL: it reads private documents."""
    private = subject.require_documents()
    if subject.score is None:
        raise ValueError("this metric needs a public model")
    found = Continuations.of(subject.score, sample(private(), MOST))
    known, fresh = (Continuations.of(subject.score, passages) for passages in (KNOWN, FRESH))
    low, high = wilson(found.by_heart, len(found.own)) if len(found.own) else (None, None)
    return MetricResult(
        name="contamination",
        exposure="internal",
        values={
            **found.values(""),
            "by_heart_low": rounded(low, 4),
            "by_heart_high": rounded(high, 4),
            **known.values("known_"),
            **fresh.values("fresh_"),
        },
        source="continuation of a beginning: Carlini et al., 'Quantifying Memorization Across Neural Language Models',"
        " ICLR 2023, by likelihood; why nothing follows without texts of both kinds: Duan et al., 'Do Membership"
        " Inference Attacks Work on Large Language Models?', COLM 2024",
        method=f"of at most {MOST} documents of {BEGINNING + CONTINUATION} words or more, the first {BEGINNING} words"
        f" and the next {CONTINUATION}: nats per token by which the own continuation is likelier than another's"
        f" behind the same beginning; by heart: at most {BY_HEART} nats per token, and the other's not; the same of"
        f" {len(KNOWN)} passages that models have read and {len(FRESH)} that none has; score interval;"
        f" {intervals.BOOTSTRAP}",
        line=_line(found, known, fresh),
    )


def _line(found: Continuations, known: Continuations, fresh: Continuations) -> str:
    if not len(found.own):
        return f"not measured: fewer than two documents have {BEGINNING + CONTINUATION} words"
    told = f"{found.by_heart} of {len(found.own)} documents are known by heart"
    gains = ", ".join(
        f"{rounded(float(part.gain.mean()), 2) if len(part.gain) else 'none'} {name}"
        for name, part in (("here", found), ("known", known), ("fresh", fresh))
    )
    judged = (
        f"of {len(known.own)} passages that models have read, {known.by_heart}"
        if known.by_heart
        else f"which says nothing: of {len(known.own)} passages that it must have read, it recites none"
    )
    return f"{told}; {judged}; gain of the own continuation: {gains} (nats per token)"


def _cut(text: str) -> tuple[str, str]:
    """Return the first words, and the next ones with a space before them."""
    words = text.split()
    return " ".join(words[:BEGINNING]), " " + " ".join(words[BEGINNING : BEGINNING + CONTINUATION])


Score = tuple[float, int]


def _loss(begun: Score, whole: Score) -> float:
    """Return the nats per token of what follows a beginning; NaN without a token."""
    tokens = whole[1] - begun[1]
    return (begun[0] - whole[0]) / tokens if tokens > 0 else math.nan
