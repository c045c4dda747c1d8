"""Release record (`release.json`): all that a reader needs to recompute a claim, and nothing about private data.

The format is closed: a field that is not declared here cannot be written and is refused when read. It never holds the
number of units, documents or chunks, a hash of private data, times, attempts, crashes or internal metrics
(PRIVACY §1, §7). Once released, a field's meaning never changes; a new field is a new format
(`tasks.release.bundle_format`).

The public content of a release, its record with measurements and texts, is the only input of its generated files, and
the one place that admits metrics (`PublicContent`). A second opinion on epsilon is dp-accounting's figure for the same
stored events (`second_opinion`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, GetPydanticSchema, StringConstraints, model_validator
from pydantic_core import core_schema

from models_db.errors import Refused
from models_db.policies.policy import Policy
from models_db.values.amounts import Amount, total_amount
from models_db.values.canonical_json import Json, digest
from models_db.values.events import PrivacyEvent
from models_db.values.requests import PublicMetadata
from tasks.accounting.rounding import Exact
from tasks.common.files import FileTable, FileUnfit, decode_json, encode_json
from tasks.common.network import is_external
from tasks.common.published_values import Digest, Figure, Name, Strict, figure, read_as
from tasks.inference.prompt_spec import wording_of
from tasks.mechanisms.core.uncharged import UNPROTECTED, loss_paid_by_parent, parent_of
from tasks.planning.secret_assignment import assignment_of_plan
from tasks.release.bundle_format import FORMAT, RECORD
from tasks.release.claim import Claim, require_within_claim, state_claim
from tasks.values.results import Insight, MetricResult, ReleaseKind

CUT_FIGURE: Final = "references_cut"
"""Number of private texts that were cut: published only for public data, where nothing is claimed."""

RELEASED_FIGURES: Final = frozenset({
    CUT_FIGURE,
    "batches_per_block",
    "candidates_clear_of_noise",
    "clusters_kept",
    "clusters_released",
    "clusters_unnamed",
    "completion_tokens_per_text",
    "descriptions_replaced",
    "effective_k",
    "keywords_released",
    "noisy_population",
    "phrases_drawn_without_a_score",
    "private_tokens_per_text",
    "public_topics_added",
    "renyi_loss_of_this_data_not_a_guarantee",
    "share_from_expansion",
})  # fmt: skip
"""Names of figures that a charged mechanism may have released on the way to the texts, or that follow from its released
values and from public logits."""


def _event(value: Any) -> PrivacyEvent:
    try:
        event = value if isinstance(value, PrivacyEvent) else PrivacyEvent.from_json(value)
    except (KeyError, TypeError):
        raise ValueError("not a stored event") from None
    if any(isinstance(number, bool) for number in (event.count, *event.parameters.values())):
        raise ValueError("an event counts in numbers")
    return event


def _publishable(figures: dict[str, str]) -> dict[str, str]:
    if unknown := sorted(set(figures) - RELEASED_FIGURES):
        raise ValueError(f"not on the list of publishable figures: {unknown}")
    return figures


_EVENT = core_schema.no_info_plain_validator_function(
    _event, serialization=core_schema.plain_serializer_function_ser_schema(PrivacyEvent.to_json)
)
Event = Annotated[PrivacyEvent, GetPydanticSchema(lambda _type, _handler: _EVENT)]
Units = Annotated[str, StringConstraints(pattern="^[0-9]{1,20}$")]
Released = Annotated[dict[str, str], AfterValidator(_publishable)]


class DatasetFacts(Strict):
    """The dataset as registered; `unit` is the field that names the privacy unit, or 'record'."""

    name: Name
    unit: Name
    relation: Literal["add_or_remove_one"]
    governed: bool


class SecondOpinion(Strict):
    """dp-accounting's figure for the same events at the claim's delta. Reported for comparison; it decides nothing."""

    library: Name
    accountant: Name
    epsilon: Figure
    delta: Figure


class Lifetime(Strict):
    """Claim for everything ever run on the dataset; `shared` where several datasets draw on one account."""

    epsilon: Figure
    delta: Figure
    shared: bool


class Authorisation(Strict):
    """A proposal of the kind `standing`, as `models_db.services.proposals` states it.

    At most `rho` and `delta_fail` per run (in 1e-12 and 1e-18), `runs` times, for one configuration of requests.
    """

    proposal: Literal["standing"]
    dataset: Name
    reason: str
    nonce: Name
    expires_at: Name
    epsilon: None
    delta: None
    rho: Units
    delta_fail: Units
    delta_conversion: None
    runs: Annotated[int, Field(ge=1)]
    until: Name
    config_digest: Digest
    publication: None


class CapChange(Strict):
    """A lifetime claim that stewards replaced by another one; without a date."""

    old_epsilon: Figure
    old_delta: Figure
    new_epsilon: Figure
    new_delta: Figure


class UnprotectedFigures(Strict):
    """Figures of the account computed from private data without protection and seen before this release was made.

    `since` is the first day, `people` the number of people who saw them; their names are not published.
    """

    since: Annotated[str, StringConstraints(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
    people: Annotated[int, Field(ge=1)]


class Standing(Strict):
    """Standing authorisation that opened the spend gate: its number, and the content that its digest covers."""

    number: Annotated[int, Field(ge=1)]
    said: Authorisation

    @property
    def digest(self) -> str:
        """The digest that the stewards' approvals of it are bound to."""
        return digest(self.said.model_dump())


