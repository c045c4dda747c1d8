"""Reports as files: 0600, because the steward's version holds unpublished texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.workspace.yaml_files import FileUnwritable
from models_db.home import ProjectHome
from models_db.values.canonical_json import encode_canonical
from tasks.common.files import write_new, write_over
from tasks.reporting.html_report import page


def write_report(path: Path, said: Mapping[str, Any]) -> Path:
    """Write the new file `path`: JSON where its name ends so, else the page.

    Raises:
        FileUnwritable: it is there, or cannot be written.
    """
    data = encode_canonical(said) + b"\n" if path.suffix == ".json" else page(said).encode()
    try:
        write_new(path, data, 0o600)
    except OSError as problem:
        raise FileUnwritable(path, problem.strerror or type(problem).__name__) from None
    return path


def replace_page(home: ProjectHome, said: Mapping[str, Any]) -> Path:
    """The page in the home's own folder of reports, in place of an earlier one of its version.

    Raises:
        FileUnwritable.
    """
    path = home.path_inside("reports", f"{said['release']['number']}-{said['version']}.html")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_over(path, page(said).encode(), 0o600)
    except OSError as problem:
        raise FileUnwritable(path, problem.strerror or type(problem).__name__) from None
    return path
