"""What is read for many at once is what the other services say of each."""

from collections.abc import Iterator

import pytest
from sqlalchemy import event, select
from sqlalchemy.orm import Session

from flows.dashboard.queue_page import QueueItem, queue_page
from flows.dashboard.viewer import View
from flows.datasets import inventory as inventory_module
from models_db.database.base import utc_now
from models_db.errors import Refused
from models_db.services import artifacts, budget, cohorts, datasets, gates, people, proposals, requests
from models_db.services.audit.chain import Actor
from models_db.services.budget import Balance
from models_db.services.gates import Decidable, GateDecision, GateStatus, count_approvals, find_decidable
from models_db.services.queries import lists
from models_db.services.queries.lists import BlockReaders
from models_db.tables import Account, Dataset, Entry, Hold, Invocation, Proposal, Publication, Withdrawal
from models_db.values.request_state import LEGAL_TRANSITIONS, REQUEST_GATES, Gate
from tasks.accounting.lifetime_claims import lifetime_epsilon
from tasks.planning.block_selection import Reading
from tests.conftest import Ledgers
from tests.contracts.rows import PLAN
from tests.contracts.town import Town
from tests.support import SOON, World, any_amounts

CONCERNS = ("flows/dashboard", "migrations/schema", "models_db/services", "models_db/services/queries")

STATES = {after for _, after in LEGAL_TRANSITIONS}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def town(ledgers: Ledgers, request: pytest.FixtureRequest) -> Iterator[Town]:
    """What is done to it is undone, so one for each backend will do."""
    with ledgers.new(request.param) as database:
        yield Town.build(World.create(database, approved=PLAN))


def test_accounts(town: Town) -> None:
    with town.world.database.read() as session:
        every = datasets.list_all(session)
        accounts = {dataset.account_id for dataset in every}
        found, claims = lists.account_balances(session, accounts), lists.lifetime_claims(session, accounts)
        for dataset in every:
            assert found[dataset.account_id] == budget.balance(session, dataset.account_id)
            assert claims[dataset.account_id] == datasets.lifetime_claim(session, dataset)
            shared = [other.name for other in every if other.account_id == dataset.account_id]
            assert lists.datasets_on_account(session, dataset.account_id) == tuple(shared)
        assert len({claims[account].epsilon for account in claims}) > 1  # a cap was raised


def test_partitions_and_versions(town: Town) -> None:
    with town.world.database.read() as session:
        every = datasets.list_all(session)
        blocks = lists.block_counts(session, {dataset.account_id for dataset in every})
        further = lists.cohort_counts(session, {dataset.account_id for dataset in every})
        counted = lists.version_counts(session, [dataset.id for dataset in every])
        for dataset in every:
            assert blocks[dataset.account_id] == cohorts.blocks_per_cohort(session, dataset.account_id)
            assert further.get(dataset.account_id, 1) == cohorts.count_cohorts(session, dataset.account_id)
            assert counted.get(dataset.id, 0) == len(datasets.list_versions(session, dataset))


def test_the_inventory_is_what_is_said_of_each(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory_module, "DATASETS_PER_QUERY", 2)  # so that it has several pages
    with town.world.database.read() as session:
        every = datasets.list_all(session)
        found = list(inventory_module.list_datasets(session))
    with town.world.database.read() as session:
        assert [line["name"] for line in found] == [dataset.name for dataset in every]
        for line, dataset in zip(found, every, strict=True):
            claim, balance = datasets.lifetime_claim(session, dataset), budget.balance(session, dataset.account_id)
            assert [line[name] for name in ("epsilon_cap", "delta_cap", "rho_cap", "rho_left")] == [
                claim.epsilon, claim.delta, balance.cap.rho_text, balance.remaining.rho_text,
            ]  # fmt: skip
            assert line["epsilon_spent"] == lifetime_epsilon(balance.spent, claim.delta_conversion)


def test_datasets_by_name(town: Town) -> None:
    with town.world.database.read() as session:
        names = [dataset.name for dataset in datasets.list_all(session)]
        first = [dataset.name for dataset in lists.dataset_page(session, 3)]
        rest = [dataset.name for dataset in lists.dataset_page(session, 100, first[-1])]
        assert sorted(first + rest) == sorted(names)
        assert [one.name for one in lists.dataset_page(session, 9, having="arbou")] == ["harbour"]
        assert lists.dataset_page(session, 9, having="%") == []


