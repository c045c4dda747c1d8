"""Every generator by the name requests use."""

from tasks.generation.adapmixed import AdaPMixed
from tasks.generation.baselines import NonPrivate, PublicOnly
from tasks.generation.evolution import PrivateEvolution
from tasks.generation.interface import Bench
from tasks.generation.invisible_ink import InvisibleInk
from tasks.generation.keyphrases import KeyphraseSeeding
from tasks.generation.private_icl import PrivateIcl
from tasks.generation.private_prediction import PrivatePrediction
from tasks.insights.simple_clio import SimpleClio
from tasks.insights.urania import Urania
from tasks.summarization.one_shot import OneShotSummary
from tasks.summarization.token_level import TokenLevelSummary
from tasks.values.plan import Generator, UnknownSystem

_ALL: tuple[Generator[Bench], ...] = (
    InvisibleInk(),
    PrivatePrediction(),
    PrivateIcl(),
    AdaPMixed(),
    PublicOnly(),
    NonPrivate(),
    TokenLevelSummary(),
    OneShotSummary(),
    Urania(),
    SimpleClio(),
    KeyphraseSeeding(),
    PrivateEvolution(),
)
SYSTEMS: dict[str, Generator[Bench]] = {system.name: system for system in _ALL}


def system_for(mechanism: str, kind: str) -> Generator[Bench]:
    """The generator of that name.

    Raises:
        UnknownSystem: there is none, or it does not make that kind of release.
    """
    found = SYSTEMS.get(mechanism)
    if found is None or kind not in found.kinds:
        raise UnknownSystem(mechanism, kind, sorted(name for name, s in SYSTEMS.items() if kind in s.kinds))
    return found
