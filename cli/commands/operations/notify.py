"""`almoner notify`: channels for notices when something waits for a steward, was skipped or failed."""

from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

import typer
from typing_extensions import TypedDict

from cli.framework.command import CommandContext, CommandResult, command
from cli.framework.tables import table
from flows.notifications import notify
from flows.notifications.channels import Channel, Email, LogChannel, Webhook, channels_of, parse_channel
from models_db.errors import UsageError
from models_db.values.digits import parse_digits
from models_db.values.names import require_plain_name

app = typer.Typer(
    no_args_is_help=True, help="Manage channels of notices (docs/schedules.md): add, list, remove, test, send."
)


class ChannelData(TypedDict):
    """A channel; which other fields it has depends on its kind."""

    channel: str
    kind: Literal["log", "webhook", "email"]
    file: NotRequired[str]
    url: NotRequired[str]
    secret_env: NotRequired[str | None]
    to: NotRequired[list[str]]
    sender: NotRequired[str]
    host: NotRequired[str]
    port: NotRequired[int]
    tls: NotRequired[str]
    user_env: NotRequired[str | None]
    password_env: NotRequired[str | None]
    timeout: NotRequired[int]


class ChannelPosition(ChannelData):
    """A channel with the next link that it will tell of, and its failures in a row."""

    next: int | None
    failures: int


class ChannelRemoved(TypedDict):
    """A channel that was removed."""

    channel: str


class NoticeTested(TypedDict):
    """A test notice that the channel accepted."""

    channel: str
    delivered: bool


class DeliveryData(TypedDict):
    """Notices that a channel sent; `failed` names the error that stopped it, with exit code 3, or is empty."""

    channel: str
    sent: int
    failed: str
    detail: str


Name = Annotated[str, typer.Argument(help="The channel's name.")]
Variable = Annotated[
    str | None,
    typer.Option(
        metavar="VARIABLE", help="Name of the environment variable that holds the value; never the value itself."
    ),
]


@command(app, "add")
def add_channel_command(
    context: CommandContext,
    name: Name,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to which each notice is appended as a line of JSON.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Address to which each notice is sent as JSON in a POST request.")
    ] = None,
    secret_env: Variable = None,
    email: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Recipient of a mail for each notice; may be given several times."),
    ] = None,
    sender: Annotated[
        str | None, typer.Option("--from", metavar="ADDRESS", help="Sender address of the mails.")
    ] = None,
    smtp: Annotated[
        str | None, typer.Option(metavar="HOST[:PORT]", help="Mail server; the default port is 587.")
    ] = None,
    tls: Annotated[
        str | None,
        typer.Option(
            help="Encryption of mail: starttls (default), implicit, or none (only for a server on this machine)."
        ),
    ] = None,
    user_env: Variable = None,
    password_env: Variable = None,
) -> CommandResult[ChannelData]:
    """Add a channel: it gets notices of events from now on, while `almoner serve` runs.

    Example: almoner notify add stewards --webhook https://hooks.example.org/almoner --secret-env HOOK_SECRET
    """
    targets = [each for each in (log, webhook, email) if each]
    if len(targets) != 1:
        raise ChannelTypeConflict
    settings: dict[str, Any] = {"kind": "log", "file": str(log and log.absolute())}
    if webhook:
        settings = {"kind": "webhook", "url": webhook, "secret_env": secret_env}
    if email:
        settings = {"kind": "email", "to": email, "sender": sender, **_parse_server(smtp or ""), "tls": tls,
                "user_env": user_env, "password_env": password_env}  # fmt: skip
    require_plain_name("a channel", name)
    channel = parse_channel(name, {field: value for field, value in settings.items() if value is not None})
    notify.add_channel(context.home, name, channel)
    return CommandResult(
        _channel_to_json(name, channel), [_channel_table({name: channel}), f"Try it: `almoner notify test {name}`."]
    )


def _parse_server(smtp: str) -> dict[str, object]:
    host, colon, port = smtp.rpartition(":")
    return {"host": host, "port": port} if colon and parse_digits(port) is not None else {"host": smtp or None}


@command(app, "list")
def list_all(context: CommandContext) -> CommandResult[list[ChannelPosition]]:
    """List the channels of this home and their positions.

    Example: almoner notify list
    """
    channels, places = channels_of(context.home.require()), notify.channel_progress(context.home)
    data = [
        ChannelPosition(
            **_channel_to_json(name, each),
            next=places[name].next if name in places else None,
            failures=places[name].failures if name in places else 0,
        )
        for name, each in channels.items()
    ]
    return CommandResult(data, [_channel_table(channels)])


@command(app, "remove")
def remove_channel_command(context: CommandContext, name: Name) -> CommandResult[ChannelRemoved]:
    """Remove a channel.

    Example: almoner notify remove stewards
    """
    notify.remove_channel(context.home, name)
    return CommandResult(ChannelRemoved(channel=name), [f"The channel {name!r} is removed."])


@command(app, "test")
def send_test(context: CommandContext, name: Name) -> CommandResult[NoticeTested]:
    """Send a test notice.

    Example: almoner notify test stewards
    """
    notify.send_test_notice(context.home, name)
    return CommandResult(NoticeTested(channel=name, delivered=True), [f"The channel {name!r} accepted the notice."])


@command(app, "send")
def send_waiting(context: CommandContext) -> CommandResult[list[DeliveryData]]:
    """Send all waiting notices now, as `almoner serve` does after each poll.

    Example: almoner notify send
    """
    deliveries = notify.deliver_notices(context.home)
    data = [
        DeliveryData(channel=each.channel, sent=each.sent, failed=each.failed, detail=each.detail)
        for each in deliveries
    ]
    rows = [list(row.values()) for row in data]
    failed = any(each.failed for each in deliveries)
    return CommandResult(data, [table(("channel", "sent", "failed", "told"), rows)], exit_code=3 if failed else 0)


def _channel_to_json(name: str, channel: Channel) -> ChannelData:
    return cast(ChannelData, {"channel": name, **channel.model_dump(mode="json")})


def _channel_table(channels: dict[str, Channel]) -> Any:
    return table(
        ("channel", "kind", "where"), [(name, each.kind, _channel_target(each)) for name, each in channels.items()]
    )


def _channel_target(channel: Channel) -> str:
    match channel:
        case LogChannel():
            return channel.file
        case Webhook():
            return channel.url
        case Email():
            return f"{', '.join(channel.to)} by {channel.host}:{channel.port}"


class ChannelTypeConflict(UsageError):
    """A channel has no destination, or several."""

    def __init__(self) -> None:
        super().__init__(
            "A channel has one destination: a file, an address or a mail.", "Give --log, --webhook or --email."
        )