def test_requests_and_their_states(town: Town) -> None:
    with town.world.database.read() as session:
        every = requests.list_all(session)
        found = lists.request_page(session, len(every) + 1)
        assert [request.id for request, _ in found] == [request.id for request in every][::-1]
        assert len({state for _, state in found}) >= 7
        spent = lists.spent_by_request(session, [request.id for request in every])
        for request, state in found:
            assert state == requests.state_of(session, request.id)
            assert spent.get(request.id, budget.ZERO_AMOUNT) == budget.spent_by(session, request.id)
        counted = lists.state_counts(session, {one.dataset_id for one in every}, STATES)
        assert sum(counted.values()) == len(every)
        for (dataset, state), count in counted.items():
            assert count == sum((one.dataset_id, now) == (dataset, state) for one, now in found)
        newest = lists.newest_requests(session, {one.dataset_id for one in every})
        assert {one.dataset_id: one.id for one in every} == {dataset: one.id for dataset, one in newest.items()}


def test_pages_of_requests_lose_and_repeat_none(town: Town) -> None:
    with town.world.database.read() as session:
        every = [request.id for request in requests.list_all(session)]
        down: list[int] = []
        while page := lists.request_page(session, 4, before=down[-1] if down else None):
            down += [request.id for request, _ in page]
        up: list[int] = []
        while page := lists.request_page(session, 4, after=up[-1] if up else 0):
            up += [request.id for request, _ in page]
        assert down[::-1] == up == every
        waiting = lists.request_page(session, 100, states=("produced",))
        assert waiting
        assert all(requests.state_of(session, request.id) == "produced" for request, _ in waiting)


def every_decidable(session: Session) -> list[Decidable]:
    return [
        *(find_decidable(session, one.id, gate) for one in requests.list_all(session) for gate in REQUEST_GATES),
        *(find_decidable(session, one.id, Gate.PROPOSAL) for one in proposals.list_all(session)),
    ]


def counted_one_by_one(session: Session, subject: Decidable) -> int:
    withdrawn = set(session.scalars(select(Withdrawal.approval_id)))
    counted = set()
    for one, _ in gates.decisions_on(session, subject.number, subject.gate):
        if (
            (one.subject_digest, one.decision) == (subject.subject_digest, "approve")
            and one.expires_at > utc_now()
            and one.id not in withdrawn
            and "steward" in people.roles_of(session, one.approver_id)
        ):
            counted.add(one.approver_id)
    return len(counted)


def test_decisions_count_for_many_as_for_one(town: Town) -> None:
    with town.world.database.read() as session:
        every = every_decidable(session)
        status = GateStatus.load(session, every)
        seen = 0
        for one in every:
            counted = counted_one_by_one(session, one)
            assert (len(status.approvers(one)), status.needed(one)) == count_approvals(session, one)
            assert len(status.approvers(one)) == counted
            assert status.deciders(one) == GateStatus.load(session, [one]).deciders(one)
            seen += counted
        assert seen > 5


def test_proposals(town: Town) -> None:
    with town.world.database.read() as session:
        every = proposals.list_all(session)
        waiting = [one.id for one in every if proposals.state_of(session, one) == "open"]
        assert [one.id for one in lists.open_proposals(session, 100)] == waiting
        assert [one.id for one in lists.open_proposals(session, 100, waiting[0])] == waiting[1:]
        uses = lists.use_counts(session, [one.id for one in every])
        assert all(uses.get(one.id, 0) == proposals.count_uses(session, one) for one in every)
        called_back = session.scalars(select(Proposal).where(Proposal.kind == "retraction")).all()
        published = session.scalars(select(Publication.id)).all()
        behind = lists.requests_of_publications(session, published)
        for one in called_back:
            assert behind[one.publication_id or 0] == proposals.retracted_request(session, one)


def test_a_history_by_day(town: Town) -> None:
    with town.world.database.read() as session:
        every = datasets.list_all(session)
        for dataset in every:
            blocks = lists.most_spent_blocks(session, dataset.account_id)
            assert [*blocks] == [*range(1, cohorts.count_cohorts(session, dataset.account_id) + 1)]
            days = lists.spent_by_day(session, [block.account_id for block in blocks.values()])
            for cohort, block in blocks.items():
                assert block.rho_spent == balance_of(session, dataset, cohort).spent.rho
                assert sum(rho for _, rho in days.get(block.account_id, [])) == block.rho_spent
            shared = [other.created_at for other in every if other.account_id == dataset.account_id]
            assert lists.first_registered(session, dataset.account_id) == min(shared)


