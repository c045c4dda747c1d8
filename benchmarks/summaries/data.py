"""The data of the summaries benchmark: reviews of products by half, and the public examples that adapters learn from.

A product is public, for adapters, wordings and parameters, if the SHA-256 of its id begins with 0 to 7; all others are
tested on, and nothing is chosen by them. Their reviews stand for private ones; each is a unit of its own.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.common.json_lines import read_lines
from benchmarks.common.open_bench import KEY
from models_db.home import ProjectHome
from models_db.values.requests import PublicGroup
from tasks.corpus.ingest import ingest
from tasks.corpus.store import Corpus, open_corpus

Half = Literal["public", "test"]

REVIEWS = "fewsum_amazon_reviews.jsonl"
DOLLY = "dolly_prompts.jsonl"
LICENCE = "FewSum, MIT (reviews from Amazon); Dolly, CC BY-SA 3.0"
KINDS = {
    "cloth": "a piece of clothing, shoes or jewellery",
    "electronics": "an electronic product or an accessory of one",
    "health_personal_care": "a product for health or personal care",
    "home_kitchen": "a product for home or kitchen",
}
"""Categories of the data in words: the public metadata of a product, as its `about`."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LEAST_WORDS = 4  # of a sentence that is learned from


@dataclass(frozen=True)
class Product:
    """A group: what people wrote about one product, and three summaries of it by people."""

    id: str
    about: str
    reviews: tuple[str, ...]
    summaries: tuple[str, ...]

    @property
    def half(self) -> Half:
        return "public" if hashlib.sha256(self.id.encode()).hexdigest()[0] < "8" else "test"

    @property
    def group(self) -> PublicGroup:
        """As a request declares it."""
        return PublicGroup(id=self.id, about=(self.about,))


def products(folder: Path, half: Half) -> list[Product]:
    """One half of the products, in the order of their file."""
    found: dict[str, list[dict[str, Any]]] = {}
    for review in read_lines(folder / REVIEWS):
        found.setdefault(review["entity"], []).append(review)
    made = [_product(entity, reviews) for entity, reviews in found.items()]
    return [product for product in made if product.half == half]


def _product(entity: str, reviews: list[dict[str, Any]]) -> Product:
    first, texts = reviews[0], tuple(each["text"] for each in reviews)
    return Product(entity, KINDS[first["category"]], texts, tuple(first["summaries"]))


def store(some: list[Product], folder: Path, copies: int = 1) -> Corpus:
    """The reviews as an ingested version, each a unit, labelled with its product; `copies` of each."""
    home, source = ProjectHome(folder / "home"), folder / "reviews.jsonl"
    home.create()
    with source.open("w", encoding="utf-8") as lines:
        for product in some:
            for number, text in enumerate(product.reviews * copies):
                unit = f"{product.id}-{number}"
                lines.write(json.dumps({"id": unit, "unit": unit, "text": text, "label": product.id}) + "\n")
    return open_corpus(home, ingest(home, source, "unit", KEY, label_field="label").uid)


def training_file(data: Path, path: Path, answers: int) -> Path:
    """Write the public examples: every summary of the public half, and so many answers of Dolly.

    Args:
        data: the folder of the data sets.
        path: is written; it holds others' texts and is never committed.
        answers: how many answers of several sentences are taken, from the beginning of their file; 0 for none.
    """
    with path.open("w", encoding="utf-8") as lines:
        for product in products(data, "public"):
            for summary in product.summaries:
                example = {"documents": product.reviews, "summary": summary, "about": product.about}
                lines.write(json.dumps(example | {"group": product.id}) + "\n")
        for example in _answers(data, answers):
            lines.write(json.dumps(example) + "\n")
    return path


def _answers(data: Path, count: int) -> Iterator[dict[str, Any]]:
    """Answers of at least three sentences: each sentence a document, the first one what they come to."""
    for answer in read_lines(data / DOLLY):
        if count == 0:
            return
        sentences = [each.strip() for each in _SENTENCE_END.split(answer["response"])]
        sentences = [each for each in sentences if len(each.split()) >= _LEAST_WORDS]
        if len(sentences) >= 3:
            count -= 1
            yield {"documents": sentences, "summary": sentences[0], "about": "a question", "group": answer["id"]}
