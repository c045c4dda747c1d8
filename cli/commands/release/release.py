"""`almoner release`: request, list, show, texts, schema, withdraw, retract, mark-exposed; also `almoner retract`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.panel import Panel
from sqlalchemy.orm import Session

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import PriceDetails, ReviewDetails
from cli.framework.proposal_view import as_data, waiting_sentence
from cli.framework.tables import plain_text, table
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_fields
from models_db.services.audit import chain
from models_db.services.audit.stored_text import request_body
from models_db.services.catalogue import requests
from models_db.services.lifecycle import artifacts, gates, ledger
from models_db.tables import Request
from models_db.values.canonical_json import Json
from models_db.values.gates import REQUEST_GATES, Gate
from models_db.values.request_state import STATES_AT_A_GATE, RequestState
from models_db.values.requests import ReleaseRequest

if TYPE_CHECKING:
    from tasks.reporting.sections import TextOnPage

app = typer.Typer(
    no_args_is_help=True,
    help="Manage release requests: request, extend, list, show, texts, schema, withdraw, retract, mark-exposed.",
)

RequestId = Annotated[int, typer.Argument(metavar="ID", help="The request's number.")]


@command(app, "request")
def request_release(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(help="The request, a YAML file (docs/requests.md).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the price and stop.")] = False,
    standing: Annotated[
        int | None, typer.Option(metavar="ID", help="The standing authorisation that it is made under.")
    ] = None,
    accept_weak_promise: Annotated[
        bool, typer.Option("--accept-weak-promise", help="Submit although almoner calls epsilon or delta weak.")
    ] = False,
    details: PriceDetails = False,
) -> CommandResult:
    """Price a release and submit it to the spend gate. Reads no private text and spends nothing.

    Under a standing authorisation it needs no decision before it runs; each run uses one of those that were approved.

    Example: almoner release request request.yaml --dry-run
    """
    written = read_fields(file, str(file), ReleaseRequest.model_fields)
    return _propose_result(context, written, dry_run, standing, accept_weak_promise, details=details)


@command(app, "extend")
def extend_release(
    context: CommandContext,
    request: RequestId,
    samples: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of further texts.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the price and stop.")] = False,
    details: PriceDetails = False,
) -> CommandResult:
    """Request further texts from the phrases or the steering vector that a release has released, at no charge.

    Nothing private is read again; both gates decide on it as on every request.

    Example: almoner release extend 1 --samples 500
    """
    from flows.releases.extend import further_texts_request

    written = further_texts_request(open_workspace(context.home), request, samples)
    return _propose_result(context, written, dry_run, details=details)


def _propose_result(
    context: CommandContext,
    written: dict[str, object],
    dry_run: bool,
    standing: int | None = None,
    accept_weak_promise: bool = True,
    *,
    details: bool = False,
) -> CommandResult:
    from cli.framework.review_screen import render_sections
    from flows.approvals.price_sections import price_sections
    from flows.releases.propose import propose_release

    proposal = propose_release(context.home.root, written, dry_run, standing, accept_weak_promise)
    price = proposal.price
    data = {"request": proposal.request_id, "digest": proposal.digest, "standing": standing, "price": price}
    screen = render_sections(price_sections(price), details=details)
    if proposal.request_id is None:
        return CommandResult(data, [*screen, "Dry run: nothing was submitted."])
    if standing is not None:
        sentence = f"Submitted as request {proposal.request_id}, and approved under standing authorisation {standing}."
        return CommandResult(data, [*screen, sentence, f"Next: `almoner run {proposal.request_id}`."])
    done = f"Submitted as request {proposal.request_id}; nothing is spent until a steward approves and it is run."
    return CommandResult(
        data,
        [*screen, done, f'Next: `almoner approve {proposal.request_id} --gate spend --reason "..."`.'],
    )


@command(app, "list")
def list_all(
    context: CommandContext,
    waiting: Annotated[bool, typer.Option("--waiting", help="Only those that wait for a decision at a gate.")] = False,
) -> CommandResult:
    """List all requests with their state.

    Example: almoner release list --waiting
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        rows = [_request_summary(session, request) for request in requests.list_all(session)]
    if waiting:
        rows = [row for row in rows if row["state"] in STATES_AT_A_GATE]
    columns = ("request", "dataset", "kind", "mechanism", "epsilon", "delta", "state", "requester", "submitted")
    return CommandResult(rows, [table(columns, [[row[c] for c in columns] for row in rows])])


