"""Registry of systems by the name that requests use, those of extensions included."""

from collections.abc import Iterator

from models_db.errors import UsageError
from tasks.common import extensions
from tasks.systems.adapmixed import AdaPMixed
from tasks.systems.base import System
from tasks.systems.baselines import NonPrivate, PublicOnly
from tasks.systems.few_shot_generation import FewShotGeneration
from tasks.systems.invisible_ink import InvisibleInk
from tasks.systems.keyphrase_seeding import KeyphraseSeeding
from tasks.systems.private_evolution import PrivateEvolution
from tasks.systems.private_icl import PrivateIcl
from tasks.systems.private_prediction import PrivatePrediction
from tasks.systems.question_histogram import QuestionHistogram
from tasks.systems.simple_clio import SimpleClio
from tasks.systems.summaries import OneShotSummary, TokenLevelSummary
from tasks.systems.urania import Urania

_ALL: tuple[System, ...] = (
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


def _of_extensions() -> Iterator[tuple[str, System]]:
    for name, system in extensions.load(extensions.SYSTEMS).items():
        if not isinstance(system, System) or system.name != name:
            raise extensions.unfit(extensions.SYSTEMS, name, "it is not a system of that name")
        yield name, system


SYSTEMS = extensions.Registry({system.name: system for system in _ALL}, _of_extensions)


def system_for(mechanism: str, kind: str) -> System:
    """Return the system of a name.

    Raises:
        UnknownSystem: no system has the name, or it does not make that kind of release.
    """
    system = SYSTEMS.get(mechanism)
    if system is None or kind not in system.kinds:
        raise UnknownSystem(mechanism, kind, sorted(name for name, s in SYSTEMS.items() if kind in s.kinds))
    return system


class UnknownSystem(UsageError):
    """No system of that name for that kind of release."""

    def __init__(self, mechanism: str, kind: str, names: list[str]) -> None:
        super().__init__(
            f"The mechanism {mechanism!r} cannot make a {kind!r} release in this version.",
            f"Available: {', '.join(names)}.",
            {"mechanism": mechanism, "kind": kind, "known": names},
        )
