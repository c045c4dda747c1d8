"""The steps that the machine tries on a ledger: each is done as the model foretells, or refused as it foretells."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import artifacts, budget, datasets, gates, people, policies, requests
from models_db.services.audit import chain
from models_db.services.audit.chain import Actor
from models_db.services.budget import InvocationPlan
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json
from models_db.writes.database_errors import ClockWentBack
from tests.conftest import Ledgers
from tests.contracts.machine_model import STEWARDS, Attempt, Paper, Plan, Policy, Proposal, Request, Vote, parts_of
from tests.contracts.moving_clock import MovingClock
from tests.support import World, append_link, execute, plan_of, planned, terms

UNIT = 1000
CAP = Amount(60 * UNIT, 60 * UNIT)
BLOCKS = 2
LONGEST = 20 * 24
"""Hours that a ledger lives at most, so that neither requests nor proposals expire."""


def invocations(plan: Plan) -> list[InvocationPlan]:
    """A plan as the ledger takes it."""
    return [planned(*parts) for parts in plan]


def canonical(plan: Plan) -> dict[str, Json]:
    """A plan as a request states it."""
    return plan_of(range(BLOCKS), invocations(plan))


class Steps:
    """Every step that can be tried; the model says what must come of it."""

    ledgers: Ledgers
    backend: str
    mutation: str = ""

    def __init__(self) -> None:
        super().__init__()
        self.closing = ExitStack()
        self.clock = self.closing.enter_context(MovingClock())
        self.world = World.create(self.closing.enter_context(self.ledgers.new(self.backend)))
        self.database = self.world.database
        self.actors: dict[str, Actor] = {"steward": self.world.steward}
        for name in ("second", "third"):
            self.actors[name] = self.world.person(name)
        self.actors["deputy"] = self.world.person("deputy", "auditor")
        self.world.dataset(cap=CAP, blocks=BLOCKS)
        self.paper = Paper(CAP, BLOCKS)
        self.begun: dict[tuple[int, int], budget.Attempt] = {}
        self.links = self.head()
        self.least = Amount()
        if self.mutation:
            execute(self.database, self.mutation)

    # --- how a step is tried

    def head(self) -> int:
        with self.database.read() as session:
            return chain.read_chain_head(session).seq

    def step(self, lawful: bool, act: Callable[[], Any], links: int = 1) -> Any:
        """Try `act`: done with its links, or refused without any. Returns what it returned."""
        if not lawful:
            with pytest.raises(Refused):
                act()
            return None
        done = act()
        self.links += links
        return done

    def writing(self, act: Callable[[Session], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with self.database.write() as session:
                return act(session)

        return run

    def one(self, number: int, among: Sequence[Any]) -> Any:
        return among[number % len(among)]

    def request_of(self, number: int) -> Request:
        found: Request = self.one(number, list(self.paper.requests.values()))
        return found

    def current(self, number: int) -> tuple[Request, Attempt]:
        """An attempt, more often a running one."""
        tried = [request for request in self.paper.requests.values() if request.attempts]
        running = [request for request in tried if request.state == "running"]
        request = self.one(number // 4, running if running and number % 4 else tried)
        return request, self.one(number, request.attempts) if number % 8 == 0 else request.attempts[-1]

    def runs(self, request: Request, attempt: Attempt) -> bool:
        return self.paper.runner and request.state == "running" and attempt is request.attempts[-1]

    def real(self, request: Request, attempt: Attempt) -> budget.Attempt:
        return self.begun[request.number, attempt.number]

    # --- requests and their gates

    def ask(self, plan: Plan) -> None:
        made = self.step(True, lambda: self.world.request(approved=invocations(plan)))
        self.paper.requests[made] = Request(made, self.paper.policy.spend, plan)

    def ask_under_standing(self, number: int) -> None:
        if not any(m.kind == "standing" for m in self.paper.proposals.values()):
            return
        standing = self.one(number, [m for m in self.paper.proposals.values() if m.kind == "standing"])
        lawful = standing.carried and not standing.rejected
        made = self.step(lawful, lambda: self.world.routine(standing.number, plan=canonical(standing.plan)))
        if made is not None:
            policy = self.paper.policy
            self.paper.requests[made] = Request(
                made, policy.spend, standing.plan, standing=standing.number, state="approved"
            )

    def decide(self, number: int, who: str, verdict: str, valid: int) -> None:
        request = self.request_of(number)
        if request.standing is not None:
            return
        lawful = self.paper.may_vote(request, who, verdict)
        self.step(lawful, lambda: self.vote(request.number, "spend", who, verdict, valid))
        if lawful and verdict == "reject":
            request.state, request.rejected = "rejected", True
        elif lawful:
            request.votes.append(Vote(who, self.paper.now + valid))
            if request.state == "submitted" and self.paper.open(request):
                request.state = "approved"
        assert self.world.state(request.number) == request.state

    def vote(self, number: int, gate: str, who: str, verdict: str, valid: int) -> str:
        return self.world.decide(number, gate, verdict, by=self.actors[who], valid=timedelta(hours=valid))

    def take_an_approval_back(self, number: int, by: str) -> None:
        request = self.request_of(number)
        # Also what does not count now, because its giver is no steward any more.
        mine = [v for v in request.votes if v.by == by and not v.withdrawn and v.until > self.paper.now]
        lawful = bool(mine) and request.state in ("submitted", "approved")
        self.step(
            lawful,
            self.writing(
                lambda s: gates.withdraw_approval(s, self.actors[by], request.number, "spend", "a doubt", f"s{number}")
            ),
        )
        for vote in mine if lawful else []:
            vote.withdrawn = True
        if lawful and request.state == "approved" and not self.paper.open(request):
            request.state = "submitted"
        assert self.world.state(request.number) == request.state

    def withdraw(self, number: int) -> None:
        request = self.request_of(number)
        lawful = request.state in ("submitted", "approved")
        self.step(lawful, self.writing(lambda s: requests.withdraw(s, self.world.analyst, request.number, "no")))
        request.state = "withdrawn" if lawful else request.state

    # --- runs

    def start(self, number: int) -> None:
        waiting = [r for r in self.paper.requests.values() if r.state == "approved"]
        request = self.one(number, waiting) if waiting and number % 4 else self.request_of(number)
        lawful = self.paper.runner and request.state == "approved" and self.paper.covered(request)
        standing = self.paper.proposals[request.standing] if request.standing is not None else None
        if standing is not None:
            lawful = lawful and standing.used < standing.runs
        begun = self.step(lawful, lambda: self.world.start(request.number))
        if lawful:
            request.state = "running"
            made = Attempt(len(request.attempts) + 1)
            request.attempts.append(made)
            self.begun[request.number, made.number] = begun
            if standing is not None:
                standing.used += 1

    def ask_approve_start_and_hold(self, number: int, plan: Plan) -> None:
        """The usual way, in one step, so that long stories stay short."""
        self.ask(plan)
        request = list(self.paper.requests.values())[-1]
        valid = 480 if number % 4 else 6
        for name in STEWARDS[: request.needed]:
            lawful = self.paper.may_vote(request, name, "approve")
            self.step(lawful, lambda name=name: self.vote(request.number, "spend", name, "approve", valid))
            if lawful:
                request.votes.append(Vote(name, self.paper.now + valid))
                request.state = "approved" if self.paper.open(request) else request.state
        if request.state == "approved":
            self.start_this(request)
            if request.attempts:
                self.hold_this(request, request.attempts[-1], plan)

    def start_this(self, request: Request) -> None:
        begun = self.step(self.paper.runner, lambda: self.world.start(request.number))
        if begun is not None:
            request.state = "running"
            request.attempts.append(Attempt(1))
            self.begun[request.number, 1] = begun

    def hold(self, number: int, plan: Plan) -> None:
        """Any plan, the whole one that was approved, or what earlier attempts have left of it, as if it went on."""
        if not self.begun:
            return
        request, attempt = self.current(number)
        paid = request.armed_before(attempt) if number % 3 else {}
        left = [
            [Amount() if (sequence, part) in paid else amount for part, amount in enumerate(parts)]
            for sequence, parts in enumerate(request.plan)
        ]
        self.hold_this(request, attempt, left if number % 5 else plan)

    def hold_this(self, request: Request, attempt: Attempt, plan: Plan) -> None:
        parts = parts_of(plan)
        asked = total_amount(list(parts.values()))
        lawful = self.runs(request, attempt) and not attempt.mechanisms and request.allows(plan)
        lawful = lawful and self.paper.may_hold(request, asked)
        real = self.real(request, attempt)
        self.step(lawful, lambda: self.world.hold(real, *invocations(plan)))
        if lawful:
            attempt.mechanisms, attempt.held = len(plan), parts

    def arm(self, number: int) -> None:
        if self.begun:
            request, attempt = self.current(number)
            some = [*attempt.held, *attempt.armed] if number % 5 else [(1, 2)]
            self.arm_this(request, attempt, self.one(number // 7, some or [(0, 0)]))

    def arm_this(self, request: Request, attempt: Attempt, key: tuple[int, int]) -> None:
        lawful = self.runs(request, attempt) and key in attempt.held and self.paper.covered(request)
        spent = self.step(lawful, lambda: self.world.arm(self.real(request, attempt), *key))
        if lawful:
            assert spent == attempt.held[key]
            attempt.armed[key] = attempt.held.pop(key)

    def arm_after_a_doubt(self, number: int, doubt: str) -> None:
        """What was approved when it began need not be so any more."""
        if not self.begun:
            return
        if doubt == "too late":
            self.wait(7)
        else:
            self.revoke_or_grant(self.one(number, STEWARDS))
        self.arm(number)

    def fail_or_be_swept(self, number: int) -> None:
        if not self.begun:
            return
        request, attempt = self.current(number)
        lawful = self.runs(request, attempt)
        self.step(lawful, lambda: self.world.fail(self.real(request, attempt)))
        if lawful:
            request.state, attempt.held = "approved", {}

    def arm_all_and_produce(self, number: int) -> None:
        if not self.begun:
            return
        request, attempt = self.current(number)
        if number % 4 and self.runs(request, attempt) and self.paper.covered(request):
            for key in list(attempt.held)[: 1 + number % 5]:
                self.arm_this(request, attempt, key)
        lawful = self.runs(request, attempt) and self.paper.may_produce(request, attempt)
        self.step(lawful, lambda: self.world.produce(self.real(request, attempt)))
        if lawful:
            request.state, attempt.armed, attempt.held = "produced", attempt.parts, {}

    def crash_before_the_commit(self, number: int) -> None:
        """Whatever a transaction did, without its commit nothing happened."""
        if not self.begun:
            return
        with self.database.write() as session:
            with suppress(Refused):
                budget.settle(session, self.world.runner, self.real(*self.current(number)), "FORFEIT")
            session.rollback()

    # --- publications

    def approve_release(self, number: int, by: str) -> None:
        if not any(r.state == "produced" for r in self.paper.requests.values()):
            return
        request = self.one(number, [r for r in self.paper.requests.values() if r.state == "produced"])
        lasting = any(v.by == by and v.until > self.paper.now for v in request.release)
        lawful = by in self.paper.stewards and not lasting
        self.step(lawful, lambda: self.vote(request.number, "publish", by, "approve", 48))
        if lawful:
            request.release.append(Vote(by, self.paper.now + 48))

    def publish(self, number: int) -> None:
        made = [r for r in self.paper.requests.values() if r.state == "produced"]
        request = self.one(number, made) if made else self.request_of(number)
        again = request.state == "published"
        passed = any(self.paper.stands(vote) for vote in request.release)
        new = request.state == "produced" and self.paper.runner and passed
        act = self.writing(lambda s: artifacts.record_publication(s, self.world.runner, request.number))
        self.step(new or again, act, int(new))
        request.state = "published" if new else request.state

    # --- proposals

    def move_cap(self, size: int) -> None:
        wanted = Amount(size * UNIT, size * UNIT)
        lawful = self.paper.taken().fits(wanted)
        made = self.step(lawful, lambda: self.world.cap(wanted, carry=False))
        self.moved(made, "cap", amount=wanted)

    def move_standing(self, most: Amount, runs: int, plan: Plan) -> None:
        made = self.step(True, lambda: self.world.standing(most, runs, carry=False, plan=canonical(plan)))
        self.moved(made, "standing", amount=most, runs=runs, plan=plan)

    def move_retraction(self, number: int) -> None:
        out = [r for r in self.paper.requests.values() if r.state == "published"]
        request = self.one(number, out) if out else self.request_of(number)
        made = self.step(request.state == "published", lambda: self.world.retraction(request.number, carry=False))
        self.moved(made, "retraction", request=request.number)

    def move(self, kind: str, number: int, most: Amount, votes: int, plan: Plan) -> None:
        if kind == "cap":
            self.move_cap(1 + number % 100)
        elif kind == "standing":
            self.move_standing(most + most, 1 + number % 2, plan)
        else:
            self.move_retraction(number)
        for name in STEWARDS[:votes] if self.paper.proposals else ():
            self.decide_this(list(self.paper.proposals.values())[-1], name, "approve", 48)

    def moved(self, number: int | None, kind: str, **more: Any) -> None:
        if number is not None:
            self.paper.proposals[number] = Proposal(number, kind, self.paper.policy.proposal, **more)

    def decide_proposal(self, number: int, who: str, verdict: str, valid: int) -> None:
        if self.paper.proposals:
            self.decide_this(self.one(number, list(self.paper.proposals.values())[-3:]), who, verdict, valid)

    def decide_this(self, proposal: Proposal, who: str, verdict: str, valid: int) -> None:
        lawful = self.paper.may_vote(proposal, who, verdict)
        vote = Vote(who, self.paper.now + valid)
        proposal.votes.append(vote)
        carries = lawful and verdict == "approve" and self.paper.open(proposal)
        lawful = lawful and (not carries or self.paper.may_carry(proposal))
        if not lawful or verdict == "reject":
            proposal.votes.pop()
        self.step(lawful, lambda: self.vote(proposal.number, "proposal", who, verdict, valid))
        if lawful and verdict == "reject":
            proposal.rejected = True
        elif lawful and carries:
            proposal.carried = True
            if proposal.kind == "cap":
                self.paper.cap = proposal.amount
            if proposal.request is not None:
                self.paper.requests[proposal.request].state = "retracted"

    # --- people, policy, time

    def clinic(self, session: Session) -> Any:
        return datasets.find_dataset(session, "clinic")

    def revoke_or_grant(self, name: str) -> None:
        role = "runner" if name == "runner" else "steward"
        held = self.paper.runner if role == "runner" else name in self.paper.stewards
        if held:
            self.step(True, self.writing(lambda s: people.revoke(s, self.world.admin, name, role, "left")))
            self.step(False, self.writing(lambda s: people.revoke(s, self.world.admin, name, role, "left")))
        else:
            self.step(False, self.writing(lambda s: people.grant(s, self.world.steward, name, role, "mine")))
            self.step(True, self.writing(lambda s: people.grant(s, self.world.admin, name, role, "back")))
        if role == "runner":
            self.paper.runner = not held
        else:
            self.paper.stewards ^= {name}

    def lend_the_role_or_end_it(self, hours: int) -> None:
        if self.paper.may_decide("deputy"):
            self.step(True, self.writing(lambda s: people.revoke(s, self.world.admin, "deputy", "steward", "back")))
            self.paper.deputy_until = self.paper.now
            return
        until = utc_now(datetime.now(UTC) + timedelta(hours=hours))
        self.step(True, self.writing(lambda s: people.grant(
            s, self.world.admin, "deputy", "steward", "a holiday", valid_to=until)))  # fmt: skip
        self.paper.deputy_until = self.paper.now + hours

    def adopt(self, terms_: Policy) -> None:
        wanted = terms_
        made = terms(spend_approvals=wanted.spend, proposal_approvals=wanted.proposal)
        known = wanted == self.paper.policy
        self.step(True, self.writing(lambda s: policies.adopt(s, self.world.admin, made)), int(not known))
        self.step(False, self.writing(lambda s: policies.adopt(s, self.world.runner, made)))
        self.paper.policy = wanted

    def wait(self, hours: int) -> None:
        if self.paper.now + hours <= LONGEST:
            self.paper.now += hours
            self.clock.ahead += timedelta(hours=hours)
            if self.database.is_sqlite:
                self.step(True, self.writing(lambda s: append_link(s, self.world.admin, "time.passed", {})))

    def set_the_clock_back(self) -> None:
        """PostgreSQL's own clock decides, and cannot be set here (test_clock.py)."""
        if not self.database.is_sqlite:
            return
        self.clock.ahead -= timedelta(hours=2)
        with pytest.raises(ClockWentBack):
            self.world.request()
        self.clock.ahead += timedelta(hours=2)

    def write_by_hand(self, statement: str) -> None:
        """Refused, or nothing to be changed there."""
        with suppress(IntegrityError):
            execute(self.database, statement)
