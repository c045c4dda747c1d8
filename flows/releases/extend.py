"""Further texts of a release: the request for them, and the released values they are made from.

Values are outputs of charged mechanisms, so keeping them and using them again is post-processing. They lie in the
project home under the digest of the artifact that they belong to. The ledger says what may be extended: a release that
was produced and not called back, by the same request but for the number of texts; and its chain has the digest of the
values, so that no others can stand in their place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flows.workspace.workspace import Workspace
from models_db.errors import AlmonerError, EnvironmentProblem, Refused
from models_db.home import ProjectHome
from models_db.services import artifacts, attempts, proposals, requests
from models_db.services.audit.stored_text import request_body
from models_db.values.canonical_json import Json, digest, encode_canonical
from models_db.values.request_state import RequestState
from models_db.values.requests import model_to_json
from models_db.values.standing_terms import cost_of
from tasks.common.files import decode_json, encode_json, read_document, write_over
from tasks.mechanisms.core.uncharged import PostProcessing
from tasks.pricing.quote import written_request
from tasks.systems.registry import SYSTEMS

FORMAT: Final = "almoner-values/1"

MOST_VALUES_BYTES: Final = 2**28
"""Bytes of a file of values: the largest sketches that there are, in base 64, and the largest vocabulary."""


@dataclass(frozen=True)
class ParentRelease:
    """A release that may be extended.

    Attributes:
        number: its number.
        artifact: the digest of its files.
        values: the digest of what its mechanisms released.
        request: its canonical request.
    """

    number: int
    artifact: str
    values: str | None
    request: Mapping[str, Any]


def is_extendable(mechanism: str) -> bool:
    """Return whether a mechanism is installed whose released values are all that its texts are made of."""
    system = SYSTEMS.get(mechanism)
    return system is not None and "extends" in system.parameters.model_fields


def write_values(home: ProjectHome, artifact: str, values: Json) -> str:
    """Store the released values of an artifact, readable by the owner alone; on disk when this returns.

    Returns:
        the digest of the values, for the ledger.

    Raises:
        ValuesUnwritable: the home cannot be written.
    """
    try:
        home.released.mkdir(mode=0o700, exist_ok=True)
        write_over(_values_path(home, artifact), encode_json({"format": FORMAT, "values": values}), 0o600)
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        raise EnvironmentProblem(
            f"The released values of the run cannot be stored: {reason}.",
            "Make room in the project home and run the request again: the run continues and pays nothing twice.",
            {"reason": reason},
            code="ValuesUnwritable",
        ) from None
    return digest(values)


def sweep_values(workspace: Workspace) -> int:
    """Remove values that no artifact is made of: their run died before it was committed. Returns how many there were.

    They are listed before the ledger is read, and while a run that may write some is under way none are removed: what
    was written down a moment ago belongs to an artifact that the ledger does not know yet.
    """
    folder = workspace.home.released
    files = [path for path in folder.iterdir() if not path.is_dir()] if folder.is_dir() else []
    with workspace.database.read() as session:
        at_work = [
            request_body(requests.find_request(session, lease.request_id)) for lease in attempts.running_leases(session)
        ]
        kept = {f"{artifact.digest}.json" for artifact in artifacts.list_all(session)}
    if any(is_extendable(body["mechanism"]) or body["mechanism"] not in SYSTEMS for body in at_work):
        return 0
    orphans = [path for path in files if path.name not in kept]
    for path in orphans:
        path.unlink(missing_ok=True)
    return len(orphans)


def read_values(home: ProjectHome, parent: ParentRelease) -> Json:
    """Return the released values of a release.

    Raises:
        ValuesMissing: it is not in this home, or not what the ledger says.
    """
    try:
        data = read_document(_values_path(home, parent.artifact), MOST_VALUES_BYTES)
        stored = decode_json(data, "the file of released values")
    except AlmonerError:
        raise _values_missing(parent.number) from None
    if not isinstance(stored, dict) or set(stored) != {"format", "values"} or stored["format"] != FORMAT:
        raise _values_missing(parent.number)
    values: Json = stored["values"]
    if digest(values) != parent.values:
        raise _values_missing(parent.number)
    return values


def further_texts_request(workspace: Workspace, number: int, samples: int) -> dict[str, object]:
    """Return the request for `samples` further texts of a release, as its author would write it.

    All of them are published: how many the parent has kept says nothing about another number of texts.

    Raises:
        RequestUnknown, NotExtendable: there is no such release, or none that can be extended.
        ValuesMissing: it was not run in this home.
    """
    parent = find_parent(workspace, number)
    values = digest(read_values(workspace.home, parent))
    extends = {"release": number, "artifact": parent.artifact, "values": values}
    parameters = {**parent.request["parameters"], "samples": samples, "extends": extends}
    request = written_request(parent.request).model_copy(update={"parameters": parameters})
    return {name: model_to_json(getattr(request, name)) for name in request.stored_fields}


def load_values(workspace: Workspace, request: Mapping[str, Any]) -> Json:
    """Return the values that a canonical request is to be made of; None if it extends nothing.

    Raises:
        RequestUnknown, NotExtendable, ValuesMissing: as `further_texts_request`.
        ParentDiffers: it is not what it names, or not the same request but for the number of texts.
    """
    extends = request["parameters"].get("extends")
    if not is_extendable(request["mechanism"]) or extends is None:
        return None
    parent = find_parent(workspace, extends["release"])
    _require_parent_parts(parent, request, extends["artifact"])
    values = read_values(workspace.home, parent)
    if digest(values) != extends["values"]:
        raise _parent_differs(parent.number, "released values")
    return values


def find_parent(workspace: Workspace, number: int) -> ParentRelease:
    """Return a release that can be extended.

    Raises:
        RequestUnknown: there is no such request.
        NotExtendable: it is another mechanism's, was not produced, was called back or not let out, extends a release
            itself, or has charged metrics, whose part of its budget is no post-processing of its values.
    """
    with workspace.database.read() as session:
        request = request_body(requests.find_request(session, number))
        state, artifact = requests.state_of(session, number), artifacts.artifact_of(session, number)
        values = artifact.values_digest if artifact else None
        retracted = proposals.retracted_artifacts(session)
    if not is_extendable(request["mechanism"]):
        raise _not_extendable(number, f"{request['mechanism']} makes its texts of more than released values")
    if artifact is None or state not in (RequestState.PRODUCED, RequestState.PUBLISHED) or artifact.digest in retracted:
        raise _not_extendable(number, f"it is {state}")
    if "extends" in request["parameters"]:
        raise _not_extendable(number, f"it extends release {request['parameters']['extends']['release']} itself")
    if "evaluation_share" in request:
        raise _not_extendable(number, "a part of its budget went to charged metrics")
    return ParentRelease(number, artifact.digest, values, request)


def _require_parent_parts(parent: ParentRelease, request: Mapping[str, Any], artifact: str) -> None:
    """Check that everything the parent's mechanisms depend on is unchanged."""
    if artifact != parent.artifact:
        raise _parent_differs(parent.number, "artifact")
    if request["dataset"]["name"] != parent.request["dataset"]["name"]:
        raise _parent_differs(parent.number, "dataset")
    for part in ("kind", "epsilon", "delta"):
        if request.get(part) != parent.request.get(part):
            raise _parent_differs(parent.number, part)
    if request["plan"]["blocks"] != parent.request["plan"]["blocks"]:
        raise _parent_differs(parent.number, "cohorts")
    ours, theirs = (
        {name: value for name, value in of["parameters"].items() if name not in ("samples", "extends")}
        for of in (request, parent.request)
    )
    if encode_canonical(ours) != encode_canonical(theirs):
        raise _parent_differs(parent.number, "parameters")
    # The claim is the parent's, so what it rests on is what was paid, and not what the same words would buy by now.
    paid = PostProcessing(parent.number, cost_of(parent.request)).event()
    if encode_canonical([each["event"] for each in request["plan"]["invocations"]]) != encode_canonical(
        [paid.to_json()]
    ):
        raise _parent_differs(parent.number, "price")


def _values_path(home: ProjectHome, artifact: str) -> Path:
    return home.released / f"{artifact}.json"


def _not_extendable(number: int, reason: str) -> Refused:
    return Refused(
        f"Release {number} cannot be extended: {reason}.",
        f"Extend a produced or published release by {' or '.join(sorted(filter(is_extendable, SYSTEMS)))}"
        " (`almoner release list`),"
        " or make a new request.",
        {"request": number, "reason": reason},
        code="NotExtendable",
    )


def _parent_differs(number: int, part: str) -> Refused:
    return Refused(
        f"The request extends release {number}, but its {part} differs.",
        f"Let almoner write the request: `almoner release extend {number} --samples N`.",
        {"request": number, "part": part},
        code="ParentDiffers",
    )


def _values_missing(number: int) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The released values of release {number} are missing in this home, or differ from those in the ledger.",
        "Extend it in the home in which it was run, with its folder `released`; or make a new request.",
        {"request": number},
        code="ValuesMissing",
    )
