"""Context of attacks: the data they run on, and the truth they are judged by."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.attacks.canaries import Canaries
from tasks.evaluation.evaluation_input import Scorer
from tasks.text.public_models import Embedder, Tagger
from tasks.values.results import Exposure


@dataclass(frozen=True)
class AttackInput:
    """A release, the public tools of an attacker, and the truth.

    Attributes:
        released: the released texts; empty ones count as texts.
        members: one text for each unit that the release was made from, canaries apart.
        nonmembers: texts of the same kind that it was not made from, chosen at random with the members.
        exposure: what results are marked: `public` only where the members are.
        canaries: what was planted, and what was held out; None if nothing was planted.
        member_labels, nonmember_labels: an attribute of each, in the same order; empty if there is none.
        score: a public model's log-likelihood; None if no model is at hand.
        embed: a public embedder; None if none is at hand.
        tag: a public tagger that finds names; None if none is at hand.
    """

    released: Sequence[str] = field(repr=False)
    members: Sequence[str] = field(repr=False)
    nonmembers: Sequence[str] = field(repr=False)
    exposure: Exposure = "internal"
    canaries: Canaries | None = None
    member_labels: Sequence[str] = field(default=(), repr=False)
    nonmember_labels: Sequence[str] = field(default=(), repr=False)
    score: Scorer | None = None
    embed: Embedder | None = None
    tag: Tagger | None = None

    @property
    def texts(self) -> list[str]:
        """The released texts that are not empty."""
        return [text for text in self.released if text.strip()]

    @property
    def fair(self) -> tuple[list[str], list[str]]:
        """Return equal numbers of members and non-members, because more documents give more matches by chance."""
        size = min(len(self.members), len(self.nonmembers))
        return list(self.members[:size]), list(self.nonmembers[:size])
