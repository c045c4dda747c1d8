"""Systems that show a language model no private text: what a classifier learns from their texts, by epsilon and cost.

    python -m benchmarks.external_models.systems --out api.jsonl  # everything: hours on two cores
    python -m benchmarks.external_models.systems --out api.jsonl --corpora agnews --systems phrases_iterative
    python -m benchmarks.external_models.systems --out api.jsonl --table                  # the tables of what is there

A cell is one release of a public corpus at a bench without a ledger, and one line of the output; one that is there in
the same sizes is not made again. There are no seeds: randomness is the operating system's, and trials are independent.

    seeding_*       keyphrase seeding, with independent or iterative sequences, or from a selected vocabulary
    phrases_*       its keyphrases alone, joined: no model is asked; what the phrases themselves are worth
    evolution_1x    private evolution with as many prompts as seeding: one vote, the best quarter of the candidates
    evolution_10x   with ten times the prompts: three rounds, as many texts as seeding
    evolution_votes_at_random   the control: the same, but each unit votes for any candidate of its label, unread
    invisible_ink   which does show private texts to the model: each text is drawn over so many references
    public_only     the model's own texts of each label, and `real` the corpus's: no epsilon, no privacy in the latter
    non_private     one whole private text of the label in each prompt, no privacy: what the model makes of examples
    names           the names of the labels, one text each: what who knows the labels has without data or model
    phrases_named   as many texts as seeding has, of public topics drawn from the 24 nearest to the label's name

Seeding draws from the built-in public topics, which leave all of rho to the sketches; `*_selected` draws from a
vocabulary that is selected from the units, as is the default.

A logistic regression on points of the texts (all-MiniLM-L6-v2) is tested on real texts that nothing has read: plainly,
after CORAL (`in_context/coral.py`) and with Deep CORAL's loss. The target of both is a part of the same corpus that
is declared public, without its labels (`external_models/data.py`); without such texts of the domain the plain figure
counts. Costs are prompts, tokens of all answers, and processor seconds of the release, loading the embedder included;
with `--remember`, points of units and of their phrases are made for the first cell alone, which is then the only one
whose seconds tell.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache, cached_property
from pathlib import Path
from typing import Any, cast
from unittest import mock

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait
import numpy as np

from benchmarks.common.controls import best_constant, picked
from benchmarks.common.json_lines import DATA, append_lines, read_lines
from benchmarks.common.open_bench import open_bench
from benchmarks.external_models.data import ABOUT, CORPORA, Split, split
from benchmarks.external_models.tables import tables
from benchmarks.in_context.coral import Target, align
from benchmarks.in_context.demonstrations import store
from models_db.values.requests import Prompt
from tasks.accounting.zcdp import release_amount
from tasks.corpus.store import Corpus
from tasks.decoding.public_sampling import text_backend
from tasks.decoding.run_context import NoEngine, RunContext
from tasks.evaluation.algorithms import Classes, Softmax, fit_softmax
from tasks.evaluation.evaluation_input import points
from tasks.inference.backends.text_backend import Completion, Sampling, TextBackend
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import CachedEmbedder, points_of
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.planning.layout import labels_without_batches
from tasks.systems.keyphrase_seeding import phrases
from tasks.systems.keyphrase_seeding.run import KeyphraseRun
from tasks.systems.keyphrase_seeding.stages import KeyphraseParameters, Stages
from tasks.systems.private_evolution import run as voting
from tasks.systems.registry import SYSTEMS
from tasks.text.public_models import Embedder, Points
from tasks.text.public_topics import PUBLIC_TOPICS
from tasks.values.plan import PlanInputs
from tasks.values.results import Generated

MODEL = "smollm2-135m-instruct"
DELTA = Decimal("1e-5")
EPSILONS = ("1", "3", "6", "10", "15")
TOP_K = 50
SEEDING, EVOLUTION, PUBLIC_ONLY, REAL = "keyphrase_seeding", "private_evolution", "public_only", "real"
INK, REFERENCES, REFERENCE_TOKENS = "invisible_ink", 6, 64
RANDOM_VOTES = "evolution_votes_at_random"
CHARGED = {
    "phrases_selected": SEEDING,
    "phrases_independent": SEEDING,
    "phrases_iterative": SEEDING,
    "seeding_selected": SEEDING,
    "seeding_independent": SEEDING,
    "seeding_iterative": SEEDING,
    "evolution_1x": EVOLUTION,
    "evolution_10x": EVOLUTION,
    RANDOM_VOTES: EVOLUTION,
    INK: INK,
}
NAMES, PHRASES_NAMED = "names", "phrases_named"
NON_PRIVATE = "non_private"
FREE = (PUBLIC_ONLY, REAL, NON_PRIVATE, NAMES, PHRASES_NAMED)
"""Systems without a charge; the last two are the control: label names, no data and no model."""
NEAREST, PHRASES_OF_A_TEXT = 24, 4
"""As `strongest` and `phrases_per_text` of keyphrase seeding."""
KEPT_OF_A_VOTE = 4
"""One in so many candidates is selected."""

Pair = tuple[str, str]
"""A text and its label, as the model is told it."""


@dataclass(frozen=True)
class Cell:
    """One release. `epsilon` is empty where nothing is charged."""

    corpus: str
    system: str
    epsilon: str
    trial: int


@dataclass(frozen=True)
class Sizes:
    """Public sizes of all cells of a run.

    Attributes:
        each: texts of a label.
        tokens: of a text at most.
        units, others: rows of the private part, and of the public one and the tests, at most; None for all.
    """

    each: int
    tokens: int
    units: int | None
    others: int | None
    model: str


@dataclass
class Recording:
    """A text backend with everything that it was ever asked.

    Attributes:
        inner: who answers; None where nobody is to be asked.
        tokens: of all answers, whether they were kept or not.
    """

    inner: TextBackend | None
    prompts: list[str] = field(default_factory=list)
    tokens: int = 0
    external: bool = False

    @property
    def name(self) -> str:
        return self.inner.name if self.inner else "nobody"

    def require_ready(self, prompts: Sequence[str], how: Sampling) -> None:
        """As `TextBackend.require_ready`."""
        if self.inner is not None:
            self.inner.require_ready(prompts, how)

    def write(self, prompts: Sequence[str], how: Sampling) -> list[Completion]:
        """As `TextBackend.write`."""
        if self.inner is None:
            raise AssertionError("no model is to be asked")
        self.prompts += prompts
        found = self.inner.write(prompts, how)
        self.tokens += sum(text.tokens for text in found)
        return found


@dataclass(frozen=True)
class Made:
    """Texts with labels, and what they took.

    Attributes:
        prompts: what a model was asked, as far as it is public.
        private: private texts that it was shown beside them, each in a prompt of its own.
    """

    pairs: Sequence[Pair]
    prompts: Sequence[str] = ()
    tokens: int = 0
    private: int = 0


@dataclass(frozen=True)
class Sides:
    """A corpus as classifiers see it."""

    parts: Split
    corpus: Corpus
    target: Target
    tests: Points
    classes: Classes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one for each cell")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--corpora", nargs="+", default=list(CORPORA), choices=list(CORPORA))
    parser.add_argument("--systems", nargs="+", default=[*CHARGED, *FREE], choices=[*CHARGED, *FREE])
    parser.add_argument("--epsilons", nargs="+", default=list(EPSILONS))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--each", type=int, default=40, help="texts of a label; a multiple of 4")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--units", type=int, help="so many private texts at most")
    parser.add_argument("--others", type=int, help="so many public texts, and so many tests, at most")
    parser.add_argument("--remember", action="store_true", help="make the point of every text once, for all cells")
    parser.add_argument("--table", action="store_true", help="only print the tables of what is there")
    asked = parser.parse_args()
    if asked.each % KEPT_OF_A_VOTE or asked.each < 1:
        parser.error(
            f"--each is a multiple of {KEPT_OF_A_VOTE}: private evolution with few prompts keeps one in so many"
        )
    if asked.remember:
        remember_points()
    if not asked.table:
        with tempfile.TemporaryDirectory() as folder:
            measure(asked, Workplace(asked, Path(folder)))
    print("\n".join(tables(lines_of(asked.out))))


def measure(asked: argparse.Namespace, place: "Workplace") -> None:
    """Append every cell that is missing, each as soon as it is there."""
    known = [line["cell"] for line in lines_of(asked.out) if line["sizes"] == asdict(place.sizes)]
    for cell in cells(asked):
        if asdict(cell) not in known:
            line = place.measured(cell)
            append_lines(asked.out, [line])
            print(*asdict(cell).values(), line["accuracy"], line["coral"], line["work"], flush=True)


def remember_points() -> None:
    """From here on no text is given its point twice: units of a public corpus are the same for every cell."""
    known: dict[str, Any] = {}

    def found(embed: Embedder, texts: Sequence[str], progress: Any = None) -> Any:
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(missing, points_of(embed, missing), strict=True))
        return np.array([known[text] for text in texts], np.float32).reshape(len(texts), -1)

    readers: tuple[Any, ...] = (phrases, voting)
    for reader in readers:
        reader.points_of = found


@contextmanager
def votes_at_random(seed: int) -> Iterator[None]:
    """Let every unit vote for any candidate of its label, each as likely: evolution without what units wrote."""
    generator = np.random.default_rng(seed)

    def counts(votes: voting.BlockVotes, candidates: Sequence[Points]) -> list[int]:
        voters = [int((votes.label == label).sum()) for label in range(len(candidates))]
        shares = ([1 / len(public)] * len(public) for public in candidates)
        drawn = (generator.multinomial(count, own) for count, own in zip(voters, shares, strict=True))
        return [number for own in drawn for number in own.tolist()]

    with mock.patch.object(voting.BlockVotes, "counts", counts):
        yield


def cells(asked: argparse.Namespace) -> Iterator[Cell]:
    """Trial by trial, so that any first part of them is of use."""
    for trial in range(asked.trials):
        for corpus in asked.corpora:
            for system in asked.systems:
                if system == NAMES and trial:
                    continue  # nothing in it is drawn
                for epsilon in asked.epsilons if system in CHARGED else ("",):
                    yield Cell(corpus, system, epsilon, trial)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Every cell that is there."""
    return read_lines(path) if path.exists() else []


