"""Access policy of the dashboard: listening address, accepted host names, token and certificate.

On a loopback address nothing is needed; any other takes a token and TLS, and there is no switch around that.
"""

import hashlib
import hmac
import ipaddress
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from models_db.errors import UsageError
from tasks.common.files import open_user_file

DEFAULT_PORT = 8717
SHORTEST_TOKEN = 32
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
HOW_TO_MAKE_ONE = "Make one: `umask 077; openssl rand -hex 32 > FILE`."


@dataclass(frozen=True)
class AccessPolicy:
    """The address of the dashboard and the conditions of access to it.

    Attributes:
        names: the hosts that requests may name; any other is refused (DNS rebinding).
        token: SHA-256 of the token; None admits everybody who reaches the address.
        certificate, key: files for TLS; both None without TLS.
        decides: whether people sign in with their passkeys and decide.
    """

    address: str
    port: int
    names: frozenset[str]
    token: bytes | None = None
    certificate: Path | None = None
    key: Path | None = None
    decides: bool = False

    @property
    def is_secure(self) -> bool:
        """Return whether the dashboard serves over TLS."""
        return self.certificate is not None

    @property
    def url(self) -> str:
        """Return the address for a browser."""
        name = next(
            (name for name in sorted(self.names) if not _is_address(name) and name != "localhost"), self.address
        )
        host = f"[{name}]" if ":" in name else name
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}/"

    @property
    def origin(self) -> str | None:
        """Return the one address at which passkeys sign, as browsers state it; None if browsers let none sign here.

        A passkey belongs to a host's name, never to an address, and without TLS to `localhost` alone.
        """
        names = [name for name in sorted(self.names) if not _is_address(name) and name != "localhost"]
        local = ["localhost"] if "localhost" in self.names else []
        found = (names if self.is_secure else []) + local
        if not found:
            return None
        scheme, usual = ("https", 443) if self.is_secure else ("http", 80)
        return f"{scheme}://{found[0]}" + ("" if self.port == usual else f":{self.port}")

    def allows_host(self, host: str) -> bool:
        """Return whether a Host header names this dashboard: one of `names` with the port, optional on 80 and 443."""
        name, _, port = host.rpartition(":") if _has_port(host) else (host, "", "")
        usual = 443 if self.is_secure else 80
        right_port = port == str(self.port) if port else self.port == usual
        return right_port and name.strip("[]").lower() in self.names

    def accepts_token(self, token: str) -> bool:
        """Return whether `token` is the access token, compared in constant time."""
        token_digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        return self.token is not None and hmac.compare_digest(token_digest, self.token)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].count(":") == 1


@dataclass(frozen=True)
class AccessOptions:
    """The options of `almoner dashboard`."""

    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    token_file: Path | None = None
    token_variable: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    decide: bool = False


def access_policy(options: AccessOptions) -> AccessPolicy:
    """Check the options and return the access policy.

    Raises:
        InvalidListenAddress: the address is no IP address, or it stands for all addresses and has no name.
        TokenRequired, TlsRequired: other machines can reach the address.
        InvalidAccessToken: the token is too short, or others can read its file.
        IncompleteTls: there is a certificate without a key, or a key without a certificate.
        HostNameRequired: people are to decide, and there is no name at which a passkey could sign.
    """
    try:
        address = ipaddress.ip_address("127.0.0.1" if options.address == "localhost" else options.address)
    except ValueError:
        raise _invalid_listen_address(options.address, "is not an IP address") from None
    if (options.certificate is None) != (options.key is None):
        raise UsageError(
            "TLS needs a certificate and its key.", "Give both: --tls-cert FILE --tls-key FILE.", code="IncompleteTls"
        )
    token = _read_token(options)
    if not address.is_loopback:
        if token is None:
            raise UsageError(
                f"Other machines reach {options.address}, so the dashboard needs a token there.",
                f"Name its file with --token-file FILE, or a variable with --token-env NAME. {HOW_TO_MAKE_ONE}",
                {"address": options.address},
                code="TokenRequired",
            )
        if options.certificate is None:
            raise UsageError(
                f"Other machines reach {options.address}, so the dashboard needs TLS there.",
                "Name a certificate and its key: --tls-cert FILE --tls-key FILE. Or listen on 127.0.0.1.",
                {"address": options.address},
                code="TlsRequired",
            )
    if address.is_unspecified and not options.names:
        raise _invalid_listen_address(options.address, "stands for every address of this machine, so a name is needed")
    names = {name.lower() for name in options.names} | ({*LOOPBACK_NAMES} if address.is_loopback else set())
    if not address.is_unspecified:
        names.add(str(address))
    made = AccessPolicy(
        str(address), options.port, frozenset(names), token, options.certificate, options.key, options.decide
    )
    if made.decides and made.origin is None:
        raise UsageError(
            f"A passkey signs at the name of a host, and {options.address!r} is none.",
            "Give the name under which browsers reach the dashboard: --name ledger.example.org.",
            {"address": options.address},
            code="HostNameRequired",
        )
    return made


def _read_token(options: AccessOptions) -> bytes | None:
    if options.token_file is not None and options.token_variable is not None:
        raise _invalid_access_token("is named twice, as a file and as a variable")
    if options.token_file is not None:
        return _token_digest(_read_private_file(options.token_file))
    if options.token_variable is not None:
        return _token_digest(os.environ.get(options.token_variable, ""))
    return None


def _read_private_file(path: Path) -> str:
    """Read a file, and refuse it if others can read it too."""
    try:
        with open_user_file(path) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise _invalid_access_token(f"is in {path}, which others can read; `chmod 600` it")
            return file.read(4096).decode("ascii", "replace")
    except OSError as problem:
        raise _invalid_access_token(
            f"cannot be read from {path}: {problem.strerror or type(problem).__name__}"
        ) from None


def _token_digest(written: str) -> bytes:
    token = written.strip()
    if len(token) < SHORTEST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise _invalid_access_token(f"has to have at least {SHORTEST_TOKEN} ASCII characters without spaces")
    return hashlib.sha256(token.encode()).digest()


def _invalid_listen_address(address: str, why: str) -> UsageError:
    return UsageError(
        f"{address!r} {why}.",
        "Give an address of this machine, such as 127.0.0.1, and with --name the host name that browsers use.",
        {"address": address},
        code="InvalidListenAddress",
    )


def _invalid_access_token(why: str) -> UsageError:
    # It never repeats the token.
    return UsageError(f"The token {why}.", HOW_TO_MAKE_ONE, code="InvalidAccessToken")
