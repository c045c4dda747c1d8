"""`almoner models`: list, check, pull, add and remove models; endpoints of models behind an API."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, cast

import typer
from rich.console import RenderableType
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.progress import progress_bar
from cli.framework.tables import fact_list, table
from flows.workspace.endpoints import add_endpoint, endpoints_of, parse_endpoint, remove_endpoint
from models_db.values.requests import ReleaseRequest, model_to_json
from models_db.values.untrusted_text import require_plain_name
from tasks.common import progress
from tasks.common.network import PREFIX
from tasks.inference.backends.endpoints import Endpoint
from tasks.inference.catalogue.model_check import PRECISIONS, Machine, ModelCheck, NetworkShape, Precision, RowSizes
from tasks.inference.catalogue.model_store import size_text

if TYPE_CHECKING:
    from tasks.inference.engine.memory import Requirements


endpoint_app = typer.Typer(
    no_args_is_help=True, help="Manage models behind an API (docs/external-models.md): add, list, remove."
)


class EndpointData(TypedDict):
    """An endpoint of a model behind an API; prices are for a million tokens."""

    name: str
    url: str
    model: str
    licence: str
    key_env: str | None
    allow_http: bool
    proxy: str | None
    ca_file: str | None
    token_limit: str
    per_minute: int | None
    tokens_per_minute: int | None
    at_once: int
    timeout: int
    attempts: int
    price_in: str | None
    price_out: str | None
    currency: str
    sha256: str


Name = Annotated[str, typer.Argument(help="Name of the endpoint; requests write `model: external:NAME`.")]


@command(endpoint_app, "add")
def add_endpoint_command(
    context: CommandContext,
    name: Name,
    url: Annotated[str, typer.Option(help="Base address without `/chat/completions`, such as https://host/v1.")],
    model: Annotated[str, typer.Option(help="Name of the model at the endpoint.")],
    key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE", help="Name of the environment variable that holds the API key; never the key itself."
        ),
    ] = None,
    licence: Annotated[
        str | None, typer.Option(help="Licence of the texts that the model writes, printed on the card.")
    ] = None,
    price_in: Annotated[
        str | None, typer.Option(metavar="P", help="Price of a million tokens of prompts, for cost estimates.")
    ] = None,
    price_out: Annotated[
        str | None, typer.Option(metavar="P", help="Price of a million tokens of answers, for cost estimates.")
    ] = None,
    currency: Annotated[str | None, typer.Option(help="Currency of both prices (default: USD).")] = None,
    per_minute: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of requests per minute (default: no limit).")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of tokens per minute (default: no limit).")
    ] = None,
    at_once: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of concurrent requests (default: 4).")
    ] = None,
    timeout: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Time limit of one answer (default: 120).")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(metavar="N", help="Largest number of attempts at one answer (default: 5).")
    ] = None,
    token_limit: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Request field that limits the answer: max_tokens (default) or max_completion_tokens."
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Proxy to use (default: none). Proxies of the environment are never used."),
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Certificates to trust in place of certifi's.")
    ] = None,
    allow_http: Annotated[
        bool,
        typer.Option(
            "--allow-http",
            help="Allow plain HTTP to another machine. Anyone on the network path can read prompts, answers and key.",
        ),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing endpoint of the same name.")] = False,
) -> CommandResult[EndpointData]:
    """Add an endpoint of OpenAI's chat completions that requests can name. Sends nothing to it yet.

    Example: almoner models endpoint add office --url https://llm.example.org/v1 --model qwen3-32b --key-env OFFICE_KEY
    """
    settings: dict[str, Any] = {
        "url": url, "model": model, "key_env": key_env, "licence": licence, "price_in": price_in,
        "price_out": price_out, "currency": currency, "per_minute": per_minute,
        "tokens_per_minute": tokens_per_minute, "at_once": at_once, "timeout": timeout, "attempts": attempts,
        "token_limit": token_limit, "proxy": proxy, "ca_file": ca_file, "allow_http": allow_http or None,
    }  # fmt: skip
    require_plain_name("an endpoint", name)
    endpoint = parse_endpoint(name, {field: value for field, value in settings.items() if value is not None})
    add_endpoint(context.home, endpoint, replace=replace)
    sentence = f"Requests can name it as `model: {PREFIX}{name}`, with mechanisms that send it only released values."
    return CommandResult(_endpoint_to_json(endpoint), [_endpoint_table([endpoint]), sentence])


@command(endpoint_app, "list")
def list_endpoints(context: CommandContext) -> CommandResult[list[EndpointData]]:
    """List the endpoints of this home.

    Example: almoner models endpoint list
    """
    endpoints = list(endpoints_of(context.home.require()).values())
    return CommandResult([_endpoint_to_json(each) for each in endpoints], [_endpoint_table(endpoints)])


@command(endpoint_app, "remove")
def remove_endpoint_command(context: CommandContext, name: Name) -> CommandResult[EndpointData]:
    """Remove an endpoint; requests that name it can then neither be priced nor run.

    Example: almoner models endpoint remove office
    """
    return CommandResult(_endpoint_to_json(remove_endpoint(context.home, name)), [f"The endpoint {name!r} is removed."])


def _endpoint_to_json(endpoint: Endpoint) -> EndpointData:
    fields = {name: model_to_json(getattr(endpoint, name)) for name in Endpoint.model_fields}
    return cast(EndpointData, {**fields, "sha256": endpoint.digest})


def _endpoint_table(endpoints: list[Endpoint]) -> Any:
    columns = ("name", "model", "address", "key from", "licence", "a million tokens in / out", "SHA-256")
    return table(columns, [_endpoint_row(each) for each in endpoints])


def _endpoint_row(endpoint: Endpoint) -> tuple[str, ...]:
    prices = "not declared"
    if endpoint.price_in is not None:
        prices = f"{endpoint.price_in} / {endpoint.price_out} {endpoint.currency}"
    key = endpoint.key_env or "no key"
    return endpoint.name, endpoint.model, endpoint.url, key, endpoint.licence, prices, endpoint.digest[:16]


app = typer.Typer(no_args_is_help=True, help="Manage models: list, check, pull, add, remove, endpoint.")
app.add_typer(endpoint_app, name="endpoint")


class ModelRow(TypedDict):
    """A model or embedder; `installed` is yes or no, and `usable` says where it can run."""

    name: str
    source: str
    licence: str
    installed: str
    usable: str
    note: str


class RequirementsData(TypedDict):
    """Memory and disk that a model needs, in bytes; `fits` by precision."""

    device: str
    sizes: RowSizes
    weights: dict[str, int]
    generation: dict[str, int]
    generations_at_once: dict[str, int]
    free_memory: int
    usable_memory: dict[str, int]
    download: int
    free_disk: int
    fits: dict[str, bool]


class ModelCheckData(TypedDict):
    """What `models check` found; exit code 1 if it cannot be used here. Problems are empty if there are none."""

    name: str
    problem: str
    template_problem: str
    conversation_tokens: int
    missing: dict[str, str]
    shape: NetworkShape | None
    machine: Machine | None
    group: Machine | None
    usable: bool
    fits: bool
    precisions: list[str]
    verdict: str
    requirements: NotRequired[RequirementsData]


class ModelPulled(TypedDict):
    """A model whose files are on this machine."""

    model: str
    sha256: str | None
    licence: str


class ModelRemoved(TypedDict):
    """A model that is no longer listed; its folder stays, unless almoner made it."""

    model: str
    folder: str


DEFAULT_MODEL = "smollm2-135m-instruct"


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[ModelRow]]:
    """List the language models that a request can name, and the embedders of metrics.

    Example: almoner models list
    """
    from tasks.inference.catalogue.registry import list_models
    from tasks.inference.loading.check_model import usability_of

    data = [
        ModelRow(
            name=model.name,
            source=model.source,
            licence=model.licence,
            installed="yes" if model.installed else "no",
            usable=usability_of(model).line,
            note=model.note,
        )
        for model in list_models()
    ]
    columns = ("name", "source", "licence", "installed", "usable", "note")
    return CommandResult(data, [table(columns, [list(row.values()) for row in data])])


@command(app, "check")
def check_model_command(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="A model of `almoner models list`, or `org/name@<commit>`.")],
    request: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Request whose sizes are used for the memory of its rows.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Device that would run the model: auto, cpu, cuda, cuda:N or cuda:A-B.")
    ] = "auto",
) -> CommandResult[ModelCheckData]:
    """Check that a model can be used on this machine: architecture, chat template, precisions, memory. Exit code 1: no.

    A model need not be here: of a Hugging Face model only its settings are fetched, not its weights.

    Example: almoner models check qwen2.5-coder-1.5b-instruct
    """
    from tasks.inference.catalogue.devices import choose_devices
    from tasks.inference.catalogue.registry import SUPPORTED, note_of
    from tasks.inference.engine.memory import machine_of, requirements_of
    from tasks.inference.loading.download import check_named

    sizes = RowSizes() if request is None else _row_sizes(request)
    where = choose_devices(device)
    with progress_bar(context):
        check = check_named(name)
    machine = machine_of(where)
    fits = check.shortage(machine, sizes, check.precisions) is None
    verdict = check.verdict_on(machine, sizes)
    data = cast(ModelCheckData, {**check.to_json(), "verdict": verdict, "fits": fits})
    lines: list[RenderableType] = [f"{name}: {verdict}"]
    if check.shape is not None:
        needs = requirements_of(check.shape, where, sizes)
        data["requirements"] = _requirements_data(needs)
        lines.append(
            fact_list(_shape_facts(check, check.shape, needs) | ({"note": note} if (note := note_of(name)) else {}))
        )
    lines += [f"Not in {precision}: {reason}." for precision, reason in check.missing.items()]
    if not check.usable:
        lines.append(SUPPORTED)
    return CommandResult(data, lines, exit_code=0 if check.usable and fits else 1)


def _requirements_data(needs: "Requirements") -> RequirementsData:
    return RequirementsData(
        device=needs.device,
        sizes=needs.sizes,
        weights=_by_precision(needs.weights),
        generation=_by_precision(needs.generation),
        generations_at_once=_by_precision(needs.generations_at_once),
        free_memory=needs.free_memory,
        usable_memory=_by_precision(needs.usable_memory),
        download=needs.download,
        free_disk=needs.free_disk,
        fits={each: needs.fits(each) for each in PRECISIONS},
    )


def _by_precision(sizes: Mapping[Precision, int]) -> dict[str, int]:
    return {str(precision): size for precision, size in sizes.items()}


def _row_sizes(request: Path) -> RowSizes:
    from flows.workspace.yaml_files import read_fields

    parameters = read_fields(request, str(request), ReleaseRequest.model_fields).get("parameters")
    return RowSizes.of(parameters if isinstance(parameters, dict) else {})


def _shape_facts(check: ModelCheck, shape: NetworkShape, needs: "Requirements") -> dict[str, object]:
    usable = check.precisions
    return {
        "architecture": f"{shape.architecture}, {shape.layers} layers, {_millions(shape.parameters)} parameters",
        "attention": f"{shape.heads} heads on {shape.key_value_heads} of keys and values; {shape.attention}",
        "positions": f"rotary: {shape.rotary}; {shape.context:,} tokens of context",
        "chat template": check.template_problem or "yes",
        "row isolation": "every module acts on each row by itself; the device is measured before each run",
        "precision": ", ".join(usable),
        "files": f"{size_text(needs.download)}; {size_text(needs.free_disk)} of disk free",
        "weights": ", ".join(f"{size_text(needs.weights[each])} in {each}" for each in usable),
        "keys and values": (
            f"{size_text(needs.generation[usable[0]])} for each text at once ({needs.sizes}); "
            f"about {needs.generations_at_once[usable[0]]} at once"
        ),
        "memory": _memory_line(needs, usable),
    }


def _memory_line(needs: "Requirements", usable: Sequence[Precision]) -> str:
    free = f"{size_text(needs.free_memory)} free on {needs.device}"
    fitting = [precision for precision in usable if needs.fits(precision)]
    if len(fitting) == len(usable):
        return f"{free}: enough"
    if not fitting:
        return f"{free}: NOT ENOUGH for the weights and one text"
    return f"{free}: enough in {' and '.join(fitting)} only"


def _millions(number: int) -> str:
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.1f} M"


@command(app, "pull")
def pull_model(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="A model from `almoner models list`.")] = DEFAULT_MODEL,
) -> CommandResult[ModelPulled]:
    """Download a model, check its SHA-256 and unpack it into the cache. Needed once per machine.

    Of a Hugging Face model with a branch, such as org/name@main, it says the commit: requests name that one.

    Example: almoner models pull qwen2.5-coder-1.5b-instruct
    """
    from tasks.inference.loading.download import pull as fetch

    context.print_progress(f"Fetching {name} if it is not here yet.")
    with progress_bar(context):
        model = fetch(name, progress.report)
    return CommandResult(
        ModelPulled(model=model.name, sha256=model.digest, licence=model.licence),
        [f"{model.name} is ready; its files have SHA-256 {model.digest}.", f"Its licence: {model.licence}."],
    )


@command(app, "add")
def add_model_command(
    context: CommandContext,
    name: Annotated[str, typer.Argument(help="Name for requests: small letters, digits, hyphens.")],
    path: Annotated[Path, typer.Argument(metavar="FOLDER|FILE.gguf", help="Folder of safetensors, or a GGUF file.")],
    licence: Annotated[str, typer.Option(help="Licence of the model, printed on cards.")],
    adapter: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="LoRA adapter in PEFT's format, added to the weights.")
    ] = None,
) -> CommandResult[ModelCheckData]:
    """Add a model from this machine, such as one without a network. A folder of safetensors stays where it is.

    Example: almoner models add granite /srv/models/granite-3.3-2b --licence Apache-2.0
    """
    from tasks.inference.loading.add_model import add_model

    with progress_bar(context):
        check = add_model(name, path, licence, adapter, progress.report)
    data = cast(ModelCheckData, check.to_json())
    return CommandResult(data, [f"{name} is added: {check.verdict}.", f"See: almoner models check {name}"])


@command(app, "remove")
def remove_model_command(
    context: CommandContext, name: Annotated[str, typer.Argument(help="Name of a model that was added.")]
) -> CommandResult[ModelRemoved]:
    """Remove a model that was added from this machine; requests that name it can then not run. Your folder stays.

    Example: almoner models remove granite
    """
    from tasks.inference.loading.add_model import remove_model

    model = remove_model(name)
    return CommandResult(ModelRemoved(model=name, folder=str(model.folder)), [f"{name} is removed."])
