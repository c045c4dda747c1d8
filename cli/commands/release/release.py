"""`almoner release`: request, list, show, texts, schema, withdraw, retract, mark-exposed; also `almoner retract`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.panel import Panel
from sqlalchemy.orm import Session
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.options import PriceDetails, ReviewDetails
from cli.framework.result_types import PriceData, SecrecyEndData, SecretFigure, secrecy_end_data
from cli.framework.review_screen import ProposalData, as_data, render_review, render_sections, waiting_sentence
from cli.framework.tables import plain_text, table
from flows.workspace.workspace import open_workspace
from flows.workspace.yaml_files import read_fields
from models_db.services import artifacts, budget, gates, requests
from models_db.services.audit import chain
from models_db.services.audit.stored_text import request_body
from models_db.tables import Dataset, Request
from models_db.values.request_state import REQUEST_GATES, STATES_AT_A_GATE, Gate, RequestState
from models_db.values.requests import ReleaseRequest
from tasks.common.published_values import format_small

if TYPE_CHECKING:
    from flows.approvals.review import Review
    from tasks.reporting.report_parts import TextOnPage

app = typer.Typer(
    no_args_is_help=True,
    help="Manage release requests: request, extend, list, show, texts, schema, withdraw, retract, mark-exposed.",
)


class RequestPriced(TypedDict):
    """A priced request; `request` and `digest` are null in a dry run, `standing` without an authorisation."""

    request: int | None
    digest: str | None
    standing: int | None
    price: PriceData


class RequestData(TypedDict):
    """A request with its state."""

    request: int
    dataset: str
    kind: str
    mechanism: str
    epsilon: str | None
    delta: str | None
    state: str
    requester: str
    submitted: str
    digest: str


StepData = TypedDict("StepData", {"at": str, "from": str | None, "to": str, "detail": str})
"""A step from one state of a request to the next."""


class RequestDecision(TypedDict):
    """A decision at a gate of a request."""

    at: str
    gate: str
    decision: str
    by: str
    reason: str
    expires_at: str | None


class RehearsedMetric(TypedDict):
    """A metric of three releases, and the share of the way from the public model to no privacy."""

    metric: str
    public_only: str
    request: str
    non_private: str
    share: int | None
    low: int | None
    high: int | None
    reason: str | None


class RehearsalTwin(TypedDict):
    """The public dataset of a rehearsal."""

    name: str
    version: int
    uid: str


class RehearsalData(TypedDict):
    """The figures of a rehearsal."""

    format: str
    configuration: str
    code: str
    twin: RehearsalTwin
    model: str
    mechanism: str
    texts: int
    asked: int
    people: int
    declared: int | None
    units_per_text: str
    asked_units_per_text: str
    held_out: int
    metrics: list[RehearsedMetric]
    left_out: list[str]


class RecordedRehearsalData(TypedDict):
    """The newest rehearsal of a request on one public dataset."""

    result: RehearsalData
    by: str
    at: str
    runs: int
    same_code: bool


class RequestShown(RequestData):
    """A request: its content (`canonical`, docs/requests.md), the sections of its review, decisions and spending.

    `rho_spent` is null where the policy hides balances.
    """

    secret_assignment: SecretFigure | None
    secrecy_end: SecrecyEndData | None
    canonical: dict[str, object]
    sections: list[dict[str, object]]
    rho_spent: str | None
    artifact: str | None
    standing: int | None
    rehearsals: list[RecordedRehearsalData]
    proposals: list[ProposalData]
    steps: list[StepData]
    approvals: list[RequestDecision]


class TextData(TypedDict):
    """A text of a release, with doubts to look at."""

    id: int
    label: str | None
    text: str
    doubts: list[str]


class ReleaseTexts(TypedDict):
    """Texts of a release; `of` counts all of them."""

    request: int
    texts: list[TextData]
    of: int


class FlowRunStarted(TypedDict):
    """A flow run on the Prefect server."""

    request: int
    state: str
    flow_run: str
    queue: str


class RequestWithdrawn(TypedDict):
    """A request that was withdrawn."""

    request: int
    state: str


class RetractionProposed(TypedDict):
    """A proposal to retract a release."""

    proposal: int | None
    request: int
    dataset: str
    approvals_needed: int
    rho_spent: str
    delivered_to: list[str]


class AssignmentExposed(TypedDict):
    """A release whose smaller epsilon has ended."""

    request: int
    secrecy_end: SecrecyEndData


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
) -> CommandResult[RequestPriced]:
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
) -> CommandResult[RequestPriced]:
    """Request further texts from the phrases that a release has released, at no charge.

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
) -> CommandResult[RequestPriced]:
    from flows.approvals.price_sections import price_sections
    from flows.releases.propose import propose_release

    proposal = propose_release(context.home.root, written, dry_run, standing, accept_weak_promise)
    price = proposal.price
    data = RequestPriced(
        request=proposal.request_id, digest=proposal.digest, standing=standing, price=cast(PriceData, price)
    )
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
) -> CommandResult[list[RequestData]]:
    """List all requests with their state.

    Example: almoner release list --waiting
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        rows = [_request_summary(session, request) for request in requests.list_all(session)]
    if waiting:
        rows = [row for row in rows if row["state"] in STATES_AT_A_GATE]
    columns = ("request", "dataset", "kind", "mechanism", "epsilon", "delta", "state", "requester", "submitted")
    shown = [list({**row, **_short_values(row)}.values())[: len(columns)] for row in rows]
    return CommandResult(rows, [table((*columns[:-1], "submitted (UTC)"), shown)])


def _short_values(row: RequestData) -> dict[str, str | None]:
    delta = row["delta"]
    return {"delta": None if delta is None else format_small(delta), "submitted": row["submitted"][:19]}


@command(app, "show")
def show_release(
    context: CommandContext,
    request: RequestId,
    details: ReviewDetails = False,
) -> CommandResult[RequestShown]:
    """Show a request: its state and next step, content, decisions and spending.

    Example: almoner release show 1
    """
    workspace = open_workspace(context.home)
    with workspace.database.read() as session:
        requests.find_request(session, request)  # before the libraries of the review are loaded
    from flows.approvals.decide import load_review
    from flows.approvals.propose_change import list_proposals
    from flows.governance.exposure import standing_figure
    from flows.governance.policy import hides_balances
    from flows.rehearsals.stored_results import recorded_rehearsals
    from tasks.release.sections import sections_to_json

    shown = load_review(workspace, request, Gate.SPEND)
    with workspace.database.read() as session:
        row = requests.find_request(session, request)
        artifact, data_state = artifacts.artifact_of(session, request), requests.state_of(session, request)
        steps: list[StepData] = [
            {"at": s.at, "from": s.from_state, "to": s.to_state, "detail": s.detail}
            for s in requests.history(session, request)
        ]
        decisions = [
            RequestDecision(
                at=a.at, gate=a.gate, decision=a.decision, by=p.name, reason=a.reason, expires_at=a.expires_at
            )
            for a, p in gates.decisions_on(session, request, *REQUEST_GATES)
        ]
        secret, end = standing_figure(session, row)
        publishable = data_state == RequestState.PRODUCED and artifacts.is_publishable(session, request)
        rehearsals = [one.model_dump(mode="json") for one in recorded_rehearsals(session, request_body(row))]
        data = RequestShown(
            **_request_summary(session, row),
            secret_assignment=None if secret is None else cast(SecretFigure, secret.model_dump()),
            secrecy_end=None if end is None else secrecy_end_data(end),
            canonical=request_body(row),
            sections=cast(list[dict[str, object]], sections_to_json(shown.sections)),
            rho_spent=None if hides_balances(session, workspace.actor) else budget.spent_by(session, request).rho_text,
            artifact=artifact.digest if artifact else None,
            standing=row.standing_id,
            rehearsals=cast(list[RecordedRehearsalData], rehearsals),
            proposals=[as_data(m) for m in list_proposals(workspace, "retraction") if m.request_id == request],
            steps=steps,
            approvals=decisions,
        )
    return CommandResult(
        data,
        [
            f"Request {request} is {data['state']}. {_next_step(data, publishable=publishable)}",
            *render_review(shown, details=details, title=_title_of(shown)),
            table(("at", "from", "to", "detail"), [list(step.values()) for step in steps], "Steps"),
            table(
                ("at", "gate", "decision", "by", "reason", "expires"),
                [list(decision.values()) for decision in decisions],
                "Decisions",
            ),
        ],
    )


@command(app, "texts")
def show_texts(
    context: CommandContext,
    request: RequestId,
    doubtful: Annotated[bool, typer.Option("--doubtful", help="Only texts with a doubt to look at.")] = False,
    find: Annotated[str | None, typer.Option(metavar="WORDS", help="Only texts that contain these words.")] = None,
) -> CommandResult[ReleaseTexts]:
    """Show all texts of a release, with a doubt where one should be looked at: an address, a refusal, a copied prompt.

    On a terminal they come in a pager. Doubts follow from the texts and the public prompt, and the first lines say what
    was looked for. Read the texts without one, too: names and sense are not checked.

    Example: almoner release texts 1 --doubtful
    """
    from flows.releases.release_texts import read_release_texts
    from tasks.text.doubts import describe_doubts

    texts = read_release_texts(open_workspace(context.home), request)
    chosen = [
        one
        for one in texts
        if (one.doubts or not doubtful) and (find is None or find.casefold() in one.text.casefold())
    ]
    data = ReleaseTexts(request=request, texts=list(map(_text_to_json, chosen)), of=len(texts))
    heading = f"Release {request}: {len(chosen)} of {len(texts)} texts shown."
    looked_for = describe_doubts(sum(bool(one.doubts) for one in texts), len(texts))
    return CommandResult(data, [heading, looked_for, *map(_text_panel, chosen)], paged=True)


def _text_to_json(text: "TextOnPage") -> TextData:
    return TextData(id=text.number, label=text.label, text=text.text, doubts=list(text.doubts))


def _text_panel(text: "TextOnPage") -> Panel:
    label = "" if text.label is None else f", {text.label}"
    doubts = f"  [!] {', '.join(text.doubts)}" if text.doubts else ""
    return Panel(plain_text(text.text), title=plain_text(f"Text {text.number}{label}{doubts}"), title_align="left")


@command(app, "schema")
def show_schema(context: CommandContext) -> CommandResult[dict[str, object]]:
    """Print the JSON schema of a request file, for editors and pipelines.

    Pricing checks more: the parameters of the mechanism, names of models and datasets, the policy.

    Example: almoner release schema
    """
    content = ReleaseRequest.model_json_schema()
    return CommandResult(content, [json.dumps(content, indent=2)])


def _title_of(review: "Review") -> str:
    """Return the heading of what a request asks for; beyond the spend gate it says that it was decided there."""
    if review.state == RequestState.SUBMITTED:
        return review.title
    return f"Dataset {review.dataset} - Request {review.number}, as it was put to the spend gate"


_NEXT_STEPS = {
    RequestState.SUBMITTED: 'It waits at the spend gate: `almoner approve {} --gate spend --reason "..."`.',
    RequestState.APPROVED: "Next: `almoner run {}`.",
    RequestState.RUNNING: "A run is drawing it; if that run has died, `almoner run {}` resumes it.",
    RequestState.PRODUCED: (
        "It waits at the publish gate: read it with `almoner release texts {0}`, then"
        ' `almoner approve {0} --gate publish --reason "..."`.'
    ),
    RequestState.PUBLISHED: "Its bundle is verified offline by `almoner verify-release DIR`.",
}
"""The next step of a request, by its state."""


def _next_step(summary: RequestData, *, publishable: bool) -> str:
    if publishable:
        return f"It may be published: `almoner publish {summary['request']} --to DIR`."
    step = _NEXT_STEPS.get(RequestState(summary["state"]), "Nothing more can be done with it.")
    return step.format(summary["request"])


@command(app, "start")
def start_release(
    context: CommandContext,
    request: RequestId,
    queue: Annotated[str, typer.Option(help="Work queue: urgent, default or background.")] = "default",
) -> CommandResult[FlowRunStarted]:
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
        FlowRunStarted(request=request, state=state, flow_run=run, queue=queue),
        [f"Flow run {run} carries out request {request}, which is {state}.", "A worker of the pool takes it up."],
    )


@command(app, "withdraw")
def withdraw_release(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded in the audit log.")] = "withdrawn",
) -> CommandResult[RequestWithdrawn]:
    """Withdraw a request that has not been run.

    Example: almoner release withdraw 2 --reason "superseded by request 3"
    """
    from flows.releases.propose import withdraw_request

    withdraw_request(open_workspace(context.home), request, reason)
    data = RequestWithdrawn(request=request, state="withdrawn")
    return CommandResult(data, [f"Request {request} is withdrawn."])


@command(app, "retract")
def retract_release(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
) -> CommandResult[RetractionProposed]:
    """Propose to retract a published release. Later bundles list it; its spending stays.

    Example: almoner release retract 1 --reason "a text names a street"
    """
    from flows.approvals.propose_change import propose_retraction

    workspace = open_workspace(context.home)
    proposal = propose_retraction(workspace, request, reason)
    with workspace.database.read() as session:
        places = artifacts.deliveries(session, request)
    data = RetractionProposed(
        proposal=proposal.number,
        request=request,
        dataset=proposal.dataset,
        approvals_needed=proposal.needed,
        rho_spent=proposal.spent.rho_text,
        delivered_to=[*places],
    )
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
) -> CommandResult[AssignmentExposed]:
    """Record that others may know which units were behind which texts. Its smaller epsilon ends; later bundles say so.

    It may be a release, or a request whose runs failed or were given up after they were charged. The unconditional
    epsilon holds as before. It cannot be taken back.

    Example: almoner release mark-exposed 1 --reason "the journal of the run was copied" --since 2026-11-20
    """
    from flows.governance.exposure import record_exposure

    end = record_exposure(open_workspace(context.home), request, since, reason)
    return CommandResult(
        AssignmentExposed(request=request, secrecy_end=secrecy_end_data(end)),
        [end.sentence, "Bundles that are published from now on name it in `revocations.json`, under `exposed`."],
    )


def register(root: typer.Typer) -> None:
    """Register `almoner retract`."""
    command(root, "retract")(retract_shortcut)


def retract_shortcut(
    context: CommandContext,
    request: RequestId,
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
) -> CommandResult[RetractionProposed]:
    """Propose to retract a published release; same as `almoner release retract`.

    Example: almoner retract 1 --reason "a text names a street"
    """
    return retract_release(context, request, reason)


def _request_summary(session: Session, request: Request) -> RequestData:
    """Return what a list says of a request; a client of an analyst's own can have recorded one in any format."""
    fields = {name: value for name, value in request_body(request).items() if isinstance(value, str)}
    return RequestData(
        request=request.id,
        dataset=session.get_one(Dataset, request.dataset_id).name,
        kind=fields.get("kind", "?"),
        mechanism=fields.get("mechanism", "?"),
        epsilon=fields.get("epsilon"),
        delta=fields.get("delta"),
        state=requests.state_of(session, request.id),
        requester=requests.principal_name(session, request.requester_id),
        submitted=request.created_at,
        digest=request.digest,
    )