@command(app, "show")
def show_release(
    context: CommandContext,
    request: RequestId,
    details: ReviewDetails = False,
) -> CommandResult:
    """Show a request: its state and next step, content, decisions and spending.

    Example: almoner release show 1
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        requests.find_request(session, request)  # before the libraries of the review are loaded
    from cli.framework.review_screen import render_review
    from flows.approvals.decide import load_review
    from flows.approvals.propose_change import list_proposals
    from flows.governance.exposure import standing_figure, stated_claim
    from flows.rehearsals.stored_results import recorded_rehearsals
    from flows.releases.release_texts import read_selection

    shown = load_review(workspace, request, Gate.SPEND)
    with workspace.database.read() as session:
        row = requests.find_request(session, request)
        artifact = artifacts.artifact_of(session, request)
        steps = [(s.at, s.from_state, s.to_state, s.detail) for s in requests.history(session, request)]
        decisions = [
            (a.at, a.gate, a.decision, p.name, a.reason, a.expires_at)
            for a, p in gates.decisions_on(session, request, *REQUEST_GATES)
        ]
        claim = stated_claim(row)
        secret, end = standing_figure(session, row)
        selects = "selection" in request_body(row)
        selection = read_selection(workspace, artifact) if artifact and selects else None
        data = {
            **_request_summary(session, row),
            "gaussian": None if claim is None or claim.gaussian is None else claim.gaussian.model_dump(),
            "secret_assignment": None if secret is None else secret.model_dump(),
            "secrecy_end": None if end is None else end.to_json(),
            "canonical": request_body(row),
            "rho_spent": ledger.spent_by(session, request).rho_text,
            "artifact": artifact.digest if artifact else None,
            "selection": selection,
            "standing": row.standing_id,
            "rehearsals": [one.model_dump(mode="json") for one in recorded_rehearsals(session, request_body(row))],
            "proposals": [as_data(m) for m in list_proposals(workspace, "retraction") if m.request_id == request],
            "steps": [dict(zip(("at", "from", "to", "detail"), step, strict=True)) for step in steps],
            "approvals": [
                dict(zip(("at", "gate", "decision", "by", "reason", "expires_at"), d, strict=True)) for d in decisions
            ],
        }
    return CommandResult(
        data,
        [
            f"Request {request} is {data['state']}. {_next_step(data)}",
            *([selection] if selection else []),
            *render_review(shown, details=details),
            table(("at", "from", "to", "detail"), steps, "Steps"),
            table(("at", "gate", "decision", "by", "reason", "expires"), decisions, "Decisions"),
        ],
    )


@command(app, "texts")
def show_texts(
    context: CommandContext,
    request: RequestId,
    doubtful: Annotated[bool, typer.Option("--doubtful", help="Only texts with a doubt to look at.")] = False,
    find: Annotated[str | None, typer.Option(metavar="WORDS", help="Only texts that contain these words.")] = None,
) -> CommandResult:
    """Show all texts of a release, with a doubt where one should be looked at: an address, a copied prompt, a loop.

    On a terminal they come in a pager. Doubts follow from the texts and the public prompt; a text without one may
    still be unfit.

    Example: almoner release texts 1 --doubtful
    """
    from flows.releases.release_texts import read_release_texts

    texts = read_release_texts(open_workspace(context.home), request)
    chosen = [
        one
        for one in texts
        if (one.doubts or not doubtful) and (find is None or find.casefold() in one.text.casefold())
    ]
    data = {"request": request, "texts": [_text_to_json(one) for one in chosen], "of": len(texts)}
    with_doubt = sum(bool(one.doubts) for one in texts)
    heading = f"Release {request}: {len(chosen)} of {len(texts)} texts shown; {with_doubt} with a doubt."
    return CommandResult(data, [heading, *map(_text_panel, chosen)], paged=True)


def _text_to_json(text: "TextOnPage") -> dict[str, Json]:
    return {"id": text.number, "label": text.label, "text": text.text, "doubts": list(text.doubts)}


def _text_panel(text: "TextOnPage") -> Panel:
    label = "" if text.label is None else f", {text.label}"
    doubts = f"  [!] {', '.join(text.doubts)}" if text.doubts else ""
    return Panel(plain_text(text.text), title=plain_text(f"Text {text.number}{label}{doubts}"), title_align="left")


@command(app, "schema")
def show_schema(context: CommandContext) -> CommandResult:
    """Print the JSON schema of a request file, for editors and pipelines.

    Pricing checks more: the parameters of the mechanism, names of models and datasets, the policy.

    Example: almoner release schema
    """
    content = ReleaseRequest.model_json_schema()
    return CommandResult(content, [json.dumps(content, indent=2)])


_NEXT_STEPS = {
    RequestState.SUBMITTED: 'It waits at the spend gate: `almoner approve {} --gate spend --reason "..."`.',
    RequestState.APPROVED: "Next: `almoner run {}`.",
    RequestState.RUNNING: "A run is drawing it; if that run has died, `almoner run {}` resumes it.",
    RequestState.PRODUCED: (
        "It waits at the publish gate: read it with `almoner release texts {0}`, then"
        ' `almoner approve {0} --gate publish --reason "..."`; `almoner publish {0} --to DIR` follows the approvals.'
    ),
    RequestState.PUBLISHED: "Its bundle is verified offline by `almoner verify-release DIR`.",
}
"""The next step of a request, by its state."""


def _next_step(summary: dict[str, Json]) -> str:
    step = _NEXT_STEPS.get(RequestState(str(summary["state"])), "Nothing more can be done with it.")
    return step.format(summary["request"])


@command(app, "start")
def start_release(
    context: CommandContext,
    request: RequestId,
    queue: Annotated[str, typer.Option(help="Work queue: urgent, default or background.")] = "default",
) -> CommandResult:
    """Start the release flow of a request on the Prefect server; it waits at the gates.

    Example: almoner release start 1 --queue urgent
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        state = requests.state_of(session, requests.find_request(session, request).id)
        ledger_id = chain.ledger_id(session)
    from flows.orchestration import deploy  # it loads Prefect

    run = str(deploy.start_release(request, ledger_id, queue))
    return CommandResult(
        {"request": request, "state": state, "flow_run": run, "queue": queue},
        [f"Flow run {run} carries out request {request}, which is {state}.", "A worker of the pool takes it up."],
    )


