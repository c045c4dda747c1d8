"""`notify.yaml` of a home: where notices go. Secrets are named by the environment variables that hold them.

A notice carries numbers, names of datasets and errors, gates and prices, and no text of anybody. It goes to the address
that is written here and nowhere else: no redirect is followed, no proxy of the environment is asked.
"""

import os
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from flows.workspace.yaml_files import read_sections, write_sections
from models_db.errors import EnvironmentProblem, UsageError
from models_db.home import ProjectHome
from models_db.values.requests import FileInvalid, RequestModel, TextLine, describe_problem
from tasks.common.network import Variable, is_loopback

CHANNELS_PAGE = "docs/schedules.md"
CHANNELS_FILE = "notify.yaml"
FILE_HEADER = """\
# Channels of notices (docs/schedules.md). Put no secret here: name the environment variable that holds it.
"""


def _require_web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("it is not an address") from None
    if not host or any(sign.isspace() or not sign.isprintable() for sign in url):
        raise ValueError("an address names a host, and has no spaces")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("an address holds no name, no password and no fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError("an address begins with https://; http:// only on this machine")
    return url


def _require_mailbox(written: str) -> str:
    name, at, host = written.rpartition("@")
    if not (name and at and host) or any(sign.isspace() or sign in "<>,;:\"'" for sign in written):
        raise ValueError("a mail address is name@host")
    return written


Mailbox = Annotated[str, Field(max_length=254), AfterValidator(_require_mailbox)]


class LogChannel(RequestModel):
    """A channel that appends each notice to a file as a line of JSON."""

    kind: Literal["log"] = "log"
    file: TextLine


class Webhook(RequestModel):
    """A channel that sends each notice as JSON in a POST request; with a secret, the body is signed."""

    kind: Literal["webhook"] = "webhook"
    url: Annotated[str, Field(max_length=2000), AfterValidator(_require_web_address)]
    secret_env: Variable | None = None
    timeout: Annotated[int, Field(ge=1, le=60)] = 10


class Email(RequestModel):
    """A channel that sends each notice as a mail."""

    kind: Literal["email"] = "email"
    to: Annotated[tuple[Mailbox, ...], Field(min_length=1, max_length=50)]
    sender: Mailbox
    host: Annotated[TextLine, Field(max_length=253)]
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    user_env: Variable | None = None
    password_env: Variable | None = None
    timeout: Annotated[int, Field(ge=1, le=60)] = 10


Channel = LogChannel | Webhook | Email
_CHANNEL: TypeAdapter[Channel] = TypeAdapter(Annotated[Channel, Field(discriminator="kind")])
_NAME: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")])


def parse_channel(name: str, fields: Mapping[str, object]) -> Channel:
    """Parse one channel of the file.

    Raises:
        FileInvalid: the entry is not a channel; the message does not repeat it.
    """
    try:
        _NAME.validate_python(name)
        channel = _CHANNEL.validate_python(dict(fields))
    except ValidationError as invalid:
        problems = [f"{e['loc'][-1] if e['loc'] else 'name'}: {describe_problem(e['msg'])}" for e in invalid.errors()]
        raise FileInvalid(f"The channel {name!r}", problems, CHANNELS_PAGE) from None
    if isinstance(channel, Email) and channel.tls == "none" and not is_loopback(channel.host):
        raise FileInvalid(f"The channel {name!r}", ["tls: `none` is for this machine only"], CHANNELS_PAGE)
    if isinstance(channel, Email) and (channel.user_env is None) != (channel.password_env is None):
        raise FileInvalid(f"The channel {name!r}", ["user_env and password_env need each other"], CHANNELS_PAGE)
    return channel


def channels_of(home: ProjectHome) -> dict[str, Channel]:
    """Return every channel of a home, by name.

    Raises:
        FileUnreadable, FileInvalid: the file cannot be read, or holds no valid channels.
    """
    return {
        name: parse_channel(name, settings)
        for name, settings in read_sections(home.path_inside(CHANNELS_FILE), "a channel", CHANNELS_PAGE).items()
    }


def write_channels(home: ProjectHome, channels: Mapping[str, Channel]) -> None:
    """Write the channels of a home.

    Raises:
        ChannelsUnwritable: the file cannot be written.
    """
    written = {name: {"kind": each.kind, **each.model_dump(mode="json")} for name, each in channels.items()}
    try:
        write_sections(home.path_inside(CHANNELS_FILE), FILE_HEADER, written)
    except OSError as problem:
        raise ChannelsUnwritable(CHANNELS_FILE, problem.strerror or type(problem).__name__) from None


def read_secret(variable: str) -> str:
    """Return the value of an environment variable that holds a secret.

    Raises:
        SecretMissing: the variable is not set.
    """
    if not (secret := os.environ.get(variable, "")):
        raise SecretMissing(variable)
    return secret


class SecretMissing(EnvironmentProblem):
    """An environment variable that a channel names is not set."""

    def __init__(self, variable: str) -> None:
        super().__init__(
            f"The environment variable {variable} is not set, and a channel needs it.",
            "Set it where `almoner serve` runs; the value is never written down.",
            {"variable": variable},
        )


class ChannelExists(UsageError):
    """The name of the channel is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a channel {name!r} already.", "Choose another name.", {"channel": name})


class ChannelUnknown(UsageError):
    """No channel of that name."""

    def __init__(self, name: str, names: list[str]) -> None:
        advice = f"Known: {', '.join(names)}." if names else "Add one with `almoner notify add`."
        super().__init__(f"There is no channel {name!r}.", advice, {"channel": name})


class ChannelsUnwritable(EnvironmentProblem):
    """The file of channels, or of their positions, cannot be written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} cannot be written: {reason}.", "Check its permissions.", {"path": path})
