"""`almoner keywords`: public keyword sets, for the descriptions of insights."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import fact_list
from flows.workspace.yaml_files import file_unwritable, new_file
from tasks.common.progress import report

if TYPE_CHECKING:  # it computes, and most commands do not
    from tasks.analysis.keywords.build_public_set import Built, PublicTexts

app = typer.Typer(no_args_is_help=True, help="Build public keyword sets.")


class KeywordSource(TypedDict):
    """The public corpus that keywords were made from."""

    file: str
    sha256: str
    texts: int
    texts_read: int
    declared: str


class KeywordTools(TypedDict):
    """What made the keywords; `model` is null where none revised them."""

    size: int
    tagger: str
    embedder: str
    model: str | None
    rounds: int


class KeywordCounts(TypedDict):
    """Candidates that were considered, that resemble another one, and that the model removed or added."""

    candidates: int
    alike: int
    removed: int
    appended: int


class KeywordSetData(TypedDict):
    """A set of public keywords, as it is in its file; `texts_with` counts texts by keyword."""

    format: str
    words: list[str]
    texts_with: list[int]
    source: KeywordSource
    made_with: KeywordTools
    counts: KeywordCounts
    path: str


WORDS_SHOWN = 30


@command(app, "build")
def build_keywords(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A PUBLIC corpus: jsonl, csv, parquet, folder of .txt.")],
    to: Annotated[Path, typer.Option(help="New file to write the keywords to.")],
    size: Annotated[int, typer.Option(help="Largest number of keywords.")] = 200,
    text_field: Annotated[str, typer.Option(help="Field of the corpus that holds the text.")] = "text",
    texts: Annotated[
        int,
        typer.Option(min=1, help="Largest number of texts to read. From a larger corpus a repeatable sample is drawn."),
    ] = 2000,
    model: Annotated[
        str | None, typer.Option(help="Public language model that revises the keyword set. Default: no revision.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=0, help="Number of revisions by --model, each on five texts.")] = 20,
    device: Annotated[str, typer.Option(help="Device that runs the models: auto, cpu or cuda.")] = "auto",
) -> CommandResult[KeywordSetData]:
    """Build a keyword set from a PUBLIC corpus like the private one; requests name it by `keywords.file`.

    Building charges no budget, so the corpus must hold no text of a governed dataset (docs/keywords.md). The result
    names the corpus by its SHA-256, and requests and cards repeat that digest.

    Example: almoner keywords build wildchat.jsonl --size 200 --to words.json
    """
    if to.exists():
        raise file_unwritable(to, "File exists")  # said now, and not after all the work
    context.print_progress(
        f"{file} is read as PUBLIC text: words of it will be published without a charge to any budget."
    )
    from tasks.analysis.keywords.build_public_set import read_public
    from tasks.analysis.keywords.build_tools import KeywordSetOptions, build_with_tools

    with progress_bar(context):
        source = read_public(file, text_field, texts)
        built, made_with = build_with_tools(source, KeywordSetOptions(size, model, rounds, device), report)
    body = built.to_json(source, made_with)
    with new_file(to) as out:
        out.write((json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode())
    return CommandResult(cast(KeywordSetData, {**body, "path": str(to)}), _keywords_page(built, source, to))


def _keywords_page(built: "Built", source: "PublicTexts", to: Path) -> list[RenderableType]:
    words = [each.keyword for each in built.keywords]
    more = f", and {len(words) - WORDS_SHOWN} more" if len(words) > WORDS_SHOWN else ""
    return [
        fact_list({
            "keywords": f"{len(words)} of {built.considered} candidates; {built.alike} resemble another one",
            "revised by the model": f"{built.removed} removed, {built.appended} added",
            "made from": f"{source.file}, SHA-256 {source.digest}",
            "texts read": f"{len(source.texts)} of {source.total}",
            "the worthiest": ", ".join(words[:WORDS_SHOWN]) + more,
            "written to": to,
        }),
        "In a request: `parameters.keywords: {method: public, file: " + str(to) + "}`, or `method: hybrid`.",
    ]  # fmt: skip
