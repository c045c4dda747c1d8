"""The project home: one folder, mode 0700, that holds everything private.

almoner.db        the ledger (unless ALMONER_DATABASE_URL names a PostgreSQL)
policy.yaml       the policy in force
endpoints.yaml    models behind an API that requests can name; no secret is in it (0600)
stores.yaml       how buckets of object stores are reached; no secret is in it (0600)
seen.json         the head of the ledger's chain as this home last saw it
keys/             signing key, overlap key, one key per partition scheme (0600)
corpora/<uid>/    ingested dataset versions, one folder each
quarantine/<request>-<attempt>/  unpublished output of a run
released/         what mechanisms of a run have released, for releases that extend it (0600)
prefect/          database and log of the Prefect server of `almoner serve`, name of its pool; it holds no text
scratch/          temporary files of runs, wiped by `almoner run sweep`
unfinished/       where backups are being written outside the home
"""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from models_db.errors import EnvironmentProblem
from models_db.values.untrusted_text import is_storable


def sqlite_url(path: Path) -> str:
    """Return the address of a SQLite file: what means something in an address (`?`, `%`, `#`) is a sign of its name."""
    return f"sqlite:///{quote(str(path), safe='/ ')}"


def describe_free_space(path: Path) -> str:
    """Return in words how much room is left on the disk of a path that need not exist."""
    existing = next((each for each in (path, *path.parents) if each.exists()), Path("/"))
    try:
        free = shutil.disk_usage(existing).free
    except OSError:
        return "free space unknown"
    return f"{free / 2**20:.1f} MiB free"


@dataclass(frozen=True)
class ProjectHome:
    """The paths below one project home.

    Attributes:
        origin: what named it: `--home`, `ALMONER_HOME`, or nothing (`~/.almoner`).
    """

    root: Path
    origin: str = field(default="", compare=False)

    @classmethod
    def locate(cls, path: Path | None = None) -> "ProjectHome":
        """`--home`, else ALMONER_HOME, else ~/.almoner.

        Raises:
            HomePathUnreadable: the path holds bytes that are not UTF-8, or a control character.
        """
        named = os.environ.get("ALMONER_HOME")
        chosen = path or Path(named or Path.home() / ".almoner")
        if not is_storable(str(chosen)):
            raise EnvironmentProblem(
                f"The path {str(chosen)!a} of the project home holds bytes that are not UTF-8, or a control character.",
                "Name a folder in UTF-8 with --home or ALMONER_HOME.",
                {"home": ascii(str(chosen))},
                code="HomePathUnreadable",
            )
        origin = "--home" if path else "ALMONER_HOME" if named else "the default, ~/.almoner"
        if not chosen.expanduser().is_absolute():
            origin += f" ({chosen}, seen from the working directory)"
        return cls(chosen.expanduser().absolute(), origin)

    @property
    def database_url(self) -> str:
        """ALMONER_DATABASE_URL, else the SQLite file of this home."""
        return os.environ.get("ALMONER_DATABASE_URL") or sqlite_url(self.root / "almoner.db")

    @property
    def policy(self) -> Path:
        """The policy file in force."""
        return self.root / "policy.yaml"

    @property
    def endpoints(self) -> Path:
        """The file of endpoints, if there is one."""
        return self.root / "endpoints.yaml"

    @property
    def stores(self) -> Path:
        """The file of buckets, if there is one."""
        return self.root / "stores.yaml"

    @property
    def seen(self) -> Path:
        """The file in which the home remembers its ledger, outside of it."""
        return self.root / "seen.json"

    @property
    def keys(self) -> Path:
        """The folder of secret keys."""
        return self.root / "keys"

    @property
    def corpora(self) -> Path:
        """The folder of ingested dataset versions."""
        return self.root / "corpora"

    @property
    def quarantine(self) -> Path:
        """The folder of produced, unpublished releases."""
        return self.root / "quarantine"

    @property
    def derived(self) -> Path:
        """Folder of values derived from single units of ingested data; they can be derived again."""
        return self.root / "derived"

    @property
    def released(self) -> Path:
        """The folder of released values that later releases may be made of."""
        return self.root / "released"

    @property
    def prefect(self) -> Path:
        """The folder of the Prefect server that runs beside this home."""
        return self.root / "prefect"

    @property
    def unfinished(self) -> Path:
        """Return the folder of notes of backups that are being written."""
        return self.root / "unfinished"

    @property
    def scratch(self) -> Path:
        """The folder of temporary files."""
        return self.root / "scratch"

    def create(self) -> None:
        """Make the folders, each 0700.

        Raises:
            HomeUnwritable: they cannot be made there.
        """
        try:
            for folder in (self.root, self.keys, self.corpora, self.quarantine, self.scratch):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.chmod(0o700)
        except OSError as problem:
            raise home_unwritable(self.root, problem.strerror or type(problem).__name__) from None

    def require(self) -> "ProjectHome":
        """Return this home, if `almoner init` has made it.

        Raises:
            HomeMissing: it has not.
        """
        if not self.keys.is_dir():
            raise home_missing(self.root)
        return self

    def path_inside(self, *parts: str) -> Path:
        """Return a path inside a folder of this home, or inside the home itself where there is one part.

        Args:
            parts: the folder, and below it one name for each step.

        Raises:
            PathEscape: a part is no single name (`..`, empty, with a slash or a NUL), or a link leads out of the
            folder.
        """
        if not all(_is_one_name(part) for part in parts):
            raise PathEscape("/".join(parts))
        root = self.root.resolve()
        folder = root / parts[0] if len(parts) > 1 else root
        path = root.joinpath(*parts).resolve()
        if path == folder or not path.is_relative_to(folder):
            raise PathEscape("/".join(parts))
        return path

    def draft(self, request_id: int, attempt: int) -> Path:
        """Return the folder of an attempt's output in quarantine, which need not exist.

        Raises:
            PathEscape: it is a link that leads out of quarantine.
        """
        return self.path_inside("quarantine", draft_name(request_id, attempt))


def draft_name(request_id: int, attempt: int) -> str:
    """Return the name in quarantine of an attempt's output."""
    return f"{request_id}-{attempt}"


def _is_one_name(part: str) -> bool:
    return part not in ("", ".", "..") and not {"/", "\0"} & set(part)


def home_missing(root: Path) -> EnvironmentProblem:
    """Return the error of a folder that holds no project home."""
    return EnvironmentProblem(
        f"There is no project home at {root}.",
        "Make one with `almoner init`, or name yours with --home or ALMONER_HOME.",
        {"home": str(root)},
        code="HomeMissing",
    )


def home_unwritable(root: Path, reason: str) -> EnvironmentProblem:
    """Return the error of a folder in which no project home can be created."""
    return EnvironmentProblem(
        f"No project home can be made at {root}: {reason}.",
        "Name a folder of your own with --home or ALMONER_HOME.",
        {"home": str(root)},
        code="HomeUnwritable",
    )


class PathEscape(EnvironmentProblem):
    """A stored path leads out of the project home."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The path {path!r} leads out of the project home.", "Run `almoner doctor`.")
