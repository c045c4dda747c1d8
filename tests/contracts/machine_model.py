"""The ledger as anybody would keep it on paper: plain Python, no database, and no code of the ledger's own.

It knows people and their roles, requests and their decisions, proposals and amounts, and says of every
step whether it is lawful. The machine tries the step on the ledger and compares.
"""

from dataclasses import dataclass, field

from models_db.values.amounts import Amount, total_amount

STEWARDS = ("steward", "second", "third")
Key = tuple[int, int]
"""Which mechanism of a plan, and which of its instalments."""
Plan = list[list[Amount]]
"""The instalments of each mechanism."""


def parts_of(plan: Plan) -> dict[Key, Amount]:
    """Every instalment of a plan."""
    return {(sequence, number): part for sequence, parts in enumerate(plan) for number, part in enumerate(parts)}


@dataclass
class Vote:
    """One approval."""

    by: str
    until: int
    withdrawn: bool = False


@dataclass
class Attempt:
    """One execution of a request."""

    number: int
    mechanisms: int = 0
    held: dict[Key, Amount] = field(default_factory=dict)
    armed: dict[Key, Amount] = field(default_factory=dict)

    @property
    def parts(self) -> dict[Key, Amount]:
        """What it has held or armed."""
        return self.held | self.armed

    @property
    def taken(self) -> Amount:
        """What it keeps from others."""
        return total_amount(list(self.parts.values()))


@dataclass
class Request:
    """A request, with all its attempts; all of them read every block."""

    number: int
    needed: int
    plan: Plan
    standing: int | None = None
    state: str = "submitted"
    votes: list[Vote] = field(default_factory=list)
    release: list[Vote] = field(default_factory=list)
    rejected: bool = False
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def taken(self) -> Amount:
        """What all its attempts keep from others."""
        return total_amount([attempt.taken for attempt in self.attempts])

    @property
    def parts(self) -> dict[Key, Amount]:
        """What it was approved for."""
        return parts_of(self.plan)

    def armed_before(self, attempt: Attempt) -> dict[Key, Amount]:
        """The parts that attempts before that one have armed at what they were approved for."""
        earlier = [each for each in self.attempts if each.number < attempt.number]
        return {key: part for key, part in self.parts.items() if any(each.armed.get(key) == part for each in earlier)}

    def allows(self, plan: Plan) -> bool:
        """Whether each part is what was approved: the attempts of the machine begin from nothing."""
        return parts_of(plan).items() <= self.parts.items()

    def charged_by(self, attempt: Attempt) -> bool:
        """Whether an attempt has every mechanism, and every part is armed once all that it holds is."""
        return attempt.mechanisms == len(self.plan) and self.parts.items() <= attempt.parts.items()


@dataclass
class Proposal:
    """What stewards decide besides releases."""

    number: int
    kind: str
    needed: int
    amount: Amount = field(default_factory=Amount)
    runs: int = 0
    plan: Plan = field(default_factory=list)
    used: int = 0
    request: int | None = None
    votes: list[Vote] = field(default_factory=list)
    rejected: bool = False
    carried: bool = False


@dataclass
class Policy:
    """The terms that the machine changes."""

    spend: int = 1
    proposal: int = 1


@dataclass
class Paper:
    """The whole ledger. Time is in hours since the beginning; it only goes forward."""

    cap: Amount
    blocks: int
    now: int = 0
    policy: Policy = field(default_factory=Policy)
    stewards: set[str] = field(default_factory=lambda: set(STEWARDS))
    runner: bool = True
    deputy_until: int = 0  # whose role of steward has an end
    requests: dict[int, Request] = field(default_factory=dict)
    proposals: dict[int, Proposal] = field(default_factory=dict)
    links: int = 0

    # --- decisions

    def stands(self, vote: Vote) -> bool:
        """Whether an approval counts now."""
        return not vote.withdrawn and vote.until > self.now and self.may_decide(vote.by)

    def may_decide(self, name: str) -> bool:
        """Whether somebody is a steward now."""
        return name in self.stewards or (name == "deputy" and self.deputy_until > self.now)

    def counted(self, what: Request | Proposal) -> int:
        """By how many people it is approved."""
        return len({vote.by for vote in what.votes if self.stands(vote)})

    def open(self, what: Request | Proposal) -> bool:
        """Whether it has its approvals."""
        return not what.rejected and self.counted(what) >= what.needed

    def may_vote(self, what: Request | Proposal, by: str, verdict: str) -> bool:
        """Whether a decision is lawful, of those who have neither requested nor run."""
        if isinstance(what, Request):
            waits = what.state in ("submitted", "approved")
        else:
            ends = what.kind == "standing" and verdict == "reject"
            waits = not what.rejected and (not what.carried or ends)
        if not waits or not self.may_decide(by):
            return False
        return verdict == "reject" or not any(v.by == by and not v.withdrawn and v.until > self.now for v in what.votes)

    # --- amounts

    def taken(self) -> Amount:
        """What is held or spent of the lifetime budget; every block has the same."""
        return total_amount([request.taken for request in self.requests.values()])

    def spent(self) -> Amount:
        """What is spent of it."""
        return total_amount([part for r in self.requests.values() for a in r.attempts for part in a.armed.values()])

    def left(self) -> Amount:
        """What requests may still hold."""
        return self.cap - self.taken()

    def covered(self, request: Request) -> bool:
        """Whether its gate, or its standing authorisation, lets it spend."""
        if request.standing is None:
            return self.open(request)
        proposal = self.proposals[request.standing]
        return proposal.carried and not proposal.rejected

    def may_hold(self, request: Request, asked: Amount) -> bool:
        """Whether a plan of the running attempt fits everywhere."""
        limit = self.cap if request.standing is None else self.proposals[request.standing].amount
        return asked.fits(self.left()) and asked.fits(limit)

    def may_produce(self, request: Request, attempt: Attempt) -> bool:
        """Whether the running attempt can end with an artifact: what it still holds is armed on the way."""
        return request.charged_by(attempt) and (not attempt.held or self.covered(request))

    def may_carry(self, proposal: Proposal) -> bool:
        """Whether a proposal that has its approvals can take effect."""
        if proposal.kind == "cap":
            return self.taken().fits(proposal.amount)
        return proposal.request is None or self.requests[proposal.request].state == "published"
