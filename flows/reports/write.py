"""Reports as files: 0600, because the steward's version holds unpublished texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.workspace.yaml_files import file_unwritable
from models_db.errors import UsageError
from models_db.home import ProjectHome
from models_db.values.canonical_json import encode_canonical
from tasks.common.files import write_new, write_over
from tasks.reporting.html_report import page


def write_report(home: ProjectHome, path: Path, content: Mapping[str, Any]) -> Path:
    """Write the new file `path`: JSON if its name ends in `.json`, else the HTML page.

    Raises:
        ReportInHome: the path is in the home, where an erasure would not find the file.
        FileUnwritable: the file exists, or cannot be written.
    """
    if path.resolve().is_relative_to(home.root.resolve()):
        raise UsageError(
            f"{path} lies in the project home, where an erasure would not find a report of that name.",
            "Name a file outside the home; without --out the page is kept in the home's own folder of reports.",
            {"path": str(path)},
            code="ReportInHome",
        )
    data = encode_canonical(content) + b"\n" if path.suffix == ".json" else page(content).encode()
    try:
        write_new(path, data, 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None
    return path


def replace_page(home: ProjectHome, content: Mapping[str, Any]) -> Path:
    """Write the page to the home's own folder of reports, in place of an earlier page of its version.

    Raises:
        FileUnwritable: the file cannot be written.
    """
    path = home.path_inside("reports", f"{content['release']['number']}-{content['version']}.html")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_over(path, page(content).encode(), 0o600)
    except OSError as problem:
        raise file_unwritable(path, problem.strerror or type(problem).__name__) from None
    return path
