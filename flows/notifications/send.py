"""Delivery of one notice through one channel: a line in a file, a signed POST, or a mail."""

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.notifications.channels import Channel, Email, LogChannel, Webhook, read_secret
from models_db.errors import EnvironmentProblem
from models_db.values.canonical_json import Json, encode_canonical
from tasks.common.files import FileUnfit, open_regular_file

if TYPE_CHECKING:
    from smtplib import SMTP

SIGNATURE_HEADER = "X-Almoner-Signature"
NUMBER_HEADER = "X-Almoner-Notice"


def send_notice(channel: Channel, notice: Mapping[str, Json]) -> None:
    """Send a notice; it has arrived when the function returns.

    Raises:
        NotDelivered: the notice has not arrived, or its arrival is unknown.
        SecretMissing: a variable with a secret is not set.
    """
    match channel:
        case LogChannel():
            _write_line(channel, notice)
        case Webhook():
            _post_notice(channel, notice)
        case Email():
            _mail_notice(channel, notice)


def subject_of(notice: Mapping[str, Json]) -> str:
    """Return a notice in one line."""
    place = f" of {notice['dataset']}" if notice.get("dataset") else ""
    about = ", ".join(
        f"{name} {notice[name]}" for name in ("request", "proposal", "schedule", "gate") if name in notice
    )
    return f"almoner: {notice['event']}{place}" + (f" ({about})" if about else "")


def _write_line(channel: LogChannel, notice: Mapping[str, Json]) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe without a reader waits
        descriptor = os.open(channel.file, flags, 0o600)
        with open(descriptor, "ab") as file:
            file.write(b"\n" * _ends_mid_line(channel) + encode_canonical(dict(notice)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise NotDelivered(channel.kind, problem.strerror or type(problem).__name__) from None


def _ends_mid_line(channel: LogChannel) -> bool:
    """Return whether the file ends in a partial line, as a full disk leaves it: nothing may be appended to that."""
    with suppress(OSError, FileUnfit), open_regular_file(Path(channel.file)) as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
    return False  # there is no line yet, or it is no file


def _post_notice(channel: Webhook, notice: Mapping[str, Json]) -> None:
    import httpx  # only channels need it

    body = encode_canonical(dict(notice))
    headers = {"Content-Type": "application/json", NUMBER_HEADER: str(notice["notice"])}
    if channel.secret_env is not None:
        key = read_secret(channel.secret_env).encode()
        headers[SIGNATURE_HEADER] = f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"
    try:
        with httpx.Client(timeout=channel.timeout, follow_redirects=False, trust_env=False) as client:
            answer = client.post(channel.url, content=body, headers=headers)
    except httpx.HTTPError as problem:
        raise NotDelivered(channel.kind, type(problem).__name__) from None  # its text may repeat the address
    if not answer.is_success:
        raise NotDelivered(channel.kind, f"it answered {answer.status_code}")


def _mail_notice(channel: Email, notice: Mapping[str, Json]) -> None:
    from email.message import EmailMessage  # only channels need these
    from smtplib import SMTPException

    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = subject_of(notice), channel.sender, ", ".join(channel.to)
    message["Message-ID"] = f"<{notice['notice']}.{notice['ledger']}@almoner>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(json.dumps(dict(notice), indent=2, sort_keys=True) + "\n")
    try:
        with _mail_connection(channel) as server:
            if channel.user_env is not None and channel.password_env is not None:
                server.login(read_secret(channel.user_env), read_secret(channel.password_env))
            server.send_message(message)
    except (OSError, SMTPException) as problem:  # ssl.SSLError is an OSError
        raise NotDelivered(channel.kind, type(problem).__name__) from None


def _mail_connection(channel: Email) -> "SMTP":
    import smtplib
    import ssl

    if channel.tls == "implicit":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(channel.host, channel.port, timeout=channel.timeout, context=context)
    server = smtplib.SMTP(channel.host, channel.port, timeout=channel.timeout)
    if channel.tls == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server


class NotDelivered(EnvironmentProblem):
    """The channel did not accept a notice."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(
            f"The {kind} channel did not accept a notice: {reason}.",
            "almoner sends it again later. Test the channel: `almoner notify test NAME`.",
            {"kind": kind, "reason": reason},
        )
