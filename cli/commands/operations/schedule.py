"""`almoner schedule`: recurring releases, each drawn on a standing authorisation."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import RenderableType

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.run_options import Device, Runner, RunnerAddress, Workers, run_options
from cli.framework.tables import fact_list, table
from flows.schedules import schedules as scheduling
from flows.schedules.schedules import CreatedSchedule, DueResult, ScheduleRow, ScheduleWithSlots, SlotRow
from flows.workspace.workspace import open_workspace
from models_db.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="Manage schedules: create, list, show, pause, resume, end, run.")


Number = Annotated[int, typer.Argument(metavar="ID", help="The schedule's number.")]
Reason = Annotated[str, typer.Option(help="Reason, recorded in the audit log.")]


@command(app, "create")
def create_schedule_command(
    context: CommandContext,
    standing: Annotated[
        int, typer.Argument(metavar="STANDING", help="Number of the standing authorisation that the schedule draws on.")
    ],
    reason: Reason,
    cron: Annotated[
        str | None, typer.Option(metavar="LINE", help="Cron line of five fields, such as `0 6 * * 1`.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="STEP", help="Interval between slots, such as 12h, 1d or 2w.")
    ] = None,
    rrule: Annotated[str | None, typer.Option(metavar="RULE", help="Recurrence rule of RFC 5545.")] = None,
    zone: Annotated[str, typer.Option(help="IANA time zone of cron lines and recurrence rules.")] = "UTC",
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Day or time before which no slot is due. Intervals count from it."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the slots of the schedule and stop; create nothing.")
    ] = False,
) -> CommandResult[CreatedSchedule]:
    """Create a schedule: at each slot the authorised release is requested, and run if the budget allows it.

    Example: almoner schedule create 1 --cron "0 6 * * 1" --zone Europe/Berlin --reason "the weekly report" --dry-run
    """
    kind, rule = _single_rule(cron, every, rrule)
    schedule = scheduling.create_schedule(
        open_workspace(context.home), standing, kind, rule, zone=zone, start=start, reason=reason, dry_run=dry_run
    )
    last = (
        "Dry run: no schedule was created."
        if schedule.schedule is None
        else f"Schedule {schedule.schedule}. Next: `almoner serve`."
    )
    shown = _minute_text({**vars(schedule), "coming": [at[:16] for at in schedule.coming]})
    return CommandResult(schedule, [fact_list(shown, title="Schedule; times are UTC"), last])


def _minute_text(fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return the schedule with its times to the minute, as `--slot` also takes them."""
    times = {name: str(fields[name])[:16] for name in ("starts_at", "last_run", "until") if fields.get(name)}
    return {**fields, **times}


def _single_rule(cron: str | None, every: str | None, rrule: str | None) -> tuple[str, str]:
    rules = [(k, r) for k, r in (("cron", cron), ("interval", every), ("rrule", rrule)) if r is not None]
    if len(rules) != 1:
        raise UsageError(
            "A schedule has exactly one rule.", "Give one of --cron, --every and --rrule.", code="ScheduleRuleConflict"
        )
    return rules[0]


@command(app, "list")
def list_all(
    context: CommandContext,
    dataset: Annotated[str | None, typer.Option(help="List only schedules of this dataset.")] = None,
) -> CommandResult[list[ScheduleRow]]:
    """List all schedules: their rule, and the result of the last slot.

    Example: almoner schedule list
    """
    rows = scheduling.list_schedules(open_workspace(context.home), dataset)
    columns = ("schedule", "dataset", "state", "rule", "zone", "last slot", "became", "standing", "runs used")
    return CommandResult(rows, [table(columns, [_schedule_table_row(each) for each in rows])])


def _schedule_table_row(schedule: ScheduleRow) -> tuple[object, ...]:
    last, became = (schedule.last.slot[:16], _slot_outcome(schedule.last)) if schedule.last else ("", "")
    used = f"{schedule.used} of {schedule.runs}"
    return (
        schedule.schedule, schedule.dataset, schedule.state, schedule.rule, schedule.zone,
        last, became, schedule.standing, used,
    )  # fmt: skip