def parameters_of(system: str, labels: Sequence[str], units: int, sizes: Sizes) -> dict[str, Any]:
    """What a request of that system would say.

    Args:
        units: how many private ones there are, a public number here.
    """
    total = sizes.each * len(labels)
    common = {"samples": total, "labels": tuple(labels), "max_new_tokens": sizes.tokens, "temperature": "1"}
    common |= {"top_k": TOP_K}
    if CHARGED.get(system) == SEEDING:
        common |= {"references": max(1, units // len(labels))}
        topics = {"method": "public", "words": tuple(PUBLIC_TOPICS)}
        how = system.split("_")[1]
        return common if how == "selected" else common | {"sequences": how, "vocabulary": topics}
    if system == INK:
        return common | {"references": REFERENCES, "max_reference_tokens": REFERENCE_TOKENS}
    if system == "evolution_1x":
        return common | {"samples": total // KEPT_OF_A_VOTE, "rounds": 1, "candidates": sizes.each}
    if system in ("evolution_10x", RANDOM_VOTES):
        return common | {"rounds": 3, "variations": KEPT_OF_A_VOTE}
    return common


class Workplace:
    """What all cells of a process share.

    Args:
        folder: for ingested corpora; gone with the process.
    """

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.sizes = Sizes(asked.each, asked.tokens, asked.units, asked.others, asked.model)
        self.sides = cache(self._sides)

    def measured(self, cell: Cell) -> dict[str, Any]:
        """One cell as it is kept."""
        sides, task = self.sides(cell.corpus), CORPORA[cell.corpus]
        wall, work = time.monotonic(), time.process_time()
        made = self.made(cell, sides)
        took = {"seconds": round(time.monotonic() - wall, 1), "work": round(time.process_time() - work, 1)}
        said = "\n".join(made.prompts)
        figures = self.figures([pair for pair in made.pairs if pair[0].strip()], list(task.words.values()), sides)
        return {
            "cell": asdict(cell),
            "sizes": asdict(self.sizes),
            "texts": len(made.pairs),
            "units": len(sides.parts.private),
            "tests": len(sides.tests),
            "target": f"{len(sides.target.points)} texts of {cell.corpus}, declared public",
            "prompts": len(made.prompts) + made.private,
            "tokens": made.tokens,
            "private_texts_shown": made.private + sum(example.text in said for example in sides.parts.private),
            **took,
            **figures,
        }

    def figures(self, pairs: Sequence[Pair], labels: Sequence[str], sides: Sides) -> dict[str, Any]:
        """Shares of tests that are told right; None where there is nothing to learn from."""
        majority = round(best_constant(sides.classes.tolist()), 4)
        found: dict[str, Any] = {"accuracy": None, "coral": None, "deep_coral": None, "majority": majority}
        if len(pairs) < 2:
            return found
        rows = points(self.embed, [text for text, _ in pairs])
        classes, count = np.array([labels.index(label) for _, label in pairs]), len(labels)
        told = {
            "accuracy": fit_softmax(rows, classes, count),
            "coral": fit_softmax(align(rows, sides.target), classes, count),
            "deep_coral": fit_softmax(rows, classes, count, sides.target.points),
        }
        return found | {name: _accuracy(classifier, sides) for name, classifier in told.items()}

    def made(self, cell: Cell, sides: Sides) -> Made:
        """The texts of one cell."""
        labels = list(CORPORA[cell.corpus].words.values())
        if cell.system == REAL:
            return Made(self._real(cell, sides))
        if cell.system == NAMES:
            return Made([(label, label) for label in labels])
        if cell.system == PHRASES_NAMED:
            return Made(phrases_named(self.embed, labels, self.sizes.each, cell.trial))
        system = SYSTEMS[CHARGED.get(cell.system, cell.system)]
        wanted = system.parameters.model_validate(
            parameters_of(cell.system, labels, len(sides.parts.private), self.sizes)
        )
        amount = (
            release_amount(Decimal(cell.epsilon), DELTA, system.failure_delta_share(wanted)) if cell.epsilon else None
        )
        governed = cell.system != NON_PRIVATE  # which works on public data alone, as this is
        plan = system.plan(PlanInputs(amount, wanted, 1, len(sides.parts.private), governed=governed))
        prompt = PromptSpec.of(Prompt(description=ABOUT[cell.corpus]), labels)
        alone = cell.system.startswith("phrases_")
        bench, recording = self.bench(sides.corpus, prompt, asked=not alone)
        if isinstance(wanted, KeyphraseParameters) and alone:
            run = KeyphraseRun.of(wanted, Stages.of(wanted, plan.amount), plan, bench)
            texts = [", ".join(run.phrases[each] for each in own) for own in run.sequences.phrases]
            return Made(
                list(zip(texts, (label or "" for label in labels_without_batches(wanted, wanted.samples)), strict=True))
            )
        with votes_at_random(cell.trial) if cell.system == RANDOM_VOTES else nullcontext():
            made = system.generate(plan, wanted, bench)
        return _made_of(made, prompt, recording, {INK: REFERENCES, NON_PRIVATE: 1}.get(cell.system, 0))

    def bench(self, corpus: Corpus, prompt: PromptSpec, *, asked: bool) -> tuple[RunContext, Recording]:
        """A bench without a ledger, at which everything that a model is asked is kept."""
        inner = open_bench(self.engine if asked else cast(Engine, NoEngine("nobody")), corpus, prompt)
        recording = Recording(text_backend(inner) if asked else None)
        return replace(inner, outside=recording, device=self.asked.device), recording

    def _real(self, cell: Cell, sides: Sides) -> list[Pair]:
        """As many private texts of each label, or as many as there are."""
        generator, found = random.Random(cell.trial), []
        for label, word in CORPORA[cell.corpus].words.items():
            own = [example.text for example in sides.parts.private if example.label == label]
            found += [(text, word) for text in generator.sample(own, min(self.sizes.each, len(own)))]
        return found

    def _sides(self, name: str) -> Sides:
        task, parts = CORPORA[name], split(name, self.asked.data, self.sizes.units, self.sizes.others)
        place = self.folder / name
        place.mkdir()
        return Sides(
            parts,
            store(task, parts.private, place),
            Target(points(self.embed, [example.text for example in parts.public]), "public"),
            points(self.embed, [example.text for example in parts.tests]),
            np.array([list(task.words).index(example.label) for example in parts.tests]),
        )

    @cached_property
    def embed(self) -> CachedEmbedder:
        return CachedEmbedder(load_embedder(device=self.asked.device))

    @cached_property
    def engine(self) -> Engine:
        return Engine(load(self.asked.model, self.asked.device))


def phrases_named(embed: Embedder, labels: Sequence[str], each: int, trial: int) -> list[Pair]:
    """Texts of public topics near the labels' names, as `phrases_independent` has them near a label's sketch."""
    topics = points_of(embed, list(PUBLIC_TOPICS))
    found = []
    for label, closeness in zip(labels, points_of(embed, list(labels)) @ topics.T, strict=True):
        nearest = [PUBLIC_TOPICS[place] for place in np.argsort(-closeness, kind="stable")[:NEAREST]]
        seeds = (f"{trial} {label} {number}" for number in range(each))
        found += [(", ".join(picked(nearest, PHRASES_OF_A_TEXT, seed)), label) for seed in seeds]
    return found


def _made_of(made: Generated, prompt: PromptSpec, recording: Recording, shown: int) -> Made:
    """What a system has made; one that reads the engine itself has told it the public row, once for each text.

    Args:
        shown: references of a text.
    """
    pairs = [(text.text, text.label or "") for text in made.texts]
    prompts = recording.prompts or [prompt.fill("public", label) for _, label in pairs]
    tokens = recording.tokens or sum(text.tokens for text in made.texts)
    return Made(pairs, prompts, tokens, private=shown * len(pairs))


def _accuracy(classifier: Softmax, sides: Sides) -> float:
    return round(float((classifier(sides.tests) == sides.classes).mean()), 4)


if __name__ == "__main__":
    main()
