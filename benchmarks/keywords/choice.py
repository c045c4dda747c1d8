"""Calibration of the cosine from which on a unit chooses a keyword of several words that it does not have.

    python -m benchmarks.keywords.choice            # docs/figures/keyword_choice.jsonl, and a table

Four public sets with known subjects stand for a corpus: newsgroups20, agnews, dbpedia14 and trec; none of them is the
chats that docs/insights-results.md reports. A subject has one to three phrases such as a keyword set has. A text and a
phrase are a pair: true if the text has the phrase's subject, false if it has an unrelated one; pairs of related
subjects (`RELATED`) are left out. Texts that have all words of a phrase are left out, because no cosine decides there,
and so are phrases of one word, which a unit must have to choose it.

For each cosine a line gives the share of true and of false pairs that reach it, the mean over the four sets, and from
both the precision for a subject that a share PRIOR of a corpus has.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.json_lines import DATA, read_lines, write_lines
from tasks.analysis.facets.extractor import extractor_for
from tasks.analysis.facets.parameters import FacetSettings
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.text.keyword_normalisation import roots

OUT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "keyword_choice.jsonl"
TEXTS = 20
"""Texts per subject, the first of the set; of agnews, which has four subjects, five times as many."""
PRIOR = 1 / 200
"""The share of a corpus that an average subject of a set of the default size has, if each text has one."""
LEAST_PRECISION = 0.75
COSINES = tuple(round(0.20 + 0.02 * step, 2) for step in range(20))

SETS: dict[str, dict[str, tuple[str, ...]]] = {
    "newsgroups20_with_emails": {
        "rec.motorcycles": ("motorcycles", "riding a motorcycle"),
        "rec.autos": ("cars", "cars and driving"),
        "sci.crypt": ("encryption", "cryptography and security"),
        "sci.med": ("medicine", "diseases and treatment"),
        "sci.space": ("space", "space flight and astronomy"),
        "sci.electronics": ("electronics", "circuits and electricity"),
        "talk.politics.guns": ("guns", "gun laws"),
        "talk.politics.mideast": ("middle east", "israel and arab countries"),
        "rec.sport.baseball": ("baseball", "baseball players"),
        "rec.sport.hockey": ("hockey", "ice hockey teams"),
        "comp.graphics": ("computer graphics", "images and graphics"),
        "comp.os.ms-windows.misc": ("windows", "windows software"),
        "comp.windows.x": ("x window system",),
        "comp.sys.mac.hardware": ("macintosh", "apple computers"),
        "comp.sys.ibm.pc.hardware": ("computer hardware", "disks and controllers"),
        "misc.forsale": ("items for sale", "selling and shipping"),
        "alt.atheism": ("atheism", "belief in god"),
        "soc.religion.christian": ("christianity", "church and christian faith"),
    },
    "agnews": {
        "World": ("war and conflict", "international politics"),
        "Sports": ("sports", "sports teams and games"),
        "Business": ("business", "stocks and the economy"),
        "Sci/Tech": ("technology", "computers and software"),
    },
    "dbpedia14": {
        "Plant": ("plants", "flowers and plants"),
        "Film": ("films", "films and directors"),
        "WrittenWork": ("books", "novels and writers"),
        "EducationalInstitution": ("schools", "universities and schools"),
        "Company": ("companies", "companies and industry"),
        "Village": ("villages", "small villages"),
        "Athlete": ("athletes", "sports players"),
        "Building": ("buildings", "architecture and buildings"),
        "NaturalPlace": ("rivers and mountains", "lakes and rivers"),
        "Album": ("albums", "music albums"),
        "Animal": ("animals", "animal species"),
        "OfficeHolder": ("politicians", "members of parliament"),
        "MeanOfTransportation": ("ships and aircraft", "vehicles"),
    },
    "trec": {
        "sport": ("sports", "sports and games"),
        "animal": ("animals", "animals and pets"),
        "food": ("food", "food and cooking"),
        "dismed": ("diseases", "diseases and medicine"),
        "lang": ("languages", "foreign languages"),
        "money": ("prices", "money and prices"),
        "veh": ("vehicles", "ships and vehicles"),
        "body": ("body parts", "the human body"),
        "plant": ("plants", "plants and flowers"),
        "currency": ("currency",),
        "instru": ("musical instruments",),
        "religion": ("religion",),
        "color": ("colors",),
        "city": ("cities", "cities and capitals"),
        "country": ("countries", "countries of the world"),
        "mount": ("mountains",),
        "abb": ("abbreviations",),
    },
}
RELATED = (
    {"rec.motorcycles", "rec.autos", "misc.forsale"},
    {"rec.sport.baseball", "rec.sport.hockey"},
    {"alt.atheism", "soc.religion.christian", "talk.religion.misc", "talk.politics.mideast"},
    {"talk.politics.guns", "talk.politics.mideast", "talk.politics.misc"},
    {"comp.graphics", "comp.os.ms-windows.misc", "comp.windows.x", "comp.sys.mac.hardware",
     "comp.sys.ibm.pc.hardware", "misc.forsale", "sci.electronics", "sci.crypt"},
    {"World", "Business", "Sci/Tech"},
    {"Plant", "Animal"}, {"Film", "WrittenWork", "Album"}, {"Village", "NaturalPlace", "Building"},
    {"EducationalInstitution", "Building"}, {"Company", "MeanOfTransportation"},
    {"animal", "food", "plant", "body", "dismed"}, {"money", "currency", "country"}, {"city", "country", "mount"},
    {"lang", "country", "abb"},
)  # fmt: skip
"""Subjects of which a text may have several; agnews labels a war's effect on shares as one of the three."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of one set.

    Attributes:
        cosines: float64 [pairs].
        true: bool [pairs].
    """

    name: str
    cosines: NDArray[np.float64]
    true: NDArray[np.bool_]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    lines = list(curve([pairs(name, subjects) for name, subjects in SETS.items()]))
    write_lines(arguments.out, lines)
    for line in lines:
        print(
            f"{line['cosine']:.2f}: true {line['true_mean']:.4f}, false {line['false_mean']:.5f}, {line['precision']}"
        )
    chosen = next(line["cosine"] for line in lines if (line["precision"] or 0) >= LEAST_PRECISION)
    print(f"the least cosine with a precision of {LEAST_PRECISION}: {chosen}")


def pairs(name: str, subjects: dict[str, tuple[str, ...]], data: Path = DATA) -> Pairs:
    """Return the cosine of every text of a set with every phrase, and whether it has the phrase's subject."""
    texts = list(_texts(name, subjects, data))
    facets = extractor_for(FacetSettings())([text for _, text in texts])
    embed = load_embedder()
    units = points_of(embed, [unit.summary for unit in facets]).astype(np.float64)
    cosines, true = [], []
    for subject, phrases in subjects.items():
        points = points_of(embed, list(phrases)).astype(np.float64)
        for phrase, point in zip(phrases, points, strict=True):
            if len(roots(phrase)) < 2:
                continue
            for (own, _), unit, row in zip(texts, facets, units, strict=True):
                if roots(phrase) <= roots(unit.text) or (own != subject and _related(own, subject)):
                    continue
                cosines.append(float(row @ point))
                true.append(own == subject)
    return Pairs(name, np.array(cosines), np.array(true))