def _slot_outcome(slot: SlotRow) -> str:
    outcome = f"{slot.state}: {slot.reason}" if slot.reason else slot.state
    return outcome if slot.request is None else f"request {slot.request}, {outcome}"


@command(app, "show")
def show_schedule(
    context: CommandContext,
    number: Number,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Largest number of slots to show, newest first.")] = 20,
) -> CommandResult[ScheduleWithSlots]:
    """Show a schedule and the results of its newest slots.

    Example: almoner schedule show 1
    """
    schedule = scheduling.load_schedule(open_workspace(context.home), number, limit)
    plain = _minute_text({name: value for name, value in vars(schedule).items() if name not in ("last", "slots")})
    rows = [(slot.slot[:16], slot.request, slot.state, slot.reason, slot.detail) for slot in schedule.slots]
    slot_table = table(("slot", "request", "state", "reason", "detail"), rows, "Slots")
    return CommandResult(schedule, [fact_list(plain, title=f"Schedule {number}; times are UTC"), slot_table])


@command(app, "pause")
def pause_schedule(context: CommandContext, number: Number, reason: Reason) -> CommandResult[ScheduleRow]:
    """Pause a schedule (stewards and its creator); its slots in the pause are skipped for good.

    Example: almoner schedule pause 1 --reason "the data is being cleaned"
    """
    return _changed_definition(context, number, "paused", reason)


@command(app, "resume")
def resume_schedule(context: CommandContext, number: Number, reason: Reason) -> CommandResult[ScheduleRow]:
    """Resume a paused schedule; only a steward resumes a schedule that another person has paused.

    Example: almoner schedule resume 1 --reason "the data is clean"
    """
    return _changed_definition(context, number, "resumed", reason)


@command(app, "end")
def end_schedule(context: CommandContext, number: Number, reason: Reason) -> CommandResult[ScheduleRow]:
    """End a schedule for good; the standing authorisation stays, and another schedule may use it.

    Example: almoner schedule end 1 --reason "the study is over"
    """
    return _changed_definition(context, number, "ended", reason)


def _changed_definition(context: CommandContext, number: int, kind: str, reason: str) -> CommandResult[ScheduleRow]:
    schedule = scheduling.change_schedule(open_workspace(context.home), number, kind, reason)
    return CommandResult(schedule, [f"Schedule {number} is {schedule.state}."])


@command(app, "run")
def run_schedule(
    context: CommandContext,
    number: Annotated[
        int | None, typer.Argument(metavar="[ID]", help="The schedule's number. Default: every schedule.")
    ] = None,
    slot: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of the slot to run, in the schedule's time zone. Default: the newest slot that is due.",
        ),
    ] = None,
    device: Device = "auto",
    workers: Workers = 1,
    runner: Runner = "processes",
    runner_address: RunnerAddress = None,
) -> CommandResult[DueResult]:
    """Run here, once and without a server, what schedules have due; a slot is never run twice.

    Example: almoner schedule run 1
    """
    from flows.schedules.slots import run_due, run_schedule_now

    if number is None and slot is not None:
        raise UsageError("A slot belongs to a schedule.", "Give its number before --slot.", code="ScheduleMissing")
    workspace, now = open_workspace(context.home), datetime.now(UTC)
    options = run_options(device, workers, runner, runner_address)
    with progress_bar(context):
        if number is None:
            done = run_due(workspace, now, options)
        else:
            done = run_schedule_now(workspace, number, slot, now, options)
    return CommandResult(done, _due_tables(done), exit_code=1 if done.problems else 0)


def _due_tables(done: DueResult) -> list[RenderableType]:
    parts = (("Slots decided", done.slots), ("Runs", done.runs), ("Not done now", done.problems))
    shown: list[RenderableType] = [
        table(tuple(vars(rows[0])), [tuple(vars(each).values()) for each in rows], title)
        for title, rows in parts
        if rows
    ]
    return shown or ["Nothing is due."]
