"""One call into the flows: arguments that the ledger can store, a freshly opened workspace, named failures."""

from collections.abc import Iterator
from contextlib import contextmanager

from flows.workspace.workspace import Workspace, open_workspace
from models_db.errors import AlmonerError
from models_db.home import ProjectHome
from models_db.values.untrusted_text import require_storable


@contextmanager
def session(home: ProjectHome, **arguments: object) -> Iterator[Workspace]:
    """Open a home for one call, as each command does: policy, roles and the ledger's head are read again.

    Args:
        arguments: what the caller was given, by name.

    Raises:
        UnreadableArgument, IntegerTooLarge: the ledger cannot store an argument.
        GenerationMissing, LedgerAltered, FileInaccessible: in place of an unexpected exception that it explains.
        AlmonerError: the errors of `open_workspace`, and of the block.
    """
    require_storable(arguments)
    try:
        yield open_workspace(home)
    except AlmonerError:
        raise
    except Exception as problem:
        from flows.audit.failures import explain

        if (named := explain(home, problem)) is not None:
            raise named from problem
        raise