def curve(sets: Sequence[Pairs]) -> Iterator[dict[str, Any]]:
    """Return a line for each cosine: shares of true and false pairs that reach it, by set and in the mean."""
    for cosine in COSINES:
        reached = {one.name: one.cosines >= cosine for one in sets}
        hits = {one.name: round(float(reached[one.name][one.true].mean()), 5) for one in sets}
        alarms = {one.name: round(float(reached[one.name][~one.true].mean()), 5) for one in sets}
        hit, alarm = float(np.mean(list(hits.values()))), float(np.mean(list(alarms.values())))
        shown = PRIOR * hit + (1 - PRIOR) * alarm
        yield {
            "cosine": cosine,
            "true_pairs": hits,
            "false_pairs": alarms,
            "true_mean": round(hit, 5),
            "false_mean": round(alarm, 5),
            "precision": round(PRIOR * hit / shown, 4) if shown else None,
        }


def _texts(name: str, subjects: dict[str, tuple[str, ...]], data: Path) -> Iterator[tuple[str, str]]:
    most = 5 * TEXTS if name == "agnews" else TEXTS
    count = dict.fromkeys(subjects, 0)
    for line in read_lines(data / f"{name}.jsonl"):
        subject = line.get("fine_label", line["label"])
        if subject in count and count[subject] < most:
            count[subject] += 1
            yield subject, line["text"]


def _related(one: str, other: str) -> bool:
    return any({one, other} <= group for group in RELATED)


if __name__ == "__main__":
    main()
