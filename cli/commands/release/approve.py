"""`almoner approve`, `reject` and `withdraw-approval`: a steward's decisions, here or on another machine."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, NotRequired

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command, print_renderables
from cli.framework.options import ReviewDetails
from cli.framework.prompts import confirm
from cli.framework.review_screen import render_review
from cli.framework.tables import plain_text
from flows.approvals import decide
from flows.approvals.confirmation import require_reason
from flows.approvals.offline_approval import import_review, read_approval, write_approval
from flows.approvals.review import Review
from flows.workspace.workspace import Workspace, open_workspace, signing_key_path
from models_db.errors import UsageError
from models_db.services import artifacts
from models_db.values.request_state import Gate, RequestState
from tasks.release.signatures.ed25519 import SigningKey


class Decision(TypedDict):
    """A decision on a request (`request`) or a proposal (`proposal`), and the state that followed."""

    request: NotRequired[int]
    proposal: NotRequired[int]
    gate: Gate
    decision: str
    state: str
    by: str
    subject_sha256: str


class QuestionExported(TypedDict):
    """The question for a steward elsewhere (--export)."""

    request: int
    gate: Gate
    subject_sha256: str
    question: str


class ApprovalSigned(TypedDict):
    """An approval that was signed offline (--from and --export)."""

    request: int
    gate: Gate
    subject_sha256: str
    by: str
    expires_at: str
    approval: str


class ApprovalWithdrawn(TypedDict):
    """An approval that was withdrawn before it was used."""

    request: int
    gate: Gate
    decision: str
    state: str
    by: str


Request = Annotated[int, typer.Argument(metavar="ID", help="The request's number.")]
Number = Annotated[int | None, typer.Argument(metavar="ID", help="The request's number. Leave it out with --from.")]
GateToReject = Annotated[
    Gate | None, typer.Option(help="Gate of the decision; by default the one at which the request waits.")
]
MaybeGate = Annotated[Gate | None, typer.Option(help="Gate of the decision. Leave it out with --from.")]
Reason = Annotated[str, typer.Option(help="Reason: recorded, signed, and published with the release.")]
MaybeReason = Annotated[
    str | None, typer.Option(help="Reason: recorded, signed, and published with the release. Required to approve.")
]
Override = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="In place of --reason at the publish gate: reason to approve a release that misses bounds of the policy.",
    ),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        help="Write the question to this new file and decide nothing; with --from, write the signed approval.",
    ),
]
Ask = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        help="Decide on a question that was exported elsewhere; with --export, needs only a key.",
    ),
]
Signed = Annotated[
    Path | None, typer.Option("--import", metavar="FILE", help="Import an approval that was signed on another machine.")
]
Confirm = Annotated[
    str | None,
    typer.Option("--confirm", metavar="NAME", help="The dataset's name, for scripts; it is compared in every case."),
]


def register(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "approve")(approve)
    command(app, "reject")(reject)
    command(app, "withdraw-approval")(withdraw_approval)


@dataclass(frozen=True)
class ApproveOptions:
    """Options of `almoner approve`; None if not given."""

    number: int | None
    gate: Gate | None
    reason: str | None
    export: Path | None
    ask: Path | None
    signed: Path | None
    confirm: str | None
    override: str | None = None
    details: bool = False

    @property
    def reason_text(self) -> str:
        """Name of the option with the reason: `reason`, or `override` in its place."""
        return "reason" if self.override is None else "override"

    def require(self, needed: tuple[str, ...], also: tuple[str, ...] = ()) -> None:
        """Check that the options needed by this form of the command are given, and no option that it would ignore.

        Raises:
            OptionMissing, UnexpectedOption.
        """
        for name, value in asdict(self).items():
            if name in needed and value is None:
                raise _option_missing(name)
            if name not in (*needed, *also, "details") and value is not None:
                raise UsageError(
                    f"{_OPTION_NAMES[name]} does not go together with the other options.",
                    "`almoner approve --help` shows the six forms.",
                    {"option": _OPTION_NAMES[name]},
                    code="UnexpectedOption",
                )


def approve(
    context: CommandContext,
    number: Number = None,
    gate: MaybeGate = None,
    reason: MaybeReason = None,
    export: Export = None,
    ask: Ask = None,
    signed: Signed = None,
    confirm_name: Confirm = None,
    override: Override = None,
    details: ReviewDetails = False,
) -> CommandResult[Decision | QuestionExported | ApprovalSigned]:
    """Approve a request or proposal at a gate. Shows the review, then asks for the dataset's name.

    approve ID --gate GATE --reason TEXT: decide here.
    approve ID --gate publish --override TEXT: the same, although the release misses bounds of its policy.
    approve ID --gate GATE --export ask.json: write the question for a steward without access to the ledger.
    approve --from ask.json --reason TEXT --export signed.json: sign it on the steward's own machine.
    approve --from ask.json --reason TEXT: decide in a home that reaches the ledger, on texts that lie in another.
    approve ID --gate GATE --import signed.json: bring the approval back.

    Without a terminal give the dataset's name as --confirm NAME, or pipe it. It is always compared.

    Example: almoner approve 1 --gate spend --reason "agreed in the March board" --confirm clinic
    """
    typed = ApproveOptions(number, gate, reason, export, ask, signed, confirm_name, override, details)
    if ask is not None:
        return _decide_exported(context, typed) if export is None else _sign_offline(context, typed)
    if signed is not None:
        return _import_approval(context, typed)
    if export is not None:
        return _export_review(context, typed)
    typed.require(("number", "gate", typed.reason_text), ("confirm",))
    return _decide(context, typed, "approve")


def reject(
    context: CommandContext,
    number: Request,
    reason: Reason,
    gate: GateToReject = None,
    details: ReviewDetails = False,
) -> CommandResult[Decision]:
    """Reject a request or proposal at a gate; one rejection is enough. Spent budget stays spent.

    Without --gate it is the gate at which the request waits; for a proposal give --gate proposal.

    Example: almoner reject 1 --reason "the prompt names a person"
    """
    typed = ApproveOptions(number, gate, reason, None, None, None, None, details=details)
    return _decide(context, typed, "reject")


def withdraw_approval(
    context: CommandContext,
    request: Request,
    gate: Annotated[Gate, typer.Option(help="Gate of the approval to withdraw.")],
    reason: Annotated[str, typer.Option(help="Reason, recorded and signed.")],
) -> CommandResult[ApprovalWithdrawn]:
    """Withdraw your own approval before it is used; the gate may close again.

    Example: almoner withdraw-approval 1 --gate spend --reason "the board has changed its mind"
    """
    reason = require_reason(reason)
    workspace = open_workspace(context.home)
    state = decide.withdraw(workspace, request, gate, reason)
    by = workspace.actor.name
    data = ApprovalWithdrawn(request=request, gate=gate, decision="withdraw", state=state, by=by)
    line = f"{workspace.actor.name}'s approval at the {gate.value} gate is withdrawn; the {gate.subject} is {state}."
    return CommandResult(data, [line])


def _decide(context: CommandContext, options: ApproveOptions, verdict: str) -> CommandResult[Decision]:
    number = _required_number(options)
    _given_reason(options)
    workspace = open_workspace(context.home)
    review = decide.load_review(workspace, number, options.gate or decide.gate_of_request(workspace, number))
    reason = _signed_reason(options, review)
    if verdict == "approve":
        decide.require_waiting(review)
    decide.rehearse_decision(workspace, review, verdict, reason)
    if verdict == "approve":
        _show_and_confirm(context, review, reason, options)
    else:
        context.print_progress(*render_review(review, details=options.details))
    state = decide.decide(workspace, review, verdict, reason)
    word = {"approve": "Approved", "reject": "Rejected"}[verdict]
    return _decision_result(
        workspace, review, verdict, state, workspace.actor.name, f"{word} by {workspace.actor.name}"
    )


def _export_review(context: CommandContext, options: ApproveOptions) -> CommandResult[QuestionExported]:
    options.require(("number", "gate", "export"))
    workspace, path = open_workspace(context.home), _required_path(options.export)
    review = decide.export_for_signing(workspace, _required_number(options), _required_gate(options), path)
    data = QuestionExported(
        request=review.number, gate=review.gate, subject_sha256=review.subject_digest, question=str(path)
    )
    private = "It holds unpublished texts: keep it as private as them." if review.gate is Gate.PUBLISH else ""
    steps = f"The steward signs it with `almoner approve --from {path.name} --reason TEXT --export signed.json`."
    return CommandResult(data, [f"The question is in {path}; nothing is decided. {private}".strip(), steps])


def _sign_offline(context: CommandContext, options: ApproveOptions) -> CommandResult[ApprovalSigned]:
    options.require(("ask", options.reason_text, "export"), ("confirm",))
    _given_reason(options)
    home, path = context.home.require(), _required_path(options.export)
    key = SigningKey.load(signing_key_path(home))
    review = import_review(_required_path(options.ask), key.public_key, home.root)
    reason = _signed_reason(options, review)
    decide.require_waiting(review)
    decide.require_steward(review, key)
    _show_and_confirm(context, review, reason, options, elsewhere=True)
    signed = decide.sign_offline(key, review, reason)
    write_approval(path, signed)
    data = ApprovalSigned(
        request=review.number,
        gate=review.gate,
        subject_sha256=review.subject_digest,
        by=signed.approver,
        expires_at=signed.expires_at,
        approval=str(path),
    )
    steps = f"Bring it back: `almoner approve {review.number} --gate {review.gate} --import {path.name}`."
    return CommandResult(
        data, [f"Signed by {signed.approver} in {path}; nothing is recorded until it is brought back.", steps]
    )


def _decide_exported(context: CommandContext, options: ApproveOptions) -> CommandResult[Decision]:
    options.require(("ask", options.reason_text), ("confirm",))
    _given_reason(options)
    workspace = open_workspace(context.home)
    review = import_review(_required_path(options.ask), workspace.key.public_key, context.home.root)
    reason = _signed_reason(options, review)
    decide.require_waiting(review)
    decide.require_steward(review, workspace.key)
    decide.rehearse_decision(workspace, review, "approve", reason)
    _show_and_confirm(context, review, reason, options, elsewhere=True)
    state = decide.decide(workspace, review, "approve", reason)
    return _decision_result(
        workspace, review, "approve", state, workspace.actor.name, f"Approved by {workspace.actor.name}"
    )


def _import_approval(context: CommandContext, options: ApproveOptions) -> CommandResult[Decision]:
    options.require(("number", "gate", "signed"), ("confirm",))
    workspace, signed = open_workspace(context.home), read_approval(_required_path(options.signed))
    review = decide.load_review(workspace, _required_number(options), _required_gate(options))
    decide.require_waiting(review)
    decide.check_signed_approval(review, signed)
    _show_and_confirm(context, review, signed.reason, options)
    state = decide.import_approval(workspace, review, signed)
    sentence = f"Approved by {signed.approver}, brought by {workspace.actor.name},"
    return _decision_result(workspace, review, "approve", state, signed.approver, sentence)


def _show_and_confirm(
    context: CommandContext, review: Review, reason: str, options: ApproveOptions, *, elsewhere: bool = False
) -> None:
    screen = render_review(review, elsewhere=elsewhere, details=options.details)
    if review.missed_bounds:
        screen.append(plain_text(f"\nThe approval says: {reason}"))  # which names what it overrides
    print_renderables(context.console, screen)  # also under --json: nobody is asked about what they have not seen
    confirm(review.dataset, f"Type the name of the dataset to approve at the {review.gate} gate", options.confirm)


def _decision_result(
    workspace: Workspace, review: Review, verdict: str, state: str, by: str, sentence: str
) -> CommandResult[Decision]:
    what: Literal["request", "proposal"] = "proposal" if review.gate is Gate.PROPOSAL else "request"
    data = Decision(gate=review.gate, decision=verdict, state=state, by=by, subject_sha256=review.subject_digest)
    data[what] = review.number
    outcome, step = f"the {what} is {state}", _NEXT_STEPS.get((review.gate, state))
    if state == RequestState.PRODUCED:
        with workspace.database.read() as session:
            publishable = artifacts.is_publishable(session, review.number)
        outcome = f"the release may {'now' if publishable else 'not yet'} be published"
        step = step if publishable else _ANOTHER_APPROVAL
    lines = [f"{sentence} at the {review.gate} gate; {outcome}."]
    return CommandResult(data, lines if step is None else [*lines, step.format(review.number)])


_ANOTHER_APPROVAL = "It waits for another approval: `almoner release show {}`."
_NEXT_STEPS: dict[tuple[Gate, str], str] = {
    (Gate.SPEND, RequestState.SUBMITTED): _ANOTHER_APPROVAL,
    (Gate.SPEND, RequestState.APPROVED): "Next: `almoner run {}`.",
    (Gate.PUBLISH, RequestState.PRODUCED): "Next: `almoner publish {} --to DIR`.",
    (Gate.PROPOSAL, "open"): "It waits for another approval.",
    (Gate.PROPOSAL, "carried"): "It has taken effect.",
}


def _required_number(options: ApproveOptions) -> int:
    if options.number is None:
        raise _option_missing("number")
    return options.number


def _required_gate(options: ApproveOptions) -> Gate:
    if options.gate is None:
        raise _option_missing("gate")
    return options.gate


def _given_reason(options: ApproveOptions) -> str:
    """Return the text of --override or --reason.

    Raises:
        DecisionReasonMissing: it is missing or blank.
    """
    return require_reason(options.reason if options.override is None else options.override)


def _signed_reason(options: ApproveOptions, review: Review) -> str:
    """Return the reason to sign; that of an override also names the overridden bounds."""
    return (
        _given_reason(options)
        if options.override is None
        else decide.override_reason_for(review, _given_reason(options))
    )


def _required_path(path: Path | None) -> Path:
    if path is None:
        raise _option_missing("export")
    return path


_OPTION_NAMES = {
    "number": "ID",
    "gate": "--gate",
    "reason": "--reason",
    "override": "--override",
    "export": "--export",
    "ask": "--from",
    "signed": "--import",
    "confirm": "--confirm",
}


def _option_missing(name: str) -> UsageError:
    return UsageError(
        f"This form of `almoner approve` needs {_OPTION_NAMES[name]}.",
        "`almoner approve --help` shows the six forms.",
        {"option": _OPTION_NAMES[name]},
        code="OptionMissing",
    )
