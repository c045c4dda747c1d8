"""A release request on its way: review, decisions, run, texts, report, publication."""

import importlib
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from almoner.bundle import TEXT_COLUMNS, Bundle, Rows, topic_rows
from almoner.session import session
from almoner.views import Price, Report, Review
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.services import requests
from models_db.services.audit.stored_text import request_body
from models_db.values.request_state import Gate
from models_db.values.requests import ReleaseRequest, model_to_json

if TYPE_CHECKING:
    from flows.releases.execute import RunOutcome
    from tasks.reporting.report_parts import Version


class RequestFields(TypedDict, total=False):
    """The fields of a request (docs/requests.md) but its dataset; a `prompt` of text is its description."""

    kind: str
    mechanism: str
    epsilon: Any
    delta: Any
    epsilon_while_secret: Any
    model: str
    parameters: Mapping[str, Any]
    prompt: str | Mapping[str, Any]
    evaluation: list[str]
    evaluation_share: Any
    evaluation_embedder: str
    public_metadata: Mapping[str, Any]
    cohorts: Any


def written_fields(
    dataset: str, request: Mapping[str, object] | str | Path | None, fields: Mapping[str, object]
) -> dict[str, object]:
    """Return the request that was written, as a mapping.

    Raises:
        FileUnreadable, FileInvalid: the file holds no request.
        DatasetMismatch: it names another dataset.
    """
    if isinstance(request, str | os.PathLike):
        from flows.workspace.yaml_files import read_fields

        written = read_fields(Path(request), str(request), ReleaseRequest.model_fields)
    else:
        written = dict(request or {})
    written |= fields
    named = written.setdefault("dataset", dataset)
    if named != dataset:
        raise _dataset_mismatch(dataset, str(named))
    if isinstance(written.get("prompt"), str):
        written["prompt"] = {"description": written["prompt"]}
    return written


@dataclass(frozen=True)
class Decision:
    """A decision that the ledger has recorded.

    Attributes:
        state: the state of the request after it.
        by: who decided; the signature is made with the key of the home.
        subject_sha256: the digest that was signed.
    """

    request: int
    gate: str
    decision: str
    state: str
    by: str
    subject_sha256: str = field(repr=False)


