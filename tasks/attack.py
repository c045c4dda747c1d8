"""Attacks on a public twin: makes a release from a copy of a public corpus and attacks it.

Never on governed data (PRIVACY §7).
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from models_db.errors import EnvironmentProblem
from models_db.home import ProjectHome
from tasks.attacks.attack_input import AttackInput
from tasks.attacks.canaries import CorpusDocument
from tasks.attacks.public_twin import TwinSplit
from tasks.attacks.registry import possible
from tasks.common.progress import report, tell
from tasks.corpus.ingest import ingest
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus, open_corpus
from tasks.decoding.journal import ResumeState, RunJournal
from tasks.decoding.run_context import RunContext
from tasks.evaluation.evaluation_input import Scorer
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.prefect_task import private_task
from tasks.pricing.quote import Quote
from tasks.text.public_models import Embedder, Tagger
from tasks.values.results import GeneratedText, MetricResult

if TYPE_CHECKING:
    from tasks.inference.engine.language_model import LanguageModel


@private_task
def units_of(corpus: Corpus, labels: Sequence[str]) -> list[CorpusDocument]:
    """Return one document for each unit of a public corpus; with declared labels, of each unit that carries one.

    Without declared labels a unit of one document keeps that document's label, if the corpus has labels.
    """
    scheme, split = PartitionScheme(secrets.token_bytes(32), 1), BatchSplit(BatchSplit.new_key(), "attack")
    positions = [(0, number, 0) for number in range(max(1, len(labels)))]
    rows = corpus.batches(scheme, split, 1, positions, labels)
    label_by_text = dict(corpus.labelled()) if not labels and corpus.has_labels else {}
    return [
        CorpusDocument(row.unit, row.text, labels[number] if labels else label_by_text.get(row.text))
        for (_, number, _), members in sorted(rows.items())
        for row in members
    ]


@contextmanager
def copied(
    home: ProjectHome, documents: Sequence[CorpusDocument], labels: Sequence[str], prefix: str = "attack-"
) -> Iterator[Corpus]:
    """Open a temporary corpus of public documents; it is removed when the `with` block ends.

    Args:
        labels: the labels that the request declares; without any, documents are copied without theirs.
        prefix: of the temporary folder's name.
    """
    with TemporaryDirectory(prefix=prefix, dir=home.scratch) as folder:
        twin_home = ProjectHome(Path(folder) / "home")
        twin_home.create()
        source = Path(folder) / "members.jsonl"
        with source.open("x", encoding="utf-8") as file:
            for document in documents:
                line = {"unit": document.unit, "text": document.text, "label": document.label}
                file.write(json.dumps({name: value for name, value in line.items() if value is not None}) + "\n")
        version = ingest(
            twin_home, source, "unit", secrets.token_bytes(32), label_field="label" if labels else None,
            progress=lambda done, total: report("copying the twin", done, total),
        )  # fmt: skip
        yield open_corpus(twin_home, version.uid)


@private_task
def release(
    quote: Quote,
    corpus: Corpus,
    model: "LanguageModel",
    key: bytes,
    what: str,
    journal: RunJournal | None = None,
    earlier: ResumeState | None = None,
) -> tuple[GeneratedText, ...]:
    """Return the texts that a priced request generates from a public corpus; with no claim, nothing is charged.

    Args:
        key: the partition key of the copy.
        what: names the release and its split into batches.
        journal: where draws are written down; None if they are not.
        earlier: what an interrupted call with the same arguments has drawn; this one goes on from there.
    """
    from tasks.inference.engine.engine import Engine

    context = RunContext(
        engine=Engine(model),
        corpus=corpus,
        scheme=PartitionScheme(key, len(quote.plan.blocks)),
        split=BatchSplit(key, f"attack/{what}"),
        prompt=quote.prompt,
        rng=OS_RANDOM,
        arm=lambda sequence, instalment: None,
        progress=lambda _, done, total: report(what, done, total),
        journal=journal or RunJournal(),
        earlier=earlier or ResumeState(),
    )
    return quote.system.generate(quote.plan.with_local_block_numbers, quote.parameters, context).texts


@dataclass(frozen=True)
class Tools:
    """An attacker's public tools; each reads a text once, however many releases are attacked."""

    score: Scorer | None = None
    embed: Embedder | None = None
    tag: Tagger | None = None


def tools_at_hand(model: "LanguageModel") -> Tools:
    """Return the public tools of this machine; reports a missing one, whose attacks are left out."""
    from tasks.evaluate import embedder, scorer, tagger  # they import torch

    embed, tag = None, None
    try:
        embed = embedder(model)
    except EnvironmentProblem as problem:
        tell(f"Without attacks by embeddings: {problem.message} {problem.advice}")
    try:
        tag = tagger()
    except EnvironmentProblem as problem:
        tell(f"Without names: {problem.message} {problem.advice}")
    return Tools(scorer(model), embed, tag)


@private_task
def attack_release(stage: TwinSplit, released: Sequence[str], what: str, tools: Tools) -> tuple[MetricResult, ...]:
    """Run every attack that the tools allow on texts made from the split's members; the results are public."""
    labels = [[document.label or "" for document in side] for side in (stage.members, stage.nonmembers)]
    attack_input = AttackInput(
        released=released,
        members=[document.text for document in stage.members],
        nonmembers=[document.text for document in stage.nonmembers],
        exposure="public",
        canaries=stage.canaries,
        member_labels=labels[0] if any(labels[0]) else (),
        nonmember_labels=labels[1] if any(labels[1]) else (),
        score=tools.score,
        embed=tools.embed,
        tag=tools.tag,
    )
    attacks, results = possible(attack_input), []
    for number, attack in enumerate(attacks):
        report(f"attacking {what}", number, len(attacks))
        results.append(attack.compute(attack_input))
    report(f"attacking {what}", len(attacks), len(attacks))
    return tuple(results)


def everything_there_is(stage: TwinSplit) -> list[str]:
    """Return the worst release: the corpus itself with its canaries. An attack that fails on it cannot win at all."""
    return [document.text for document in stage.corpus()]