class PublicModel(Strict):
    """The model of the release; for one behind an API, the digest is that of its endpoint's configuration."""

    name: Name
    sha256: Digest
    licence: Name

    @property
    def external(self) -> bool:
        """Return whether the model is behind an API."""
        return is_external(self.name)


class Person(Strict):
    """A principal of the ledger: one key is one person, under any name."""

    name: Name
    public_key: Digest


class People(Strict):
    """Requester and runner; the approvers are in the signed approvals."""

    requester: Person
    runner: Person


class ReleaseRecord(Strict):
    """One release, complete; `claim` is null only for releases of public data that make none.

    Amounts in `events` are integers (rho in 1e-12, delta in 1e-18), all other figures plain decimals. `policy` is the
    whole policy of the request, which names its digest. `cap_changes` are all changes of the dataset's budget, in
    order; `standing` is the standing authorisation that opened the spend gate, if one did. `unprotected_figures` is
    left out where nobody had seen any.
    """

    format: Literal["almoner-release/1"] = FORMAT
    release: Annotated[int, Field(ge=1)]
    dataset: DatasetFacts
    kind: Name
    mechanism: Name
    claim: Claim | None
    events: tuple[Event, ...]
    second_opinion: SecondOpinion | None
    lifetime: Lifetime | None
    facts: dict[str, str]
    released: Released
    model: PublicModel
    prompt: str
    request: dict[str, Any]
    request_sha256: Digest
    policy: Policy
    people: People
    code_sha256: Digest
    libraries: dict[str, str]
    rng: Literal["os", "deterministic-not-private"]
    cap_changes: tuple[CapChange, ...] = ()
    standing: Standing | None = None
    unprotected_figures: UnprotectedFigures | None = None

    @property
    def population(self) -> int | None:
        """The declared number of units; None where none is declared, or the request is no honest one."""
        declared = self.request.get("population")
        return declared if isinstance(declared, int) and declared > 0 else None

    @classmethod
    def from_request(
        cls,
        release: int,
        request: Mapping[str, Any],
        *,
        second_opinion: SecondOpinion | None,
        lifetime: Lifetime | None,
        released: Mapping[str, str],
        policy: Policy,
        people: People,
        libraries: Mapping[str, str],
        rng: str,
        cap_changes: Sequence[CapChange] = (),
        standing: Standing | None = None,
        unprotected_figures: UnprotectedFigures | None = None,
    ) -> "ReleaseRecord":
        """Build the record of release number `release`; all but these arguments follows from the approved request.

        Parameters come from the plan that was approved before data was touched, so none can depend on the data.

        Raises:
            ClaimTooSmall: the plan costs more than the request claims.
            KeyError, TypeError, ValueError: the request is not a canonical one, or a figure may not be published.
        """
        events = planned_events(request)
        return cls.model_validate({
            "format": FORMAT,
            "release": release,
            "dataset": {
                "name": request["dataset"]["name"],
                "unit": request["unit"],
                "relation": request["relation"],
                "governed": request["governed"],
            },
            "kind": request["kind"],
            "mechanism": request["mechanism"],
            "claim": claim_of_plan(events, request),
            "events": tuple(events),
            "second_opinion": second_opinion,
            "lifetime": lifetime,
            "facts": dict(request["plan"]["facts"]),
            "released": dict(released),
            "model": {
                "name": request["model"]["name"],
                "sha256": request["model"]["sha256"],
                "licence": request["model"]["licence"],
            },
            "prompt": request["prompt"]["description"],
            "request": dict(request),
            "request_sha256": digest(request),
            "policy": policy,
            "people": people,
            "code_sha256": request["code"],
            "libraries": dict(libraries),
            "rng": rng,
            "cap_changes": tuple(cap_changes),
            "standing": standing,
            "unprotected_figures": unprotected_figures,
        })  # fmt: skip

    @model_validator(mode="after")
    def _claims_what_it_may(self) -> "ReleaseRecord":
        if self.dataset.governed and (self.claim is None or self.lifetime is None):
            raise ValueError("a release of governed data has a claim, and its dataset a lifetime claim")
        if self.rng != "os" and self.claim is not None:
            raise ValueError("a release without real randomness makes no claim")
        if self.unprotected_figures and self.lifetime is None:
            raise ValueError("that unprotected figures were seen qualifies a lifetime claim, and there is none")
        if CUT_FIGURE in self.released and self.claim is not None:
            raise ValueError("how many documents were cut is private wherever something is claimed")
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """The public labels that the request declares; for summaries, the ids of their groups."""
        parameters = self.request["parameters"]
        if self.kind == ReleaseKind.SUMMARIES:
            return tuple(str(group["id"]) for group in parameters["groups"])
        return tuple(map(str, parameters.get("labels", ())))

    @property
    def texts(self) -> int:
        """The number of texts that the request publishes; insights have none that is fixed beforehand."""
        return int(self.request["parameters"]["samples"])

    @property
    def cohorts(self) -> tuple[int, ...]:
        """The cohorts of units that it could read, where the dataset had several at the time; else empty."""
        return tuple(map(int, self.request.get("cohorts", ())))

    @property
    def parent(self) -> int | None:
        """Number of the release that it extends, if any."""
        return parent_of(self.events)

    @property
    def wording(self) -> dict[str, str]:
        """The words of the prompt that the request writes out; empty for the default wording."""
        return wording_of(self.request["prompt"])

    @property
    def prompt_sha256(self) -> str | None:
        """Digest of the prompts' token ids; None where the request has none."""
        sha256: str | None = self.request.get("prompt_sha256")
        return sha256

    @property
    def declared(self) -> PublicMetadata:
        """The request's declared facts about the published data."""
        return PublicMetadata.model_validate(self.request.get("public_metadata", {}))

    def to_json(self) -> dict[str, Json]:
        """Return the stable stored form."""
        return self.model_dump(exclude={"unprotected_figures"} if self.unprotected_figures is None else None)

    def to_bytes(self) -> bytes:
        """Return the content of `release.json`."""
        return encode_json(self.to_json())

    @classmethod
    def from_bytes(cls, data: bytes) -> "ReleaseRecord":
        """Read `release.json`.

        Raises:
            FileUnfit: another format than this almoner reads, a field too many or too few, a value out of form.
        """
        stored = decode_json(data, RECORD)
        if isinstance(stored, dict) and stored.get("format") != FORMAT:
            raise FileUnfit(RECORD, f"is in {_format_named(stored.get('format'))}; this almoner reads {FORMAT}")
        record = read_as(cls, stored, RECORD)
        if record.to_bytes() != data:
            raise FileUnfit(RECORD, "holds an event or a policy that is not in its stored form")
        return record


