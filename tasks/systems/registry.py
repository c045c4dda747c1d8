"""Registry of generators by the name requests use, those of extensions included."""

from collections.abc import Iterator
from typing import TypeGuard

from tasks.common import extensions
from tasks.decoding.run_context import RunContext
from tasks.systems.adapmixed import AdaPMixed
from tasks.systems.baselines import NonPrivate, PublicOnly
from tasks.systems.few_shot_generation import FewShotGeneration
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.keyphrase_seeding import KeyphraseSeeding
from tasks.systems.private_evolution import PrivateEvolution
from tasks.systems.private_icl import PrivateIcl
from tasks.systems.private_prediction import PrivatePrediction
from tasks.systems.question_histogram import QuestionHistogram
from tasks.systems.simple_clio import SimpleClio
from tasks.systems.summaries.one_shot import OneShotSummary
from tasks.systems.summaries.token_level import TokenLevelSummary
from tasks.systems.urania import Urania
from tasks.values.plan import Generator, UnknownSystem

_ALL: tuple[Generator[RunContext], ...] = (
    InvisibleInk(),
    PrivatePrediction(),
    PrivateIcl(),
    FewShotGeneration(),
    AdaPMixed(),
    PublicOnly(),
    NonPrivate(),
    TokenLevelSummary(),
    OneShotSummary(),
    Urania(),
    SimpleClio(),
    QuestionHistogram(),
    KeyphraseSeeding(),
    PrivateEvolution(),
)


def _of_extensions() -> Iterator[tuple[str, Generator[RunContext]]]:
    for name, system in extensions.load(extensions.SYSTEMS).items():
        if not _is_generator(system, name):
            raise extensions.unfit(extensions.SYSTEMS, name, "it is not a generator of that name")
        yield name, system


def _is_generator(system: object, name: str) -> TypeGuard[Generator[RunContext]]:
    return getattr(system, "name", None) == name and all(hasattr(system, part) for part in _PARTS)


_PARTS = (
    "kinds",
    "parameters",
    "charges",
    "renders_prompt",
    "resolve_names",
    "failure_delta_share",
    "seconds_per_unit",
    "plan",
    "generate",
)

SYSTEMS = extensions.Registry({system.name: system for system in _ALL}, _of_extensions)


def system_for(mechanism: str, kind: str) -> Generator[RunContext]:
    """Return the generator of a name.

    Raises:
        UnknownSystem: no generator has the name, or it does not make that kind of release.
    """
    system = SYSTEMS.get(mechanism)
    if system is None or kind not in system.kinds:
        raise UnknownSystem(mechanism, kind, sorted(name for name, s in SYSTEMS.items() if kind in s.kinds))
    return system