@command(app, "withdraw")
def withdraw_release(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded in the audit log.")] = "withdrawn",
) -> CommandResult:
    """Withdraw a request that has not been run.

    Example: almoner release withdraw 2 --reason "superseded by request 3"
    """
    from flows.releases.propose import withdraw_request

    withdraw_request(open_workspace(context.home), request, reason)
    return CommandResult({"request": request, "state": "withdrawn"}, [f"Request {request} is withdrawn."])


@command(app, "retract")
def retract_release(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
) -> CommandResult:
    """Propose to retract a published release. Later bundles list it; its spending stays.

    Example: almoner release retract 1 --reason "a text names a street"
    """
    from flows.approvals.propose_change import propose_retraction

    workspace = open_workspace(context.home)
    proposal = propose_retraction(workspace, request, reason)
    with workspace.database.read() as session:
        places = artifacts.deliveries(session, request)
    data = {"proposal": proposal.number, "request": request, "dataset": proposal.dataset,
            "approvals_needed": proposal.needed, "rho_spent": proposal.spent.rho_text,
            "delivered_to": [*places]}  # fmt: skip
    stays = f"The rho {proposal.spent.rho_text} that release {request} spent stays spent."
    out = f"This removes no published files: delete the bundle at {', '.join(places)}. Fetched copies remain."
    return CommandResult(data, [*waiting_sentence(proposal.number, proposal.needed), stays, *([out] if places else [])])


@command(app, "mark-exposed")
def mark_exposed(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="How it got out, recorded in the audit log.")],
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            help="First day (UTC) others could know it; by default, when it was produced, else first charged.",
        ),
    ] = None,
) -> CommandResult:
    """Record that others may know which units were behind which texts. Its smaller epsilon ends; later bundles say so.

    It may be a release, or a request whose runs failed or were given up after they were charged. The unconditional
    epsilon holds as before. It cannot be taken back.

    Example: almoner release mark-exposed 1 --reason "the journal of the run was copied" --since 2026-11-20
    """
    from flows.governance.exposure import record_exposure

    end = record_exposure(open_workspace(context.home), request, since, reason)
    return CommandResult(
        {"request": request, "secrecy_end": end.to_json()},
        [end.sentence, "Bundles that are published from now on name it in `revocations.json`, under `exposed`."],
    )


def register(root: typer.Typer) -> None:
    """Register `almoner retract`."""
    command(root, "retract")(retract_shortcut)


def retract_shortcut(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
) -> CommandResult:
    """Propose to retract a published release; same as `almoner release retract`.

    Example: almoner retract 1 --reason "a text names a street"
    """
    return retract_release(context, request, reason)


def _request_summary(session: Session, request: Request) -> dict[str, Json]:
    body = request_body(request)
    return {
        "request": request.id,
        "dataset": body["dataset"]["name"],
        "kind": body["kind"],
        "mechanism": body["mechanism"],
        "epsilon": body["epsilon"],
        "delta": body["delta"],
        "state": requests.state_of(session, request.id),
        "requester": requests.principal_name(session, request.requester_id),
        "submitted": request.created_at,
        "digest": request.digest,
    }
