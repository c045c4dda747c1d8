"""`almoner adapter`: public functions between hidden states and soft tokens, for one-shot summaries."""

from pathlib import Path
from typing import Annotated, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.commands.models.models import DEFAULT_MODEL
from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import fact_list, table
from models_db.values.requests import parse_model
from models_db.values.untrusted_text import require_plain_name
from tasks.adapters.metadata import AdapterMeta, AdapterWording, Fit, KnownAdapter, TrainingSet
from tasks.adapters.store import CURVE, adapter_folder, find_adapter, list_adapters
from tasks.adapters.training.data import DESCRIPTION, Called, TrainingSettings

app = typer.Typer(no_args_is_help=True, help="Manage adapters of one-shot summaries: train, list, show.")


class AdapterData(TypedDict):
    """An adapter without its tensors."""

    digest: str
    format: str
    name: str
    model: str
    model_revision: str
    model_digest: str
    width: int
    dimensions: int
    centres: int
    soft_tokens: int
    words: int
    hidden_units: int
    clip_norm: str
    noise_least: str
    noise_most: str
    max_reference_tokens: int
    wording: AdapterWording
    training: TrainingSet
    seed: int
    fit: Fit
    folder: str


ADAPTERS_PAGE = "docs/adapters.md"
DIGEST_CHARACTERS = 12
"""Digits of a digest in a table."""


@command(app, "train")
def train_adapter(
    context: CommandContext,
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="PUBLIC training examples: documents and their summary.")
    ],
    name: Annotated[str, typer.Option(help="Name of the adapter: small letters, digits, hyphens.")],
    licence: Annotated[str, typer.Option(help="Licence of the examples, stored with the adapter.")],
    model: Annotated[str, typer.Option(help="Language model that the adapter is trained for.")] = DEFAULT_MODEL,
    soft_tokens: Annotated[int, typer.Option(help="Number of soft tokens that stand for a group.")] = 16,
    words: Annotated[
        int | None,
        typer.Option(help="Number of soft tokens that are words for the mean. Default: half of all, at most 8."),
    ] = None,
    dimensions: Annotated[int, typer.Option(help="Coordinates of a document's vector. 0: whole hidden states.")] = 64,
    centres: Annotated[
        int,
        typer.Option(help="Number of public centres, each with a mean of its own. More centres suit diverse groups."),
    ] = 1,
    steps: Annotated[
        int, typer.Option(help="Largest number of training steps; early stopping may end the training sooner.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="Seed of all random choices of the training.")] = 0,
    noise: Annotated[bool, typer.Option("--noise/--no-noise", help="Train on means with or without noise.")] = True,
    precision: Annotated[str, typer.Option(help="Precision of the frozen model: float32 or bfloat16.")] = "bfloat16",
    description: Annotated[str, typer.Option(help="Description of the text for the model to write.")] = DESCRIPTION,
    anew: Annotated[
        bool, typer.Option("--anew", help="Discard an interrupted training of the same name and start over.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device that runs the model: auto, cpu or cuda.")] = "auto",
) -> CommandResult[AdapterData]:
    """Train an adapter on public examples. After Ctrl-C the same command continues from the last checkpoint.

    Training charges no budget, so the file must hold no text of a governed dataset (docs/adapters.md).

    Example: almoner adapter train reviews.jsonl --name reviews --licence "CC BY 4.0" --steps 200
    """
    written = {
        "soft_tokens": soft_tokens,
        "words": min(8, soft_tokens // 2) if words is None else words,
        "dimensions": dimensions,
        "centres": centres,
        "steps": steps,
        "seed": seed,
        "precision": precision,
        **({} if noise else {"noise_least": 0, "noise_most": 0}),
    }
    require_plain_name("an adapter", name)
    settings = parse_model(TrainingSettings, written, "The training", ADAPTERS_PAGE)
    called = parse_model(Called, {"name": name, "licence": licence}, "The training", ADAPTERS_PAGE)
    from tasks.adapters.training.train import TrainingRequest, train_adapter

    with progress_bar(context):
        trained = train_adapter(
            file, TrainingRequest(called.name, model, called.licence, settings, description), device, anew=anew
        )
    return CommandResult(_adapter_to_json(trained), _adapter_page(trained))


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[AdapterData]]:
    """List the adapters of this machine.

    Example: almoner adapter list --json
    """
    adapters = list_adapters(lambda problem: context.print_progress(str(problem), problem.advice))
    rows = [
        (
            each.meta.name,
            each.digest[:DIGEST_CHARACTERS],
            each.meta.model,
            _size_text(each.meta),
            each.meta.training.file,
        )
        for each in adapters
    ]
    columns = ("name", "digest", "model", "size", "trained on")
    return CommandResult([_adapter_to_json(each) for each in adapters], [table(columns, rows)])


@command(app, "show")
def show_adapter(
    context: CommandContext,
    adapter: Annotated[
        str, typer.Argument(metavar="NAME_OR_DIGEST", help="Name, digest or beginning of the digest of the adapter.")
    ],
) -> CommandResult[AdapterData]:
    """Show an adapter: purpose, training data, quality.

    Example: almoner adapter show reviews
    """
    shown = find_adapter(adapter)
    return CommandResult(_adapter_to_json(shown), _adapter_page(shown))


def _adapter_to_json(adapter: KnownAdapter) -> AdapterData:
    folder = str(adapter_folder(adapter.digest))
    return cast(AdapterData, {"digest": adapter.digest, **adapter.meta.model_dump(), "folder": folder})


def _adapter_page(adapter: KnownAdapter) -> list[RenderableType]:
    meta = adapter.meta
    fit, trained = meta.fit, meta.training
    noise = "none" if not meta.noise_most else f"{meta.noise_least} to {meta.noise_most} clip norms per coordinate"
    return [
        fact_list({
            "name": meta.name,
            "digest": adapter.digest,
            "model": f"{meta.model} ({meta.model_digest[:DIGEST_CHARACTERS]})",
            "size": _size_text(meta),
            "clip norm": meta.clip_norm,
            "noise in training": noise,
            "writes": meta.wording.description,
            "trained on": f"{trained.file} ({trained.sha256[:DIGEST_CHARACTERS]}), {trained.licence}",
            "examples": trained.examples,
            "groups": f"{trained.learned_groups} for training, {trained.held_out_groups} held out",
            "steps": f"{fit.best_step} of {fit.steps}",
            "held-out loss": f"{fit.first_loss} at first, {fit.best_loss} at last (nats per token)",
            "without noise": f"{fit.clean_loss}; without the group: {fit.blind_loss}",
            "loss curve": adapter_folder(adapter.digest) / CURVE,
        }),
    ]  # fmt: skip


def _size_text(meta: AdapterMeta) -> str:
    centres = "" if meta.centres == 1 else f" x {meta.centres} centres"
    tokens = f"{meta.soft_tokens} soft tokens, {meta.words} of them words"
    return f"{meta.dimensions} of {meta.width} dimensions{centres}, {tokens}"
