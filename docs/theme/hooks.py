"""What the site needs beyond the Markdown of docs/, which is written for GitHub's reader as well.

mkdocs calls the functions whose names begin with `on_` (mkdocs.yml). Nothing is fetched: the site is made of this
repository alone.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security-policy.md"}
"""Pages of the repository that are pages of the site, by their place there."""
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
ITEM = re.compile(r"(?:[*-]|\d\.) ")
FENCE = re.compile(r"\s*(```|~~~)")


def place(target: Path) -> str:
    """Where a file or folder of the repository lies on the site."""
    if target.is_dir():
        return place(target / "README.md") if target.is_relative_to(DOCS) else f"{_copied(target)}/index.md"
    if target.name in OUTSIDE and target.parent == ROOT:
        return OUTSIDE[target.name]
    if target.is_relative_to(DOCS):
        uri = target.relative_to(DOCS)
        return (uri.with_suffix(".md") if uri.suffix == ".ipynb" else uri).as_posix()
    return _copied(target)


def _copied(target: Path) -> str:
    return f"repository/{target.relative_to(ROOT).as_posix()}"


def source(uri: str) -> Path:
    """The file of the repository that a page of the site is made from."""
    outside = {there: here for here, there in OUTSIDE.items()}
    if uri in outside:
        return ROOT / outside[uri]
    notebook = (DOCS / uri).with_suffix(".ipynb")
    return notebook if notebook.exists() else DOCS / uri


def linked(page: Path, text: str) -> Iterator[Path]:
    """The files and folders of the repository that a page links to."""
    for target, _ in LINK.findall(text):
        found = (page.parent / target).resolve()
        if "://" not in target and found.exists() and found.is_relative_to(ROOT):
            yield found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog, the rules for contributors, the notebooks, and the repository's files that pages cite."""
    pages = {file.src_uri: Path(str(file.abs_src_path)).read_text() for file in files.documentation_pages()}
    made = {there: (ROOT / here).read_text() for here, there in OUTSIDE.items()}
    made |= {place(path): notebook_page(path) for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    cited = {found for uri, text in (pages | made).items() for found in linked(source(uri), text)}
    for path in _with_contents(cited):
        if place(path).startswith("repository/"):
            files.append(_generated(config, path))
    return files


def _with_contents(paths: Iterable[Path]) -> list[Path]:
    """The paths, and the files that lie in those that are folders."""
    inside = {each for path in paths if path.is_dir() and not path.is_relative_to(DOCS) for each in path.iterdir()}
    return sorted({*paths, *(each for each in inside if each.is_file())})


def _generated(config: MkDocsConfig, path: Path) -> File:
    if path.is_file():
        return File.generated(config, place(path), abs_src_path=str(path))
    names = sorted(each.name for each in path.iterdir() if each.is_file())
    lines = [f"# {path.relative_to(ROOT).as_posix()}", "", *(f"* [{name}]({name})" for name in names)]
    return File.generated(config, place(path), content="\n".join(lines))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as the site has them, and lists and tables as its parser reads them."""
    written = source(page.file.src_uri)
    if not written.exists():  # a list of a folder's files
        return markdown
    here = Path(page.file.src_uri).parent

    def moved(match: re.Match[str]) -> str:
        target = (written.parent / match[1]).resolve()
        if "://" in match[1] or not target.exists() or not target.is_relative_to(ROOT):
            return match[0]
        return f"]({os.path.relpath(place(target), here)}{match[2] or ''})"

    text = LINK.sub(moved, markdown)
    if here.name == "figures":  # texts that models wrote: `[Is] [Type]` is no link
        text = text.replace("] [", "]&#32;[")
    return "\n".join(readable(text.splitlines()))


def readable(lines: Iterable[str]) -> Iterator[str]:
    """GitHub's Markdown as Python-Markdown reads it: a list after an empty line, and four spaces inside an item."""
    before, fenced, pad = "", False, ""
    for line in lines:
        if not fenced and line and not line.startswith(" "):
            item = ITEM.match(line)
            if item and before.strip() and not before.startswith((" ", "*", "-")) and not ITEM.match(before):
                yield ""
            pad = " " * (4 - len(item[0])) if item else ""
        fenced ^= bool(FENCE.match(line))
        yield pad + line if line.startswith(" ") else line
        before = line


def notebook_page(path: Path) -> str:
    """A notebook with the output that it keeps, as Markdown."""
    cells = json.loads(path.read_text())["cells"]
    note = f"*The notebook `docs/notebooks/{path.name}`, with the output that it keeps.*"
    parts = [part for cell in cells for part in _cell(cell)]
    return "\n\n".join([parts[0], note, *parts[1:]])


def _cell(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```{'console' if text.startswith('!') else 'python'}\n{text}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        if "text/html" in data:
            html = "".join(data["text/html"])
            html = html.replace("<h4>", "<p><strong>").replace("</h4>", "</strong></p>")  # no heading of the page
            yield f'<div class="notebook-output">{html}</div>'
        else:
            yield f"```text\n{''.join(data['text/plain']).rstrip()}\n```"
