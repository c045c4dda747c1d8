"""Checks of `almoner doctor`: ledger, home, packages, models."""

import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.metadata import packages_distributions
from typing import TypeVar

from sqlalchemy.orm import Session

from flows.audit.charges import differing_charges, uncharged_releases
from flows.audit.lifetime_claims import GIVEN_UP, claims_of, require_proposal_amounts, unauthorised_requests
from flows.audit.verify import unsigned_checkpoints
from flows.workspace.file_system import file_system_of, require_local_ledger
from flows.workspace.home_keys import unsound_keys
from flows.workspace.leftovers import check_leftovers
from flows.workspace.policy_file import PolicyAltered, read_policy_version
from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import AlmonerError, Finding, Refused
from models_db.home import PathEscape, ProjectHome
from models_db.services import artifacts, budget, datasets, logins, policies, proposals, requests
from models_db.services.audit.stored_text import files_of
from models_db.services.queries import health
from models_db.tables import Proposal
from tasks.common.extensions import MODEL_FAMILIES, READERS, ROOMS, extension_sources, extensions, load
from tasks.common.extras import INSTALL, PACKAGES, missing_packages
from tasks.evaluation.registry import METRICS
from tasks.inference.catalogue.registry import list_models
from tasks.inference.loading.check_model import usability_of
from tasks.mechanisms.registry import MECHANISMS
from tasks.publishing.draft import rehash
from tasks.systems.registry import SYSTEMS

CheckedItem = TypeVar("CheckedItem")
HealthCheck = Callable[[Workspace], Iterator[Finding]]


def check_home(home: ProjectHome, structure: HealthCheck, stored_versions: HealthCheck) -> list[Finding]:
    """Run all checks in order; a check that raises an error becomes a failed finding.

    Args:
        structure: compares the ledger's constraints and triggers with the migrations (the caller knows them).
        stored_versions: compares the home's copies of the data with the ledger
            (`flows.datasets.erase.stored_versions`).
    """
    try:
        workspace = open_workspace(home)
    except AlmonerError as problem:
        return [Finding("home opens", ok=False, detail=problem.message)]
    findings: list[Finding] = []
    for check in (
        structure,
        _check_ledger,
        _check_amounts,
        _check_drafts,
        _check_charges,
        _check_checkpoints,
        _check_policies,
        _check_access,
        _check_permissions,
        _check_keys,
        _check_file_system,
        stored_versions,
        _check_leftovers,
        _check_package_names,
        _check_generation,
        _check_extensions,
        _check_models,
    ):
        try:
            findings += check(workspace)
        except (AlmonerError, OSError) as problem:
            detail = problem.message if isinstance(problem, AlmonerError) else str(problem)
            findings.append(Finding(check.__name__.removeprefix("_check_").strip("_"), ok=False, detail=detail))
    return findings


def _check_ledger(workspace: Workspace) -> Iterator[Finding]:
    with workspace.database.read() as session:
        yield from health.check_health(session)


def _check_amounts(workspace: Workspace) -> Iterator[Finding]:
    """Check that the amounts of every claim, cap and authorisation follow from the text that people read."""
    with workspace.database.read() as session:
        effective = _effective_proposals(session)
        wrong = [*_refusals_of(datasets.list_all(session, replaced=True), lambda one: claims_of(session, one)),
                 *_refusals_of(effective, lambda one: proposals.require_intact(session, one)),
                 *_refusals_of(effective, require_proposal_amounts)]  # fmt: skip
        unauthorised = ", ".join(map(str, unauthorised_requests(session)))
    detail = "; ".join(wrong) or "the amounts of every claim and proposal follow from their text"
    yield Finding("amounts", ok=not wrong, detail=detail)
    yield Finding(
        "authorisations",
        ok=not unauthorised,
        detail=f"not for what is requested under them: request {unauthorised}; withdraw, reject or retract them"
        if unauthorised
        else "every request under a standing authorisation is for what was authorised",
    )


def _effective_proposals(session: Session) -> list[Proposal]:
    """Return the proposals that have an effect, or may get one."""
    every = proposals.list_all(session)
    return [one for one in every if proposals.state_of(session, one) not in ("rejected", "expired")]


def _check_drafts(workspace: Workspace) -> Iterator[Finding]:
    """Check that the draft of every release that waits at the publish gate is here, as it was produced.

    Until somebody decides on it nothing of its dataset is erased. The draft of a run by somebody else may lie in their
    home, so that it is missing here is a warning.
    """
    missing: list[str] = []
    elsewhere: list[str] = []
    with workspace.database.read() as session:
        for artifact in artifacts.waiting(session):
            line = f"request {artifact.request_id}"
            try:
                rehash(workspace.home.draft(artifact.request_id, artifact.attempt), files_of(artifact))
            except (Refused, PathEscape) as lost:
                own = artifact.created_by == workspace.actor.id
                (missing if own else elsewhere).append(f"{line} ({lost.message.rstrip('.')})")
    told = "; ".join((*missing, *elsewhere))
    advice = "restore it, decide in the home in which it was run, or reject it: `almoner reject ID --reason ...`"
    detail = f"not here: {told}; {advice}" if told else "every release that waits has its draft"
    yield Finding("drafts", ok=not missing, detail=detail, warning=bool(elsewhere) and not missing)