def _format_named(stated: object) -> str:
    """Return the format that a record states; text that is not the name of a format is not repeated."""
    return stated if isinstance(stated, str) and _FORMAT_NAME.fullmatch(stated) else "no format of a release"


_FORMAT_NAME = re.compile(r"almoner-release/[0-9]{1,6}")


def planned_events(request: Mapping[str, Any]) -> list[PrivacyEvent]:
    """Return the events of the approved plan.

    Raises:
        KeyError, TypeError, ValueError: an event is not one of ours, or its instalments are not its loss.
    """
    events = []
    for invocation in request["plan"]["invocations"]:
        event = PrivacyEvent.from_json(invocation["event"])
        parts = [Amount(int(part["rho"]), int(part["delta"])) for part in invocation["instalments"]]
        if total_amount(parts) != event.loss:
            raise ValueError("the instalments of an event are not its loss")
        events.append(event)
    return events


def claim_of_plan(events: Sequence[PrivacyEvent], request: Mapping[str, Any]) -> Claim | None:
    """Return the request's claim; (0, 0) where nothing is charged; None for a release without protection.

    Raises:
        ClaimTooSmall: the events cost more than the request claims.
        SecretClaimTooSmall: they cost more while the assignment is secret than the request asks for.
    """
    if any(event.mechanism in UNPROTECTED for event in events):
        return None
    if loss_paid_by_parent(events) == Amount():
        return state_claim(events, 0, 0)
    assignment = assignment_of_plan(request["plan"])
    claim = state_claim(events, request["epsilon"] or 0, request["delta"] or 0, assignment)
    require_within_claim(request.get("epsilon_while_secret"), claim.secret_assignment)
    return claim


