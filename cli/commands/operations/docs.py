"""`almoner docs`: the documentation of the installed version, in the terminal. Needs no home."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import table
from models_db.errors import EnvironmentProblem, UsageError

INSTALLED: Final = Path(__file__).parents[3] / "almoner" / "docs"
CHECKOUT: Final = Path(__file__).parents[3] / "docs"

Page = Annotated[
    str | None,
    typer.Argument(metavar="[PAGE]", help="Page, such as guides/first-release; without one, a list of all."),
]
Find = Annotated[str | None, typer.Option(metavar="WORDS", help="List only pages that contain these words.")]


@dataclass(frozen=True)
class DocumentationPage:
    """A page of the documentation; `name` is its path without the ending."""

    name: str
    text: str

    @property
    def title(self) -> str:
        """Return its first heading."""
        headings = (line.removeprefix("# ").strip() for line in self.text.splitlines() if line.startswith("# "))
        return next(headings, self.name)


class PageTitle(TypedDict):
    """A page of the documentation."""

    page: str
    title: str


class PageText(TypedDict):
    """A page of the documentation with its text, in Markdown."""

    page: str
    text: str


def register(app: typer.Typer) -> None:
    """Register the command of this file."""
    command(app, "docs")(docs)


def docs(context: CommandContext, page: Page = None, find: Find = None) -> CommandResult[list[PageTitle] | PageText]:
    """Read the documentation of the installed version: the list of pages, or one page in a pager.

    Example: almoner docs requests
    """
    from rich.markdown import Markdown

    pages = read_pages()
    if page is not None:
        found = pages.get(page.removesuffix(".md").removeprefix("docs/"))
        if found is None:
            raise _page_unknown(page, list(pages))
        return CommandResult(PageText(page=found.name, text=found.text), [Markdown(found.text)], paged=True)
    shown = [one for one in pages.values() if find is None or find.casefold() in one.text.casefold()]
    data = [PageTitle(page=one.name, title=one.title) for one in shown]
    rows = [(one.name, one.title) for one in shown]
    return CommandResult(data, [table(("page", "title"), rows), "Read one: almoner docs PAGE"])


def read_pages() -> dict[str, DocumentationPage]:
    """Return the pages by name: those of the root first, then those of folders.

    Raises:
        DocumentationMissing: this installation has none.
    """
    folder = next((place for place in (INSTALLED, CHECKOUT) if (place / "index.md").is_file()), None)
    if folder is None:
        raise EnvironmentProblem(
            "This installation has no documentation.",
            "Install almoner from its wheel, or from a whole checkout.",
            code="DocumentationMissing",
        )
    files = sorted(folder.rglob("*.md"), key=lambda path: (len(path.parts), path))
    names = ((path.relative_to(folder).with_suffix("").as_posix(), path) for path in files)
    return {name: DocumentationPage(name, path.read_text(encoding="utf-8")) for name, path in names}


def _page_unknown(page: str, names: list[str]) -> UsageError:
    close = difflib.get_close_matches(page, names, n=3)
    return UsageError(
        f"The documentation has no page {page!r}.",
        f"Did you mean {', '.join(close)}?" if close else "`almoner docs` lists all pages.",
        {"page": page, "similar": close},
        code="PageUnknown",
    )
