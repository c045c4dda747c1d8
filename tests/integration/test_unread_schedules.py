"""A schedule that this machine cannot read, whatever put it into the ledger, hinders nobody else."""

from flows.workspace.workspace import open_workspace
from models_db.database.base import utc_now
from models_db.services import datasets, proposals, schedules
from models_db.services.schedules import Timing
from tests.integration.story import Almoner
from tests.integration.test_schedules import LONG_AGO, authorised, look, scheduled, slots


def test_a_schedule_that_cannot_be_read_is_told_and_the_others_go_on(almoner: Almoner) -> None:
    """One in a time zone that another machine knows, and one whose rule stands still."""
    authorised(almoner)
    workspace = open_workspace(almoner.home)
    unread = (("cron", "0 6 * * 1", "Mars/Olympus"), ("rrule", "FREQ=DAILY;INTERVAL=0", "UTC"))
    with workspace.database.write() as session:
        clinic, proposal = datasets.find_dataset(session, "clinic"), proposals.find_proposal(session, 1)
        for kind, rule, zone in unread:
            timing = Timing(kind, rule, zone, utc_now().replace(utc_now()[:10], LONG_AGO))
            schedules.create(session, workspace.actor, clinic, proposal, timing, "every month")
    assert scheduled(almoner) == 3

    done = look(almoner)
    assert [(problem["what"], problem["error"]) for problem in done["problems"]] == [
        ("schedule 1", "ZoneUnknown"),
        ("schedule 2", "InvalidScheduleRule"),
    ]
    assert [(slot["schedule"], slot["request"]) for slot in done["slots"]] == [(3, 1)]
    assert [run["outcome"] for run in done["runs"]] == ["produced"]
    assert slots(almoner) == [(1, None)]

    listed = almoner.ask("schedule list")
    assert [each["state"] for each in listed] == ["active"] * 3
    for line in ("schedule run 1", "schedule run 1 --slot 2026-01-05T06:00"):
        assert almoner.ask(line, expected=2)["error"] == "ZoneUnknown"
    assert almoner.ask("schedule run 3 --slot soon", expected=2)["error"] == "InvalidStartTime"
    assert almoner.ask('schedule end 1 --reason "nobody can read it"')["state"] == "ended"
