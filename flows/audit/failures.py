"""Unexpected exceptions as named errors: missing packages, an altered ledger, or a path that the system refuses."""

from flows.audit.verify import ledger_altered
from models_db.errors import AlmonerError, EnvironmentProblem
from models_db.home import ProjectHome
from tasks.common.extras import name_missing

NOT_OF_FILES = (ConnectionError, TimeoutError)
"""Errors of the operating system that concern a network, or a pipe whose reader has gone (typer then exits)."""


def explain(home: ProjectHome, problem: Exception) -> AlmonerError | None:
    """Return the named error behind an unexpected exception; None if there is none.

    It is a `GenerationMissing` if a package of the extra `generation` is not installed, an `OrchestrationMissing` if
    Prefect is not, a `LedgerAltered` if rows of the ledger differ from its audit log, else a `FileInaccessible` for an
    error of the operating system with a path.
    """
    if (missing := name_missing(problem)) is not None:
        return missing
    if (altered := ledger_altered(home)) is not None:
        return altered
    if isinstance(problem, OSError) and problem.errno is not None and not isinstance(problem, NOT_OF_FILES):
        return _file_inaccessible(problem)
    return None


def _file_inaccessible(problem: OSError) -> EnvironmentProblem:
    path = problem.filename if isinstance(problem.filename, str) else "A file"
    return EnvironmentProblem(
        f"{path} cannot be used: {problem.strerror or type(problem).__name__}.",
        "Check the path, its permissions and the space on its disk, then type the command again.",
        {"path": path, "error": type(problem).__name__},
        code="FileInaccessible",
    )