@dataclass(frozen=True)
class Request:
    """A submitted request for a release."""

    project: ProjectHome = field(repr=False)
    number: int
    priced: Price | None = field(default=None, repr=False, compare=False)

    @property
    def state(self) -> str:
        """The state of the request now: submitted, approved, running, produced, published, ..."""
        with session(self.project) as workspace, workspace.database.read() as ledger:
            return str(requests.state_of(ledger, requests.find_request(ledger, self.number).id))

    def price(self) -> Price:
        """Return the price with which it was submitted; of a request from `Home.request`, what it would cost now.

        Raises:
            AlmonerError: the errors of `Dataset.price`.
        """
        if self.priced is not None:
            return self.priced
        from flows.releases.propose import propose_release
        from tasks.pricing.quote import written_request

        with session(self.project) as workspace:
            with workspace.database.read() as ledger:
                body = request_body(requests.find_request(ledger, self.number))
            written = model_to_json(written_request(body))
            if not isinstance(written, dict):
                raise TypeError("a request is a mapping")
            return Price(propose_release(self.project.root, dict(written), dry_run=True).price)

    def review(self, gate: str | None = None, *, details: bool = False) -> Review:
        """Return what is decided at a gate, by default the one at which the request waits; without the texts.

        Args:
            details: whether to show mechanisms, digests and all parameters too.

        Raises:
            WrongState: there is nothing to review at the publish gate yet.
        """
        from flows.approvals import decide

        with session(self.project) as workspace:
            chosen = decide.gate_of_request(workspace, self.number) if gate is None else gate_named(gate)
            return Review(decide.load_review(workspace, self.number, chosen), details)

    def approve(
        self,
        gate: str,
        *,
        reason: str | None = None,
        confirm: str | None = None,
        override: str | None = None,
    ) -> Decision:
        """Approve at a gate, signed with the key of this home, as `almoner approve` does.

        The review is shown first: in a notebook as its output, else on stderr.

        Args:
            gate: `spend`, before a text is read, or `publish`, for exactly the produced files.
            reason: recorded, signed, and published with the release.
            confirm: the name of the dataset, typed by the person who decides; it is always compared.
            override: in place of `reason` at the publish gate, to approve a release that misses bounds of its policy.

        Raises:
            GateUnknown: there is no such gate.
            DecisionReasonMissing, ConfirmationMissing, ConfirmationWrong: the decision is not complete.
            WrongState: the request does not wait there.
            RuleViolated, RoleDenied: the owner of this home may not approve it, such as their own request.
            OutsideBounds, NothingToOverride: the release misses bounds of its policy, or misses none.
        """
        from flows.approvals import decide
        from flows.approvals.confirmation import require_confirmation, require_reason

        if reason is not None and override is not None:
            raise UsageError(
                "A decision has a reason, or in its place an override; not both.",
                "Give `override` alone: it is the reason to approve a release that misses bounds of its policy.",
                code="ReasonDoubled",
            )
        given = require_reason(reason if override is None else override)
        with session(self.project, reason=given, confirm=confirm) as workspace:
            review = decide.load_review(workspace, self.number, gate_named(gate))
            signed = given if override is None else decide.override_reason_for(review, given)
            decide.require_waiting(review)
            decide.rehearse_decision(workspace, review, "approve", signed)
            _show(Review(review))
            require_confirmation(review.dataset, confirm)
            state = decide.decide(workspace, review, "approve", signed)
            return Decision(
                self.number, review.gate.value, "approve", state, workspace.actor.name, review.subject_digest
            )

    def reject(self, *, reason: str, gate: str | None = None) -> Decision:
        """Reject at a gate, by default the one at which the request waits; one rejection is enough.

        Raises:
            GateUnknown, DecisionReasonMissing: there is no such gate, or no reason.
            WrongState, RuleViolated, RoleDenied: it does not wait there, or not for the owner of this home.
        """
        from flows.approvals import decide
        from flows.approvals.confirmation import require_reason

        given = require_reason(reason)
        with session(self.project, reason=given) as workspace:
            chosen = decide.gate_of_request(workspace, self.number) if gate is None else gate_named(gate)
            review = decide.load_review(workspace, self.number, chosen)
            state = decide.decide(workspace, review, "reject", given)
            return Decision(
                self.number, review.gate.value, "reject", state, workspace.actor.name, review.subject_digest
            )

    def withdraw(self, *, reason: str = "withdrawn") -> None:
        """Withdraw a request that has not been run.

        Raises:
            WrongState, RuleViolated: it was run, or is somebody else's.
        """
        from flows.releases.propose import withdraw_request

        with session(self.project, reason=reason) as workspace:
            withdraw_request(workspace, self.number, reason)

    def run(self, *, device: str = "auto", workers: int = 1, anew: bool = False) -> "RunOutcome":
        """Run it once it is approved: reserve, arm, generate, evaluate, quarantine; an interrupted run goes on.

        A script on a terminal shows a progress bar.

        Args:
            device: `auto`, `cpu`, `cuda`, `cuda:N` or `cuda:A-B`.
            workers: how many processes draw.
            anew: whether to use nothing of an interrupted run; everything is drawn and paid again.

        Raises:
            GateClosed, WrongState, StillRunning, PlanChanged: it may not run.
            RunInterrupted: the kernel was interrupted; armed budget stays spent.
            AlmonerError: the errors of `flows.releases.execute.execute_request`.
        """
        with session(self.project, workers=workers):
            from flows.releases.execute import execute

            with _progress():
                return execute(self.project.root, self.number, device, anew=anew, workers=workers)

    def texts(self) -> Rows:
        """Return all texts of the produced release: `id`, `label`, `text`, and `doubts` to look at first.

        `looked_for` says what a doubt can be; a text without one may name somebody. Until they are published, texts are
        as confidential as the quarantine folder.

        Raises:
            WrongState: it has not been run.
            ArtifactChanged: the files differ from the produced ones.
        """
        with session(self.project) as workspace:
            from flows.releases.release_texts import read_release_texts
            from tasks.text.doubts import describe_doubts

            texts = read_release_texts(workspace, self.number)
        rows = tuple({"id": t.number, "label": t.label, "text": t.text, "doubts": list(t.doubts)} for t in texts)
        looked_for = describe_doubts(sum(bool(t.doubts) for t in texts), len(texts))
        return Rows(rows, f"texts of request {self.number}", TEXT_COLUMNS, looked_for)

    def topics(self) -> Rows:
        """Return all topics of a produced release of insights, parents before their children.

        Raises:
            NotInsights: it is a release of another kind.
            WrongState, ArtifactChanged: as `texts`.
        """
        with session(self.project) as workspace:
            from flows.releases.release_texts import read_release_topics

            return topic_rows(read_release_topics(workspace, self.number), f"topics of request {self.number}")

    def report(self, version: "Version" = "steward", *, drawn: bool = True) -> Report:
        """Return the report on the produced release, as `almoner report` writes it.

        Args:
            version: `steward`, for the publish gate; `public`, as in the bundle; `internal`, with figures that read
                private data unprotected: after the publish decision, and the viewing is recorded.
            drawn: whether to include the map of texts, which needs an embedder.

        Raises:
            ReportUnknown: there is no such version.
            WrongState, ReleaseUndecided, BalancesWithheld: it is not to be seen yet, or not by the owner of this home.
        """
        if version not in ("steward", "public", "internal"):
            raise UsageError(
                f"A report has no version {str(version)!r}.",
                "Take steward, public or internal.",
                {"version": str(version)},
                code="ReportUnknown",
            )
        with session(self.project) as workspace:
            from flows.reports.build import report_facts

            return Report(self.project, version, report_facts(workspace, self.number, version, drawn=drawn))

    def publish(self, to: str | os.PathLike[str]) -> Bundle:
        """Publish exactly the approved bytes, as a signed bundle.

        Args:
            to: a folder, or `s3://bucket/prefix`.

        Raises:
            GateClosed, WrongState: the publish gate is not passed.
            OutsideBounds, ArtifactChanged: the release misses bounds of its policy, or its files were changed.
        """
        with session(self.project, to=os.fspath(to)):
            from flows.releases.publish import publish_release
            from tasks.object_storage.address import parse_place

            published = publish_release(self.project.root, self.number, parse_place(os.fspath(to)))
        return Bundle(self.project, published.place)


