"""`almoner models endpoint`: models behind an API that requests can name as `external:NAME`."""

from typing import Annotated, Any, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import table
from flows.workspace.endpoints import add_endpoint, endpoints_of, parse_endpoint, remove_endpoint
from models_db.values.requests import model_to_json
from models_db.values.untrusted_text import require_plain_name
from tasks.common.network import PREFIX
from tasks.inference.backends.endpoints import Endpoint

app = typer.Typer(
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


@command(app, "add")
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


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[EndpointData]]:
    """List the endpoints of this home.

    Example: almoner models endpoint list
    """
    endpoints = list(endpoints_of(context.home.require()).values())
    return CommandResult([_endpoint_to_json(each) for each in endpoints], [_endpoint_table(endpoints)])


@command(app, "remove")
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