@dataclass(frozen=True)
class PublicContent:
    """A release as readers of its bundle know it: every generated file is a function of this, and of nothing else.

    Attributes:
        record: its record, which holds public and charged values only.
        metrics: its measurements; none of them is internal on governed data.
        data: digests and sizes of the files with the texts.
        texts: the texts themselves, each with its label; None where none was declared.
        insights: in a release of insights, the nodes that its texts describe, in the same order.

    Raises:
        UnpublishableMetric: a metric reads governed data without protection.
    """

    record: ReleaseRecord
    metrics: tuple[MetricResult, ...]
    data: FileTable
    texts: tuple[tuple[str, str | None], ...] = ()
    insights: tuple[Insight, ...] = ()

    def __post_init__(self) -> None:
        refuse_internal(self.metrics, self.record)


def refuse_internal(metrics: Sequence[MetricResult], record: ReleaseRecord) -> None:
    """Check that no metric reads governed data without protection.

    Raises:
        UnpublishableMetric: one does.
    """
    for metric in metrics:
        if record.dataset.governed and metric.exposure == "internal":
            raise Refused(
                f"The metric {metric.name!r} reads private data unprotected and may not be part of a release.",
                "Leave it out; after the publish decision `almoner evaluate --internal` computes it for the stewards.",
                {"metric": metric.name},
                code="UnpublishableMetric",
            )


def second_opinion(events: Sequence[PrivacyEvent], delta: Exact) -> SecondOpinion | None:
    """Return dp-accounting's epsilon for `events` at `delta`; None where nothing is charged.

    Raises:
        NotReportable: dp-accounting knows no such event.
    """
    if total_amount([event.loss for event in events]) == Amount():
        return None
    from tasks.accounting.dp_accounting_check import plan_report  # dp-accounting takes a second to load

    report = plan_report(events, delta)
    return SecondOpinion(
        library=f"dp-accounting {version('dp-accounting')}",
        accountant=report.accountant,
        epsilon=figure(report.epsilon),
        delta=figure(report.delta),
    )