def balance_of(session: Session, dataset: Dataset, cohort: int) -> Balance:
    whole = Reading(cohorts.blocks_per_cohort(session, dataset.account_id))
    return budget.balance(session, dataset.account_id, whole.of(cohort))


def test_balances_of_cohorts(town: Town) -> None:
    with town.world.database.read() as session:
        every = datasets.list_all(session)
        accounts = {dataset.account_id for dataset in every}
        found = lists.cohort_balances(session, accounts)
        for dataset in every:
            root, there = dataset.account_id, cohorts.count_cohorts(session, dataset.account_id)
            assert found[root] == {each: balance_of(session, dataset, each) for each in range(1, there + 1)}
        assert any(len(each) > 1 for each in found.values())


def test_who_has_read_a_cohort(town: Town) -> None:
    """Compared with each armed hold on its own."""
    with town.world.database.read() as session:
        armed = select(Hold, Invocation.request_id).join(Invocation, Invocation.id == Hold.invocation_id)
        rows = session.execute(armed.join(Entry, (Entry.hold_id == Hold.id) & (Entry.kind == "ARM"))).all()
        seen = 0
        for dataset in datasets.list_all(session):
            each, want = cohorts.blocks_per_cohort(session, dataset.account_id), dict[int, set[int]]()
            for hold, request in rows:
                block = session.get_one(Account, hold.account_id)
                if block.parent_id == dataset.account_id and block.block is not None:
                    want.setdefault(1 + block.block // each, set()).add(request)
            told = lists.block_readers(session, dataset.account_id)
            assert told == {cohort: BlockReaders(len(numbers), max(numbers)) for cohort, numbers in want.items()}
            seen += sum(one.count for one in told.values())
        assert seen > 3


def test_what_releases_measured(town: Town) -> None:
    with town.world.database.read() as session:
        seen = 0
        for dataset in datasets.list_all(session):
            told = [(one.request.id, one.state, one.results) for one in lists.released_metrics(session, dataset.id)]
            want = []
            for request in requests.list_all(session):
                made = artifacts.artifact_of(session, request.id)
                stored = tuple(each.result for each in artifacts.evaluations(session, made)) if made else ()
                if request.dataset_id == dataset.id and stored:
                    want.append((request.id, requests.state_of(session, request.id), stored))
            assert told == want
            seen += len(told)
        assert seen


def test_as_many_statements_for_many_as_for_one(town: Town) -> None:
    counted: list[str] = []
    engine = town.world.database.engine
    event.listen(engine, "before_cursor_execute", lambda *told: counted.append(told[2]))
    with town.world.database.read() as session:
        every = every_decidable(session)
        for asked in (every[:1], every):
            counted.clear()
            lists.spent_by_request(session, [one.number for one in asked])
            GateStatus.load(session, asked)
            assert len(counted) == 7


class Back(Exception):
    """Nothing of it is kept."""


def admitted(world: World, actor: Actor, waiting: QueueItem, subject: str) -> bool:
    """Whether the database would take that person's approval."""
    decision = GateDecision(waiting.number, waiting.step, subject, "approve", "because", SOON)
    try:
        with world.database.write() as session:
            gates.record_decision(session, actor, decision, "signature", amount_check=any_amounts)
            raise Back
    except Back:
        return True
    except Refused:
        return False


@pytest.mark.slow
def test_the_queue_names_whom_the_database_would_let_decide(town: Town) -> None:
    world = town.world
    with world.database.read() as session:
        looked = queue_page(View(session, world.steward, frozenset({"steward"}), policy=None, doubt=""))
        everybody = [Actor(person.id, person.name) for person in people.list_all(session)]
        rejected = {
            one.number
            for one in every_decidable(session)
            if one.gate is not Gate.PROPOSAL and GateStatus.load(session, [one]).is_rejected(one)
        }
    asked = [one for one in (*looked.requests, *looked.proposals) if one.step in tuple(Gate) and not one.expired]
    assert {one.step for one in asked} == {*Gate}
    for one in asked:
        if one.what == "request" and one.number in rejected:  # only by hand: a rejection moves it on
            assert one.approvals.may_decide == ()
            continue
        subject = world.subject(one.number, one.step)
        found = tuple(sorted(actor.name for actor in everybody if admitted(world, actor, one, subject)))
        assert one.approvals.may_decide == found, one
        assert one.approvals.yours == (world.steward.name in found)
    assert len({one.approvals.may_decide for one in asked}) > 1
