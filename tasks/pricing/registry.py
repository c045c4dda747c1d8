"""Registry of generators by the name requests use."""

from tasks.generation.decoding.run_context import RunContext
from tasks.generation.private_decoding.adapmixed import AdaPMixed
from tasks.generation.private_decoding.baselines import NonPrivate, PublicOnly
from tasks.generation.private_decoding.invisible_ink import InvisibleInk
from tasks.generation.private_decoding.private_icl import PrivateIcl
from tasks.generation.private_decoding.private_prediction import PrivatePrediction
from tasks.insights.clio.planner import SimpleClio
from tasks.insights.question_histogram.planner import QuestionHistogram
from tasks.insights.urania.planner import Urania
from tasks.prompted_generation.evolution.planner import PrivateEvolution
from tasks.prompted_generation.keyphrases.planner import KeyphraseSeeding
from tasks.prompted_generation.steering.planner import SteeringVector
from tasks.summarization.one_shot import OneShotSummary
from tasks.summarization.token_level import TokenLevelSummary
from tasks.values.plan import Generator, UnknownSystem

_ALL: tuple[Generator[RunContext], ...] = (
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
    QuestionHistogram(),
    KeyphraseSeeding(),
    PrivateEvolution(),
    SteeringVector(),
)
SYSTEMS: dict[str, Generator[RunContext]] = {system.name: system for system in _ALL}


def system_for(mechanism: str, kind: str) -> Generator[RunContext]:
    """Return the generator of a name.

    Raises:
        UnknownSystem: no generator has the name, or it does not make that kind of release.
    """
    system = SYSTEMS.get(mechanism)
    if system is None or kind not in system.kinds:
        raise UnknownSystem(mechanism, kind, sorted(name for name, s in SYSTEMS.items() if kind in s.kinds))
    return system
