"""A small release, made by hand: two texts, one token draw event, two stewards, no model and no database."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from models_db.policies.policy import Policy, RequiredApprovals
from models_db.services.gates import GateDecision
from models_db.services.requests import configuration
from models_db.values.amounts import Amount
from models_db.values.canonical_json import digest
from models_db.values.events import PrivacyEvent
from models_db.values.requests import Prompt, model_to_json
from tasks.accounting.zcdp import release_amount, rho_of
from tasks.common.files import FileTable
from tasks.evaluation.evaluation_input import EvaluationInput
from tasks.evaluation.registry import METRICS, evaluate
from tasks.inference.prompt_spec import prompt_json
from tasks.mechanisms.tokens import integer_table
from tasks.pricing.quote import plan_json
from tasks.publishing.bundle import BundleDocuments, WrittenBundle, write_bundle
from tasks.publishing.draft import write_draft
from tasks.release.bundle_format import RECORD
from tasks.release.record import Authorisation, Lifetime, People, Person, ReleaseRecord, Standing, second_opinion
from tasks.release.signatures.approvals import SignedDecision
from tasks.release.signatures.attestation import attest, attestation_payload
from tasks.release.signatures.ed25519 import SigningKey
from tasks.release.signatures.publisher_statements import Charged
from tasks.systems.baselines import BaselineParameters
from tasks.systems.invisible_ink import InvisibleInkParameters
from tasks.systems.registry import system_for
from tasks.systems.summaries import TokenLevelParameters
from tasks.values.plan import PlanInputs
from tasks.values.results import Insight, MetricResult

DRAW = integer_table.calibrate(rho_of("4", "1e-7"), 48, 7, "1")
TEXTS = ("Doctor: How are you? Patient: Better.", "")
HEAD = "ab" * 32
POLICY = Policy(several_roles=False, approvals=RequiredApprovals(spend=1, publish=2))


def stored(parameters: BaseModel) -> dict[str, Any]:
    """Parameters as a canonical request has them."""
    found = model_to_json(parameters)
    assert isinstance(found, dict)
    return found


ASKED: dict[str, Any] = {"samples": 2, "references": 7, "max_new_tokens": 48, "temperature": 1}
INK = stored(InvisibleInkParameters.model_validate(ASKED))
BASELINE = stored(BaselineParameters.model_validate(ASKED))


@dataclass(frozen=True)
class Text:
    text: str
    tokens: int = 5
    complete: bool = True


def event(draws: int = 48) -> PrivacyEvent:
    return DRAW.event(draws)


def invocation(planned: PrivacyEvent) -> dict[str, Any]:
    loss = {"rho": str(planned.loss.rho), "delta": str(planned.loss.delta)}
    return {"event": planned.to_json(), "instalments": [loss]}


def a_request(**changes: Any) -> dict[str, Any]:
    """A request with a plan of its own, made as pricing makes it, unless `changes` names another."""
    request = {
        "format": "almoner-request/1",
        "dataset": {"name": "clinic", "version": 1, "uid": "4d2f"},
        "unit": "id",
        "relation": "add_or_remove_one",
        "governed": True,
        "population": 14,
        "blocks": 1,
        "kind": "synthetic_corpus",
        "mechanism": "invisible_ink",
        "epsilon": "4",
        "delta": "0.0000001",
        "model": {"name": "tiny", "revision": "1", "sha256": "1f" * 32, "licence": "Apache-2.0"},
        "parameters": INK,
        "prompt": {"description": "Short dialogues between a doctor and a patient."},
        "evaluation": ["length", "distinct"],
        "policy": digest(model_to_json(POLICY)),
        "code": "c0" * 32,
        "nonce": "77" * 16,
    } | changes
    return request if "plan" in request else request | {"plan": plan_of(request)}


SUMMARIES: dict[str, Any] = {
    "kind": "summaries",
    "mechanism": "token_level_summary",
    "parameters": model_to_json(
        TokenLevelParameters.model_validate(
            {
                **{name: ASKED[name] for name in ("references", "max_new_tokens", "temperature")},
                "groups": [{"id": "b7", "title": "Kettle", "about": ["kitchen", "electric"]}, {"id": "b8"}],
                "groups_per_unit": 2,
            }
        )
    ),
    "prompt": prompt_json(Prompt(description="one sentence", preset="summary"), ("b7", "b8")),
}
"""What makes a request one for two summaries."""


def plan_of(request: dict[str, Any]) -> Any:
    """What `request` leads to."""
    system = system_for(request["mechanism"], request["kind"])
    parameters = system.parameters.model_validate(request["parameters"])
    price = (request["epsilon"], request["delta"], system.failure_delta_share(parameters))
    amount = release_amount(*price) if system.charges else None
    facts = (request[name] for name in ("blocks", "population", "governed"))
    return plan_json(system.plan(PlanInputs(amount, parameters, *facts)))


def charging(*events: PrivacyEvent, request: dict[str, Any] | None = None) -> dict[str, Any]:
    """A plan of these events that says of itself what the honest one says."""
    plan = (request or a_request())["plan"]
    return plan | {"invocations": [invocation(one) for one in events]}


def people(
    requester: str = "ana", runner: str = "robin", *, requester_key: str = "a1" * 32, runner_key: str = "b2" * 32
) -> People:
    """Who asked and who ran; nobody can sign with these keys."""
    return People(
        requester=Person(name=requester, public_key=requester_key), runner=Person(name=runner, public_key=runner_key)
    )


def a_record(request: dict[str, Any] | None = None, **changes: Any) -> ReleaseRecord:
    given = {
        "second_opinion": second_opinion([event()], "1e-7"),
        "lifetime": Lifetime(epsilon="8", delta="0.000001", shared=False),
        "released": {"batches_per_block": "2"},
        "policy": POLICY,
        "people": people(),
        "libraries": {"opendp": "0.16.0"},
        "rng": "os",
    }
    return ReleaseRecord.from_request(1, a_request() if request is None else request, **{**given, **changes})


def standing(request: dict[str, Any] | None = None, **changes: Any) -> Standing:
    """A standing authorisation for such requests."""
    said = {
        "proposal": "standing",
        "dataset": "clinic",
        "reason": "the monthly corpus",
        "nonce": "5a" * 16,
        "expires_at": "2026-06-30T23:59:59.000000Z",
        "epsilon": None,
        "delta": None,
        "rho": str(event().loss.rho),
        "delta_fail": "0",
        "delta_conversion": None,
        "runs": 12,
        "until": "2026-12-31T23:59:59.000000Z",
        "config_digest": digest(configuration(request or a_request())),
        "publication": None,
    }
    return Standing(number=7, said=Authorisation.model_validate(said | changes))


def metrics_of(texts: Sequence[str], *names: str) -> tuple[MetricResult, ...]:
    subject = EvaluationInput([Text(t) for t in texts], documents=lambda: ["Patient: Better."])
    return evaluate([METRICS[name] for name in names], subject)


@dataclass(frozen=True)
class Steward:
    name: str
    key: SigningKey

    def decide(self, record: ReleaseRecord, gate: str, subject: str, **changes: str) -> SignedDecision:
        number = record.standing.number if gate == "proposal" and record.standing else record.release
        decision = GateDecision(number, gate, subject, "approve", "as agreed", "2026-12-31T23:59:59.000000Z")
        decision = replace(decision, **changes)
        return SignedDecision(
            request=decision.number,
            gate=decision.gate,
            subject_sha256=decision.subject_digest,
            decision=decision.verdict,
            reason=decision.reason,
            expires_at=decision.expires_at,
            approver=self.name,
            public_key=self.key.public_key,
            signature=self.key.sign(decision.statement(self.name)),
        )

    def attest(self, draft: Path, files: FileTable) -> str:
        return attest(attestation_payload(draft, files), self.key)


def charge_of(record: ReleaseRecord) -> Charged:
    """What the ledger charges a release: its plan."""
    plan = record.request["plan"]
    parts = [part for each in plan["invocations"] for part in each["instalments"]]
    amount = Amount(*(sum(int(part[unit]) for part in parts) for unit in ("rho", "delta")))
    return Charged(blocks=tuple(plan["blocks"]), rho=amount.rho_text, delta=amount.delta_text)


@dataclass(frozen=True)
class Release:
    """Everything around one release: its draft, its decisions and the keys."""

    record: ReleaseRecord
    draft: Path
    files: FileTable
    approvals: tuple[SignedDecision, ...]
    attestations: tuple[str, ...]
    key: SigningKey
    stewards: tuple[Steward, ...]

    def papers(self, **changes: Any) -> BundleDocuments:
        return replace(BundleDocuments(self.approvals, self.attestations, HEAD, charge_of(self.record), ()), **changes)

    def publish(self, destination: Path, **changes: Any) -> WrittenBundle:
        """Publish it, with what the ledger has on it but for some `changes`."""
        return write_bundle(self.draft, self.files, self.papers(**changes), self.key, destination)

    def decided_again(self, draft: Path, files: FileTable) -> "Release":
        """The release with another draft, on which the same stewards have decided."""
        record = ReleaseRecord.from_bytes((draft / RECORD).read_bytes())
        sue, _ = self.stewards
        if record.standing:
            before = [steward.decide(record, "proposal", record.standing.digest) for steward in self.stewards]
        else:
            before = [sue.decide(record, "spend", record.request_sha256)]
        approvals = (*before, *(steward.decide(record, "publish", digest(files)) for steward in self.stewards))
        attestations = tuple(steward.attest(draft, files) for steward in self.stewards)
        return replace(self, record=record, draft=draft, files=files, approvals=approvals, attestations=attestations)


def a_release(
    folder: Path,
    record: ReleaseRecord | None = None,
    texts: Sequence[str] = TEXTS,
    labels: Sequence[str] = (),
    insights: Sequence[Insight] = (),
) -> Release:
    """A draft in `folder`, decided on by two stewards with keys of their own."""
    found = record or a_record()
    draft = folder / "draft"
    files = write_draft(draft, found, texts, metrics_of(texts, "length", "distinct"), labels, insights)
    sue, tom = (Steward(name, SigningKey.create(folder / f"{name}.pem")) for name in ("sue", "tom"))
    publisher = SigningKey.create(folder / "publisher.pem")
    return Release(found, draft, files, (), (), publisher, (sue, tom)).decided_again(draft, files)
