"""The notebooks of docs/notebooks: executed in a folder of their own, and what of their output must not change.

python -m tests.notebooks                       executes all and keeps their output (`make notebooks`)
python -m tests.notebooks NOTEBOOK RESULT       executes one and writes it elsewhere
"""

import os
import re
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat

from tasks.inference.catalogue.model_store import models_folder

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
MODELS = models_folder()  # before `execute` names another
SECONDS = 1800  # for one cell; it ends what hangs
OWN = re.compile(r"\b[0-9a-f]{16,}\b|SHA256:\S+|-?\d[\d.,]*(?:e-?\d+)?")
"""What differs from one execution to the next: digests, fingerprints, figures."""


def execute(path: Path) -> Any:
    """The notebook with the output of this execution, in a folder that is gone afterwards."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="almoner-notebook-") as folder:
        os.environ.pop("ALMONER_HOME", None)
        small = Path(folder) / ".models"  # whatever else this machine has: with it, the output would be another model's
        small.mkdir()
        for name in ("smollm2-135m-instruct", "all-minilm-l6-v2"):
            (source,) = MODELS.glob(f"{name}@*")
            (small / source.name).symlink_to(source)
        os.environ |= {
            "ALMONER_MODELS": str(small),
            "IPYTHONDIR": f"{folder}/.ipython",
            "LOGNAME": "ada",  # who acts
            "PYTHONWARNINGS": "ignore:IProgress not found",  # of tqdm, where ipywidgets is not installed
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        where = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=SECONDS, resources=where, record_timing=False, kernel_name="python3")
        client.execute()
    return clean(notebook)


def clean(notebook: Any) -> Any:
    """Without what says when and on which machine it was executed; streams that were written in pieces are one."""
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs in which pieces of one stream are one."""
    found: list[Any] = []
    for output in outputs:
        before = found[-1] if found else None
        if before is not None and before.output_type == "stream" == output.output_type and before.name == output.name:
            before.text += output.text
        else:
            found.append(output)
    return found


class Skeleton(HTMLParser):
    """Parts of a fragment in their order, with the text of headings; neither cells of tables nor sentences are read."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.within: list[str] = []
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.within.append(tag)
        if tag in ("h4", "h5", "p", "ul", "table") and self.lines[-1:] != [tag]:
            self.lines.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.within and self.within[-1] in ("h4", "h5", "caption", "strong", "th") and data.strip():
            self.lines.append(f"{self.within[-1]}: {OWN.sub('#', data.strip())}")


def structure(output: Any) -> dict[str, Any]:
    """What an output is made of: its kind and media types, headings of its HTML, its words if they are ours alone."""
    found: dict[str, Any] = {"kind": output.output_type}
    if output.output_type == "stream":
        return found | {"name": output.name, "text": OWN.sub("#", output.text)}
    if output.output_type == "error":
        return found | {"name": output.ename}
    html = "".join(output.data.get("text/html", ""))
    if "dataframe" in html:  # rows of a release: their columns
        html = html.partition("</thead>")[0]
    plain = "".join(output.data.get("text/plain", ""))
    return found | {
        "media": sorted(output.data),
        "html": Skeleton(html).lines,
        "plain": "" if html else OWN.sub("#", plain),
    }


def structures(notebook: Any) -> list[tuple[str, list[dict[str, Any]]]]:
    """The source of each cell of code with the structure of its outputs."""
    return [(cell.source, list(map(structure, cell.outputs))) for cell in notebook.cells if cell.cell_type == "code"]


def main(words: list[str]) -> None:
    """Execute and write."""
    for path, result in [(Path(words[0]), Path(words[1]))] if words else [(path, path) for path in NOTEBOOKS]:
        executed = execute(path)
        nbformat.write(executed, result)


if __name__ == "__main__":
    main(sys.argv[1:])