def gate_named(gate: str) -> Gate:
    """Return the gate of a request of that name.

    Raises:
        GateUnknown: there is none.
    """
    if gate not in (Gate.SPEND, Gate.PUBLISH):
        raise UsageError(
            f"A request has no gate {str(gate)!r}.",
            "Decide at `spend`, before it is run, or at `publish`, on its files.",
            {"gate": str(gate)},
            code="GateUnknown",
        )
    return Gate(gate)


def _progress() -> AbstractContextManager[None]:
    """Return what shows progress on stderr, if that is a terminal; a notebook has its own sign of work."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    from flows.observability.progress_bar import progress_on_terminal

    console = Console(stderr=True)
    return progress_on_terminal(console, partial(console.print, markup=False))


def _show(review: Review) -> None:
    """Show a review to the person who decides: as output of a notebook, else on stderr."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        importlib.import_module("IPython.display").display(review)
    else:
        sys.stderr.write(f"{review!r}\n")


def _dataset_mismatch(dataset: str, named: str) -> UsageError:
    return UsageError(
        f"The request names the dataset {named!r}, and is made of {dataset!r}.",
        "Leave `dataset` out of it, or take the other dataset: `home.dataset(NAME).request(...)`.",
        {"dataset": dataset, "named": named},
        code="DatasetMismatch",
    )