def _check_charges(workspace: Workspace) -> Iterator[Finding]:
    """Check that accounts were charged what follows from the texts of the requests, also in Rényi orders.

    A charge in orders that does not warns once its request is given up: it counts whole, and whoever may record it must
    not be able to keep this from ever passing.
    """
    with workspace.database.read() as session:
        uncharged = uncharged_releases(session)
        wrong = differing_charges(session, budget.list_charges(session))
        waiting = [number for number in wrong if requests.state_of(session, number) not in GIVEN_UP]
    yield Finding(
        "charges",
        ok=not uncharged,
        detail=f"less than the plan costs: request {', '.join(map(str, uncharged))}"
        if uncharged
        else "every release was charged its plan, on every block of it",
    )
    numbers = ", ".join(map(str, waiting or wrong))
    advice = "withdraw, reject or retract it" if waiting else "given up, and counted whole"
    yield Finding(
        "charges in orders",
        ok=not waiting,
        detail=f"not what the plan costs: request {numbers}; {advice}"
        if wrong
        else "every charge follows from its plan",
        warning=bool(wrong) and not waiting,
    )


def _refusals_of(every: Iterable[CheckedItem], check: Callable[[CheckedItem], object]) -> Iterator[str]:
    for one in every:
        try:
            check(one)
        except Refused as differs:
            yield f"{differs.code}: {differs.message}"


def _check_checkpoints(workspace: Workspace) -> Iterator[Finding]:
    """Check that the keys of the recorded checkpoints signed them.

    One that is not signed warns and does not fail: who may record it must not be able to keep this from ever passing.
    """
    with workspace.database.read() as session:
        wrong = unsigned_checkpoints(session)
    detail = f"not signed by their keys, so they prove nothing: {'; '.join(wrong)}" if wrong else "all are signed"
    yield Finding("checkpoints", ok=True, detail=detail, warning=bool(wrong))


def _check_policies(workspace: Workspace) -> Iterator[Finding]:
    """Check that the ledger enforces its policies as their texts say."""
    wrong = []
    with workspace.database.read() as session:
        for version in policies.list_all(session):
            try:
                read_policy_version(session, version)
            except PolicyAltered:
                wrong.append(version.digest[:12])
    yield Finding("policies", ok=not wrong, detail=f"differ from their text: {', '.join(wrong)}" if wrong else "")


def _check_access(workspace: Workspace) -> Iterator[Finding]:
    """Check, on PostgreSQL, that the ledger knows every role with rights to write, call and add."""
    with workspace.database.read() as session:
        yield from logins.check_access(session)


def _check_permissions(workspace: Workspace) -> Iterator[Finding]:
    home = workspace.home
    private = [home.root, home.keys, home.corpora, home.quarantine, *home.keys.iterdir()]
    open_to_others = [p.name for p in private if stat.S_IMODE(p.lstat().st_mode) & 0o077 and not p.is_symlink()]
    yield Finding(
        "private files are closed to others",
        ok=not open_to_others,
        detail=f"open: {', '.join(open_to_others)}; `chmod go-rwx` them" if open_to_others else "",
    )


def _check_keys(workspace: Workspace) -> Iterator[Finding]:
    """Compare the keys of this home with the commitments in the ledger."""
    with workspace.database.read() as session:
        wrong = list(unsound_keys(workspace.home, session))
    yield Finding("keys are those of the beginning", ok=not wrong, detail=" ".join(wrong))


def _check_leftovers(workspace: Workspace) -> Iterator[Finding]:
    """Find copies of the home that killed backups and restorations have left outside it."""
    yield check_leftovers(workspace.home)


def _check_file_system(workspace: Workspace) -> Iterator[Finding]:
    """Name the file system of the home, and fail for a SQLite ledger on one that other machines may write to."""
    require_local_ledger(workspace.home)
    kind = file_system_of(workspace.home.root) or "not told by this system"
    yield Finding("file system of the home", ok=True, detail=kind)


def _check_package_names(_: Workspace) -> Iterator[Finding]:
    """Check that no other distribution owns one of our five top-level names."""
    owners = packages_distributions()
    foreign = sorted({o for room in ROOMS for o in owners.get(room, ()) if o != "almoner"})
    yield Finding(
        "no other package owns our names",
        ok=not foreign,
        detail=f"uninstall {', '.join(foreign)}: almoner needs an environment of its own" if foreign else "",
    )


def _check_generation(_: Workspace) -> Iterator[Finding]:
    """Say whether this machine can run releases: all packages of the extra `generation`, or none; some are a fault."""
    missing = missing_packages()
    if not missing:
        detail = "installed"
    elif len(missing) == len(PACKAGES):
        detail = f"not installed, so this machine prices and runs no release; `{INSTALL}` changes that"
    else:
        detail = f"{', '.join(missing)} not installed; `{INSTALL}`"
    yield Finding("packages for generation", ok=len(missing) in {0, len(PACKAGES)}, detail=detail)


def _check_extensions(_: Workspace) -> Iterator[Finding]:
    """Name every extension, each with a finding of its own, and load all of them."""
    for extension in extensions():
        yield Finding(f"extension {extension}", ok=True, detail="")
    extension_sources()
    for registry in (SYSTEMS, MECHANISMS, METRICS):
        len(registry)  # has all that there are, each of its kind
    for group in (READERS, MODEL_FAMILIES):
        load(group)


def _check_models(workspace: Workspace) -> Iterator[Finding]:
    with workspace.database.read() as session:
        named = requests.models_named(session)
    yield from model_findings(named)


def model_findings(named: Collection[str]) -> Iterator[Finding]:
    """Check every model, each with a finding of its own; a fault of one that no request here names is a warning.

    The folder of models is the machine's, and other homes add to it.

    Args:
        named: models that the requests of this home name.
    """
    for model in list_models():
        found = usability_of(model)
        if model.installed:
            line = f"installed, {found.line}"
        elif found.usable:
            line = f"not installed; `almoner models pull {model.name}` when needed"
        else:
            line = found.line
        ok = found.usable or model.name not in named
        yield Finding(f"model {model.name}", ok=ok, detail=line, warning=ok and not (found.usable and found.fits))
