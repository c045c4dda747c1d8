"""Units of a world as a corpus: ingested under the creatures that are declared, or as what an adapter learns from."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common.open_bench import KEY
from benchmarks.invented_facts.worlds import World
from models_db.home import ProjectHome
from tasks.corpus.ingest import ingest
from tasks.corpus.store import Corpus, open_corpus
from tasks.text.words import roots

NOBODY = "none"
"""The label of a unit that tells about no declared creature."""


def store(world: World, labels: Sequence[str], folder: Path) -> Corpus:
    """Return the units as an ingested version; a unit's label is the first of its creatures that is declared."""
    home, source = ProjectHome(folder / "home"), folder / "units.jsonl"
    home.create()
    with source.open("w", encoding="utf-8") as lines:
        for number, (text, label) in enumerate(labelled(world.texts, labels)):
            record = {"id": f"{number}", "unit": f"{number}", "text": text, "label": label or NOBODY}
            lines.write(json.dumps(record) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY, label_field="label").uid)


def labelled(texts: Iterable[str], labels: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each text with the first of its creatures that is declared; None if it tells about none of them."""
    names = {next(iter(roots(label))): label for label in labels}
    for text in texts:
        told = [names[word] for word in sorted(roots(text)) if word in names]
        yield text, told[0] if told else None


def few(world: World, labels: Sequence[str], most: int) -> World:
    """Return the world with the first `most` units of each creature alone: a summary reads every unit of its group."""
    left = dict.fromkeys(labels, most)
    texts = []
    for text, label in labelled(world.texts, labels):
        if label is not None and left[label]:
            left[label] -= 1
            texts.append(text)
    return replace(world, texts=tuple(texts))


def training_file(worlds: Iterable[World], path: Path, most: int) -> Path:
    """Write an example for each shared fact of these worlds: the units that tell about a creature, and its fact.

    Args:
        most: units of a creature.
    """
    with path.open("w", encoding="utf-8") as lines:
        for world in worlds:
            labels = tuple(fact.creature for fact in world.shared)
            units = list(labelled(few(world, labels, most).texts, labels))
            for fact in world.shared:
                documents = [text for text, label in units if label == fact.creature]
                example = {"documents": documents, "summary": fact.told(0), "about": fact.creature}
                lines.write(json.dumps(example | {"group": fact.creature}) + "\n")
    return path
