"""The systems that are asked for facts, and one release of any of them at a bench without a ledger."""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import tasks  # isort: skip  # noqa: F401 - before torch, because it settles how torch's threads wait

from benchmarks.common.open_bench import KEY, open_bench
from benchmarks.invented_facts.corpus import few, store, training_file
from benchmarks.invented_facts.worlds import DELTA, NO_NOISE, World
from models_db.values.requests import Prompt, model_to_json
from tasks.accounting.zcdp import release_amount
from tasks.adapters.metadata import KnownAdapter
from tasks.adapters.store import AdapterUnknown, find_adapter
from tasks.adapters.training.data import TrainingSettings, default_wording
from tasks.adapters.training.train import TrainingRequest, train_adapter
from tasks.corpus.partition import BatchSplit
from tasks.corpus.store import Corpus
from tasks.inference.engine.engine import Engine
from tasks.inference.loading.load_model import load
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.systems.summaries import NOISE
from tasks.values.plan import PlanInputs
from tasks.values.results import GeneratedText

PLENTY = Decimal(10**6)
"""The epsilon of a charged system without noise that anybody could see."""
UNITS_OF_A_LABEL = 100
"""n, by which sums over a label's units are divided: as many as a label has in the mean, a public number."""
UNITS_OF_A_GROUP, REFERENCE_TOKENS, SUMMARY_TOKENS = 16, 48, 24
"""Units of a creature's summary or record, the tokens that are read of a unit, and those of a summary."""
SUMMARY = "A short sentence that says what people tell about this animal: what it eats, where it lives, or its colour."
ADAPTER, PUBLIC_WORLDS = "invented-facts", (1, 2, 3)
"""One-shot summaries have an adapter of other worlds, whose creatures and facts are in no released text."""
UNITS_OF_AN_EXAMPLE, STEPS = 5, 40


@dataclass(frozen=True)
class System:
    """A system as the tables have it.

    Attributes:
        mechanism: its name in requests.
        changes: parameters beside those that all systems are asked with.
    """

    mechanism: str
    changes: Mapping[str, Any] = field(default_factory=dict)


def system(name: str) -> System:
    """Return the system that a table has under a name: a mechanism, with more references where it says so."""
    mechanism, _, references = name.partition(" with ")
    more = {"references": int(references.split()[0])} if references else {}
    return System(mechanism, CHANGES.get(mechanism, {}) | more)


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "keyphrase_seeding": {"references": UNITS_OF_A_LABEL, "phrase_words": 4},
    "private_evolution": {"rounds": 3},
    "token_level_summary": {"noise": str(NOISE)},
}
"""What is asked of these systems alone. Phrases have four words: two never name creature and value. Three rounds of
evolution are for the time that they take. Everything else is as requests have it by default."""


class Workplace:
    """What all releases of a process share.

    Args:
        model, device, precision: of the public model; it is loaded when a text is first asked for.
        folder: for ingested worlds; gone with the process.
    """

    def __init__(self, model: str, device: str, precision: str, folder: Path) -> None:
        self.model, self.device, self.precision, self.folder = model, device, precision, folder
        self.corpora: dict[Any, Corpus] = {}

    @cached_property
    def engine(self) -> Engine:
        return Engine(load(self.model, self.device, self.precision))

    def corpus(self, trial: int, labels: tuple[str, ...], most: int | None = None) -> Corpus:
        """Return a world ingested under the creatures that are declared; with so many units of each alone, if any."""
        if (trial, labels, most) not in self.corpora:
            place, world = self.folder / f"{len(self.corpora)}", World.of(trial)
            place.mkdir()
            own = world if most is None else few(world, labels, most)
            self.corpora[trial, labels, most] = store(own, labels, place)
        return self.corpora[trial, labels, most]

    @cached_property
    def adapter(self) -> KnownAdapter:
        """The adapter of one-shot summaries, trained on other worlds where this machine does not have it."""
        try:
            return find_adapter(ADAPTER)
        except AdapterUnknown:
            with tempfile.TemporaryDirectory() as folder:
                return trained(Path(folder), self.model, self.device)

    def release(
        self,
        name: str,
        epsilon: str,
        asked: Mapping[str, Any],
        corpus: Corpus,
        description: str,
        units: int,
        key: str,
    ) -> Sequence[GeneratedText]:
        """Return the texts of one release.

        Args:
            name: of the system, as `system` reads it.
            asked: parameters; those that the system does not have are left out.
            units: how many there are, a public number.
            key: of the release among all: it has batches of its own.

        Raises:
            AlmonerError: the system refuses; nothing was made.
        """
        own, chosen = SYSTEMS[system(name).mechanism], system(name)
        fields = {each.alias or name for name, each in own.parameters.model_fields.items()}
        wanted = {**asked, "precision": self.precision, **chosen.changes}
        if chosen.mechanism == "one_shot_summary":
            wanted |= adapter_parameters(self.adapter)
        parameters = own.parameters.model_validate({name: wanted[name] for name in wanted if name in fields})
        fail = own.failure_delta_share(parameters)
        amount = release_amount(amount_of(epsilon), DELTA, fail) if own.charges else None
        plan = own.plan(PlanInputs(amount, parameters, 1, units, governed=own.charges))
        prompt = PromptSpec.of(Prompt(description=description), parameters.names)
        bench = replace(open_bench(self.engine, corpus, prompt), split=BatchSplit(KEY, key), device=self.device)
        return own.generate(plan, parameters, bench).texts


class Release(Protocol):
    """A release of either script, as far as options select it."""

    @property
    def system(self) -> str: ...
    @property
    def epsilon(self) -> str: ...


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that select among the releases, where not all of them are to be made at once."""
    parser.add_argument("--systems", nargs="+", default=[], help="mechanisms; all of them by default")
    parser.add_argument("--epsilons", nargs="+", default=[], help="all of them by default")


def selected(arguments: argparse.Namespace, cell: Release) -> bool:
    """Return whether the options of `add_selection` ask for a release."""
    mechanism = system(cell.system).mechanism
    return (not arguments.systems or mechanism in arguments.systems) and (
        not arguments.epsilons or cell.epsilon in arguments.epsilons
    )


def amount_of(epsilon: str) -> Decimal:
    """Return the epsilon that is bought; where there is to be no privacy, one whose noise cannot be seen."""
    return PLENTY if epsilon == NO_NOISE else Decimal(epsilon)


def trained(folder: Path, model: str, device: str) -> KnownAdapter:
    """Train the adapter of one-shot summaries on other worlds: a small one, in some minutes of processor time."""
    path = training_file(map(World.of, PUBLIC_WORLDS), folder / "worlds.jsonl", UNITS_OF_AN_EXAMPLE)
    settings = TrainingSettings(
        max_reference_tokens=REFERENCE_TOKENS, max_summary_tokens=SUMMARY_TOKENS, steps=STEPS, batch=4
    )
    wording = default_wording(SUMMARY, labelled=True)
    return train_adapter(path, TrainingRequest(ADAPTER, model, "invented", settings, wording=wording), device)


def adapter_parameters(adapter: KnownAdapter) -> dict[str, Any]:
    """Return what a request with this adapter has written out."""
    return {
        "adapter": {"sha256": adapter.digest, "meta": model_to_json(adapter.meta)},
        "clip_norm": adapter.meta.clip_norm,
        "max_reference_tokens": adapter.meta.max_reference_tokens,
        "instalment": 1,
    }
