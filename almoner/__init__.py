"""almoner in Python: private text released under differential privacy, asked for, decided and published.

    import almoner

    home = almoner.open("clinic-home")
    clinic = home.register("clinic", unit="patient_id", epsilon=8, delta=1e-6)
    clinic.ingest(notes)
    release = clinic.request(kind="synthetic_corpus", mechanism="invisible_ink", epsilon=4, delta=1e-7, ...)
    release.approve("spend", reason="agreed with the board", confirm="clinic")
    release.run()
    print(*release.texts(), sep="\\n")  # read every text before you decide
    release.approve("publish", reason="read all 4 texts: two loop, none names a person", confirm="clinic")
    bundle = release.publish("out")

Every call does what the command of that name does, in the name of the home's owner and with that home's key: roles,
gates, budgets and policies are the ledger's, and refusals have the same names. docs/python-api.md is the guide.

Importing the package loads nothing; what a call needs is imported then.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from almoner.bundle import Bundle, Rows
    from almoner.dataset import Dataset
    from almoner.home import Home
    from almoner.request import Decision, Request
    from almoner.views import Budget, Price, Report, Review
    from models_db.errors import AlmonerError, EnvironmentProblem, Refused, UsageError
    from tasks.inference.catalogue.registry import recommended_model

__all__ = [
    "AlmonerError",
    "Budget",
    "Bundle",
    "Dataset",
    "Decision",
    "EnvironmentProblem",
    "Home",
    "Price",
    "Refused",
    "Report",
    "Request",
    "Review",
    "Rows",
    "UsageError",
    "open",
    "recommended_model",
]

_MODULES = {
    "almoner.bundle": ("Bundle", "Rows"),
    "almoner.dataset": ("Dataset",),
    "almoner.home": ("Home",),
    "almoner.request": ("Decision", "Request"),
    "almoner.views": ("Budget", "Price", "Report", "Review"),
    "models_db.errors": ("AlmonerError", "EnvironmentProblem", "Refused", "UsageError"),
    "tasks.inference.catalogue.registry": ("recommended_model",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def open(home: "str | os.PathLike[str] | None" = None) -> "Home":  # noqa: A001  # as wave.open: always behind the name
    """Open a project home in the name of its owner.

    Args:
        home: the folder; else ALMONER_HOME names it, else it is `~/.almoner`. `almoner init` makes one.

    Raises:
        HomeMissing: there is no home.
        LedgerRolledBack, PrincipalUnknown, LoginMismatch, FileInvalid: it cannot be used.
    """
    from almoner.home import open_home

    return open_home(home)


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
