"""A ledger with rows in every table, all recorded by the services: what the comparison with the chain is tried on."""

from models_db.database.base import utc_now
from models_db.policies.rules import DatasetTerms
from models_db.services import artifacts, datasets, erasures, exposures, gates, people, policies, proposals, schedules
from models_db.services.audit import chain
from models_db.services.gates import GateDecision
from models_db.services.people import PasskeySignature, PasskeyTerms
from models_db.services.schedules import Timing
from models_db.tables import Rehearsal, Restoration, TwinAttack
from models_db.values.amounts import Amount
from models_db.values.canonical_json import Json
from models_db.writes.insert import insert_row
from tests.support import PLAN, SOON, TEN, World, planned, terms


def tell(world: World) -> None:
    """Everything that can be done is done at least once."""
    second, dora = world.person("second steward"), world.person("dora", "auditor")
    _prepare(world)
    world.grant("dora", "steward", valid_to=SOON)
    world.decide(world.request(), by=dora)
    _decide_by_passkey(world)
    _run(world)
    _repeat(world)
    _publish(world)
    _look(world)
    _erase(world)
    request_id = world.request(name='Ä "quoted" \\ \t ☃ \x7f')
    world.decide(request_id)
    world.take_back(request_id)
    world.decide(request_id, verdict="reject", by=second)
    world.revoke("second steward", "steward")
    with world.database.write() as session:
        now_ = utc_now()
        insert_row(session, Restoration(taken_at=now_, link=3, reason="a disk", at=now_, actor_id=world.admin.id))
        insert_row(session, TwinAttack(dataset="twin", request_id=1, configuration="c" * 64, result="d" * 64,
                                   attacks="membership", at=now_, actor_id=world.runner.id))  # fmt: skip
        insert_row(session, Rehearsal(dataset="twin", request_id=1, configuration="c" * 64, result='{"texts":24}',
                                   at=now_, actor_id=world.runner.id))  # fmt: skip
        head = chain.read_chain_head(session).hash
        chain.record_checkpoint(session, world.steward, head, "signature", "key of steward", now_)


def _prepare(world: World) -> None:
    world.dataset(blocks=2)
    world.dataset("estate")
    world.dataset("twin", governed=False)
    world.empty_dataset()
    world.empty_dataset()
    world.dataset("grown", blocks=2)
    later = [b"later-unit".ljust(32, b"\0")]
    world.version("grown", later, growth=world.growth("grown", opens=True, declared=7))
    rule = DatasetTerms("clinic", 1, 1, 1, None, None)
    with world.database.write() as session:
        for given in (terms(spend_approvals=2), terms(rules=(rule,)), terms()):
            policies.adopt(session, world.admin, given)


def _decide_by_passkey(world: World) -> None:
    """A steward decides with a passkey, and loses it afterwards."""
    with world.database.write() as session:
        terms = PasskeyTerms("es256:1", "localhost", "http://localhost:8717", "")
        number = people.register_passkey(session, world.admin, world.steward, terms, "credential", "s").id
    request = world.request("estate")
    decision = GateDecision(request, "spend", world.subject(request, "spend"), "approve", "agreed", SOON)
    with world.database.write() as session:
        used = PasskeySignature(number, "00", "{}")
        gates.record_decision(session, world.analyst, decision, "s", approver=world.steward, passkey=used)
    with world.database.write() as session:
        people.revoke_passkey(session, world.steward, number, "the telephone is lost")


def _run(world: World) -> None:
    last = planned(Amount(3, 1))
    request = world.request("estate", approved=[planned(TEN, TEN), last])
    world.decide(request)
    broken_off = world.start(request)
    world.hold(broken_off, planned(TEN, TEN))
    world.arm(broken_off)
    world.fail(broken_off)
    again = world.start(request, goes_on_from=1)
    world.hold(again, planned(Amount(), TEN), last)
    world.arm(again, 1)
    world.arm(world.held())


def _repeat(world: World) -> None:
    standing, begins = world.standing(), utc_now()
    routine = world.start(world.routine(standing))
    world.hold(routine, *PLAN)
    world.arm(routine)
    with world.database.write() as session:
        clinic, proposal = datasets.find_dataset(session, "clinic"), proposals.find_proposal(session, standing)
        made = schedules.create(
            session, world.analyst, clinic, proposal, Timing("interval", "1h", "UTC", begins), "why"
        )
        schedules.record_slot(session, world.analyst, made, begins, skipped="BudgetExceeded")
    due, asked = utc_now(), world.routine(standing)
    with world.database.write() as session:
        made = schedules.find_schedule(session, made.id)
        slot = schedules.record_slot(session, world.analyst, made, due, request_id=asked)
        schedules.end_slot(session, world.runner, slot, "PlanChanged", "")
        schedules.record_change(session, world.steward, made.id, "paused", "a doubt")


def _publish(world: World) -> None:
    world.cap(Amount(2000, 200))
    attempt = world.held()
    world.arm(attempt)
    world.produce(attempt, [("length", "public", {"mean": 3})])
    world.decide(attempt.request_id, "publish")
    with world.database.write() as session:
        publication = artifacts.record_publication(session, world.runner, attempt.request_id)
        artifacts.record_delivery(session, world.runner, publication, "out", "b" * 64)
    world.retraction(attempt.request_id)


def _look(world: World) -> None:
    """Somebody sees unprotected figures of a release."""
    published = world.published(world.dataset("seen"))
    with world.database.write() as session:
        artifact = artifacts.artifact_of(session, published.request_id)
        assert artifact is not None
        exposures.record_view(session, world.steward, artifact, "computed")
        measured: list[tuple[str, str, Json]] = [("overlap", "internal", {"longest": 3}), ("mauve", "internal", {})]
        artifacts.record_metrics(session, world.steward, artifact, measured)
    with world.database.write() as session:
        exposures.record_view(session, world.steward, artifact, "shown")
        exposures.record_exposure(session, world.steward, published.request_id, "2001-01-01T00:00:00.000000Z", "a copy")


def _erase(world: World) -> None:
    """One version of a dataset is gone."""
    with world.database.write() as session:
        seen = datasets.find_dataset(session, "seen")
        number = datasets.newest_version(session, seen).id
        wanted = erasures.ErasureRequest("version", "somebody asked for it", {number: None}, version=number)
        erasures.end_erasure(session, world.steward, erasures.record_erasure(session, world.steward, seen, wanted))
