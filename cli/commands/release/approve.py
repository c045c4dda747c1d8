"""`almoner approve`, `reject` and `withdraw-approval`: a steward's decisions, here or on another machine."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from cli.framework.command import Answer, Opened, command, show
from cli.framework.prompts import confirm
from cli.framework.review_screen import render
from cli.framework.tables import plain
from flows.approvals import decide as deciding
from flows.approvals.offline_approval import import_review, read_approval, write_approval
from flows.approvals.review import Review
from flows.workspace.workspace import open_workspace, signing_key_path
from models_db.errors import UsageError
from models_db.values.gates import Gate
from models_db.values.request_state import RequestState
from tasks.release.signatures.ed25519 import SigningKey

Request = Annotated[int, typer.Argument(metavar="ID", help="The request's number.")]
Number = Annotated[int | None, typer.Argument(metavar="ID", help="The request's number; none with --from.")]
GateOption = Annotated[Gate, typer.Option(help="Which decision.")]
MaybeGate = Annotated[Gate | None, typer.Option(help="Which decision; none with --from.")]
Reason = Annotated[str, typer.Option(help="Why; recorded, signed, and published with the release.")]
MaybeReason = Annotated[
    str | None, typer.Option(help="Why; recorded, signed, and published with the release. Needed to approve.")
]
Override = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="In place of --reason at the publish gate: why to approve although the policy's bounds are missed.",
    ),
]
OnBehalfOf = Annotated[
    str | None, typer.Option("--on-behalf-of", metavar="NAME", help="The steward who delegated this dataset to you.")
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
    Path | None, typer.Option("--import", metavar="FILE", help="Bring an approval that was signed elsewhere.")
]
Confirm = Annotated[
    str | None,
    typer.Option("--confirm", metavar="NAME", help="The dataset's name, for scripts; it is compared in every case."),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "approve")(approve)
    command(app, "reject")(reject)
    command(app, "withdraw-approval")(withdraw_approval)


@dataclass(frozen=True)
class Typed:
    """What was typed after `almoner approve`, None where it was not."""

    number: int | None
    gate: Gate | None
    reason: str | None
    on_behalf_of: str | None
    export: Path | None
    ask: Path | None
    signed: Path | None
    confirm: str | None
    override: str | None = None

    @property
    def why(self) -> str:
        """The option that says why: --reason, or --override in its place."""
        return "reason" if self.override is None else "override"

    def require(self, needed: tuple[str, ...], also: tuple[str, ...] = ()) -> None:
        """Check that what this form of the command needs was typed, and nothing that it would not heed.

        Raises:
            OptionMissing, OptionForeign.
        """
        for name, value in asdict(self).items():
            if name in needed and value is None:
                raise OptionMissing(name)
            if name not in (*needed, *also) and value is not None:
                raise OptionForeign(name)


def approve(
    opened: Opened,
    number: Number = None,
    gate: MaybeGate = None,
    reason: MaybeReason = None,
    on_behalf_of: OnBehalfOf = None,
    export: Export = None,
    ask: Ask = None,
    signed: Signed = None,
    confirm_name: Confirm = None,
    override: Override = None,
) -> Answer:
    """Approve what waits at a gate. Shows what is decided, then asks for the dataset's name.

    approve ID --gate GATE --reason TEXT: decide here.
    approve ID --gate publish --override TEXT: the same, although the release misses bounds of its policy.
    approve ID --gate GATE --export ask.json: write the question for a steward without access to the ledger.
    approve --from ask.json --reason TEXT --export signed.json: sign it on the steward's own machine.
    approve --from ask.json --reason TEXT: decide in a home that reaches the ledger, on texts that lie in another.
    approve ID --gate GATE --import signed.json: bring the approval back.

    Without a terminal give the dataset's name as --confirm NAME, or pipe it. It is always compared.

    Example: almoner approve 1 --gate spend --reason "agreed in the March board" --confirm clinic
    """
    typed = Typed(number, gate, reason, on_behalf_of, export, ask, signed, confirm_name, override)
    if ask is not None:
        return _decide_on(opened, typed) if export is None else _sign_elsewhere(opened, typed)
    if signed is not None:
        return _bring(opened, typed)
    if export is not None:
        return _export(opened, typed)
    typed.require(("number", "gate", typed.why), ("on_behalf_of", "confirm"))
    return _decide(opened, typed, "approve")


def reject(
    opened: Opened,
    number: Request,
    reason: Reason,
    gate: GateOption = Gate.SPEND,
    on_behalf_of: OnBehalfOf = None,
) -> Answer:
    """Reject what waits at a gate; one rejection is enough. At the publish gate the spent budget stays spent.

    Example: almoner reject 1 --reason "the prompt names a person"
    """
    return _decide(opened, Typed(number, gate, reason, on_behalf_of, None, None, None, None), "reject")


def withdraw_approval(
    opened: Opened,
    request: Request,
    gate: Annotated[Gate, typer.Option(help="Which of your approvals.")],
    reason: Annotated[str, typer.Option(help="Why; recorded and signed.")],
) -> Answer:
    """Take your own approval back, as long as it has not been used; the gate may then close again.

    Example: almoner withdraw-approval 1 --gate spend --reason "the board has changed its mind"
    """
    if not reason.strip():
        raise ReasonMissing
    workspace = open_workspace(opened.home)
    state = deciding.withdraw(workspace, request, gate.value, reason.strip())
    data = {"request": request, "gate": gate.value, "decision": "withdraw", "state": state, "by": workspace.actor.name}
    what = "motion" if gate is Gate.MOTION else "request"
    said = f"{workspace.actor.name}'s approval at the {gate.value} gate is withdrawn; the {what} is {state}."
    return Answer(data, [said])


def _decide(opened: Opened, typed: Typed, verdict: str) -> Answer:
    number, gate = _number(typed), _gate(typed)
    _said(typed)
    workspace = open_workspace(opened.home)
    asked = deciding.load_review(workspace, number, gate)
    reason = _reason(typed, asked)
    if verdict == "approve":
        deciding.require_waiting(asked)
        deciding.rehearse_decision(workspace, asked, verdict, reason, typed.on_behalf_of)
        _show_and_confirm(opened, asked, reason, typed.confirm)
    else:
        opened.say(*render(asked))
    state = deciding.decide(workspace, asked, verdict, reason, typed.on_behalf_of)
    word = {"approve": "Approved", "reject": "Rejected"}[verdict]
    return _decided(asked, verdict, state, workspace.actor.name, f"{word} by {workspace.actor.name}")


def _export(opened: Opened, typed: Typed) -> Answer:
    typed.require(("number", "gate", "export"))
    workspace, path = open_workspace(opened.home), _path(typed.export)
    asked = deciding.export_for_signing(workspace, _number(typed), _gate(typed), path)
    data = {"request": asked.number, "gate": asked.gate, "subject_sha256": asked.subject_digest, "question": str(path)}
    private = "It holds unpublished texts: keep it as private as them." if asked.gate is Gate.PUBLISH else ""
    steps = f"The steward signs it with `almoner approve --from {path.name} --reason TEXT --export signed.json`."
    return Answer(data, [f"The question is in {path}; nothing is decided. {private}".strip(), steps])


def _sign_elsewhere(opened: Opened, typed: Typed) -> Answer:
    typed.require(("ask", typed.why, "export"), ("on_behalf_of", "confirm"))
    _said(typed)
    home, path = opened.home.require(), _path(typed.export)
    key = SigningKey.load(signing_key_path(home))
    asked = import_review(_path(typed.ask), key.public_key, home.root)
    reason = _reason(typed, asked)
    deciding.require_waiting(asked)
    deciding.require_steward(asked, key)
    _show_and_confirm(opened, asked, reason, typed.confirm, elsewhere=True)
    made = deciding.sign_offline(key, asked, reason, typed.on_behalf_of)
    write_approval(path, made)
    data = {"request": asked.number, "gate": asked.gate, "subject_sha256": asked.subject_digest, "by": made.approver,
            "expires_at": made.expires_at, "approval": str(path)}  # fmt: skip
    steps = f"Bring it back: `almoner approve {asked.number} --gate {asked.gate} --import {path.name}`."
    return Answer(data, [f"Signed by {made.approver} in {path}; nothing is recorded until it is brought back.", steps])


def _decide_on(opened: Opened, typed: Typed) -> Answer:
    typed.require(("ask", typed.why), ("on_behalf_of", "confirm"))
    _said(typed)
    workspace = open_workspace(opened.home)
    asked = import_review(_path(typed.ask), workspace.key.public_key, opened.home.root)
    reason = _reason(typed, asked)
    deciding.require_waiting(asked)
    deciding.require_steward(asked, workspace.key)
    deciding.rehearse_decision(workspace, asked, "approve", reason, typed.on_behalf_of)
    _show_and_confirm(opened, asked, reason, typed.confirm, elsewhere=True)
    state = deciding.decide(workspace, asked, "approve", reason, typed.on_behalf_of)
    return _decided(asked, "approve", state, workspace.actor.name, f"Approved by {workspace.actor.name}")


def _bring(opened: Opened, typed: Typed) -> Answer:
    typed.require(("number", "gate", "signed"), ("confirm",))
    workspace, signed = open_workspace(opened.home), read_approval(_path(typed.signed))
    asked = deciding.load_review(workspace, _number(typed), _gate(typed))
    deciding.require_waiting(asked)
    deciding.check_signed_approval(asked, signed)
    _show_and_confirm(opened, asked, signed.reason, typed.confirm)
    state = deciding.import_approval(workspace, asked, signed)
    said = f"Approved by {signed.approver}, brought by {workspace.actor.name},"
    return _decided(asked, "approve", state, signed.approver, said)


def _show_and_confirm(
    opened: Opened, asked: Review, reason: str, given: str | None, *, elsewhere: bool = False
) -> None:
    screen = render(asked, elsewhere=elsewhere)
    if asked.missed_bounds:
        screen.append(plain(f"\nThe approval says: {reason}"))  # which names what it overrides
    show(opened.console, screen)  # also under --json: nobody is asked about what they have not seen
    confirm(asked.dataset, f"Type the name of the dataset to approve at the {asked.gate} gate", given)


def _decided(asked: Review, verdict: str, state: str, by: str, said: str) -> Answer:
    what = "motion" if asked.gate is Gate.MOTION else "request"
    data = {what: asked.number, "gate": asked.gate, "decision": verdict, "state": state, "by": by,
            "subject_sha256": asked.subject_digest}  # fmt: skip
    lines = [f"{said} at the {asked.gate} gate; the {what} is {state}."]
    return Answer(data, lines + [text.format(asked.number) for text in _NEXT.get((asked.gate, state), ())])


_NEXT: dict[tuple[Gate, str], tuple[str, ...]] = {
    (Gate.SPEND, RequestState.SUBMITTED): ("It waits for another approval: `almoner release show {}`.",),
    (Gate.SPEND, RequestState.APPROVED): ("Next: `almoner run {}`.",),
    (Gate.PUBLISH, RequestState.PRODUCED): ("Next, when it has its approvals: `almoner publish {} --to DIR`.",),
    (Gate.MOTION, "open"): ("It waits for another approval.",),
    (Gate.MOTION, "carried"): ("It has taken effect.",),
}


def _number(typed: Typed) -> int:
    if typed.number is None:
        raise OptionMissing("number")
    return typed.number


def _gate(typed: Typed) -> Gate:
    if typed.gate is None:
        raise OptionMissing("gate")
    return typed.gate


def _said(typed: Typed) -> str:
    """What was typed as --reason or --override."""
    said = typed.reason if typed.override is None else typed.override
    if said is None or not said.strip():
        raise ReasonMissing
    return said.strip()


def _reason(typed: Typed, asked: Review) -> str:
    """What is signed as the reason: an override also names what it overrides."""
    return _said(typed) if typed.override is None else deciding.override_reason(asked, _said(typed))


def _path(path: Path | None) -> Path:
    if path is None:
        raise OptionMissing("export")
    return path


_SPELT = {
    "number": "ID",
    "gate": "--gate",
    "reason": "--reason",
    "override": "--override",
    "on_behalf_of": "--on-behalf-of",
    "export": "--export",
    "ask": "--from",
    "signed": "--import",
    "confirm": "--confirm",
}


class OptionMissing(UsageError):
    """A form of the command without something that it needs."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"This form of `almoner approve` needs {_SPELT[name]}.",
            "`almoner approve --help` shows the six forms.",
            {"option": _SPELT[name]},
        )


class OptionForeign(UsageError):
    """An option that this form of the command would not heed."""

    def __init__(self, name: str) -> None:
        reason = f"{_SPELT[name]} does not go together with the other options."
        super().__init__(reason, "`almoner approve --help` shows the six forms.", {"option": _SPELT[name]})


class ReasonMissing(UsageError):
    """A decision without a reason."""

    def __init__(self) -> None:
        super().__init__("A decision needs a reason.", 'Say why: --reason "...".')
