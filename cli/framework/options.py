"""Options and arguments of many commands."""

from pathlib import Path
from typing import Annotated

import typer

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Project home (default: ALMONER_HOME, else ~/.almoner).", show_default=False),
]
DatasetName = Annotated[str, typer.Argument(help="The dataset's name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
PriceDetails = Annotated[bool, typer.Option("--details", help="Show all parameters, balances and digests too.")]
ReviewDetails = Annotated[bool, typer.Option("--details", help="Show mechanisms, digests and all parameters too.")]
