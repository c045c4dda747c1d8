"""The bench at which systems work on public data: no ledger is asked, because nothing is spent.

The texts stand for private ones and anybody may read them, which is why a bench without a ledger may arm nothing.
"""

from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.inference.engine.engine import Engine
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OperatingSystemRandom

KEY = b"k" * 32
"""Of the one block's partition, and of the ingest: public, as the data are."""


def open_bench(engine: Engine, corpus: Corpus, prompt: PromptSpec) -> RunContext:
    """A bench with one block, the operating system's randomness, and nobody who is told."""
    return RunContext(
        engine=engine,
        corpus=corpus,
        scheme=PartitionScheme(KEY, 1),
        split=BatchSplit(KEY, "benchmark"),
        prompt=prompt,
        rng=OperatingSystemRandom(),
        arm=lambda sequence, instalment: None,
        progress=lambda what, done, total: None,
    )
