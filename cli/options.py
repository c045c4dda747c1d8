"""The options that every command has."""

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Project home (default: ALMONER_HOME, else ~/.almoner).", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
