"""Public tools of `almoner keywords build`: a tagger, an embedder, and optionally a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, cast

from models_db.values.canonical_json import Json
from tasks.analysis.keywords.build_public_set import REVISE_SCHEMA, Built, Progress, PublicTexts, build
from tasks.corpus.partition import BatchSplit, PartitionScheme
from tasks.corpus.store import Corpus
from tasks.decoding.run_context import RunContext
from tasks.decoding.structured_output import Writer
from tasks.inference.embeddings.encoder import load_embedder
from tasks.inference.embeddings.unit_embeddings import points_of
from tasks.inference.engine.engine import Engine
from tasks.inference.engine.language_model import LanguageModel
from tasks.inference.loading.load_model import load, require_pulled
from tasks.inference.prompt_spec import PromptSpec
from tasks.mechanisms.core.rng import OS_RANDOM
from tasks.text.public_models import load_tagger

ANSWER_TOKENS: Final = 200
"""Tokens of one answer at most: five numbers and five phrases of thirty characters."""


@dataclass(frozen=True)
class KeywordSetOptions:
    """Options of a keyword set to build.

    Attributes:
        size: most keywords.
        model: a public language model that revises the set; None for none.
        rounds: how often it revises.
        device: auto, cpu or cuda.
    """

    size: int
    model: str | None = None
    rounds: int = 0
    device: str = "auto"


def build_with_tools(
    source: PublicTexts, options: KeywordSetOptions, progress: Progress
) -> tuple[Built, Mapping[str, Json]]:
    """Build a keyword set of public texts; return it with the names of the tools.

    Raises:
        TaggerChanged, ModelNotPulled, UnknownModel, ModelKindMismatch: a tool is not on this machine.
        SizeInvalid, KeywordCandidatesMissing: as `build`.
    """
    if options.model is not None:
        require_pulled(options.model, "causal_lm")  # refused now, not after all texts are read
    embedder = load_embedder(device=options.device)
    tagger = load_tagger(partial(progress, "reading"))
    model = load(options.model, options.device) if options.model is not None and options.rounds else None
    write = writer_of(model) if model is not None else None
    rounds = options.rounds if model is not None else 0
    built = build(source.texts, options.size, tagger, partial(points_of, embedder), write, rounds, progress)
    made_with: dict[str, Json] = {
        "size": options.size,
        "tagger": tagger.name,
        "embedder": embedder.name,
        "model": f"{model.name} {model.revision}" if model is not None else None,
        "rounds": rounds,
    }
    return built, made_with


def writer_of(model: "LanguageModel") -> Writer:
    """Return a writer that takes the model's likeliest answers, for public texts alone: it has no corpus."""

    def nothing_to_pay(sequence: int, instalment: int) -> None:
        raise RuntimeError("a public keyword set charges nothing")

    context = RunContext(
        engine=Engine(model),
        corpus=cast(Corpus, None),
        scheme=cast(PartitionScheme, None),
        split=cast(BatchSplit, None),
        prompt=PromptSpec("keywords"),
        rng=OS_RANDOM,
        arm=nothing_to_pay,
        progress=lambda what, done, total: None,
    )
    return Writer.of(context, [REVISE_SCHEMA], ANSWER_TOKENS, Decimal(1), top_k=1)
