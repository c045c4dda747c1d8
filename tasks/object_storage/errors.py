"""Errors of object stores, each under its own name.

What libraries say is never passed on: their words quote requests, and those hold names of keys and people. An error of
ours names the address, which is public, and what the store meant.

    StoreExtraMissing   (3) the packages are not installed
    StoreUnreachable    (3) no answer, or not over a connection that can be trusted
    StoreDenied         (3) no credentials, or not enough of them
    BucketMissing       (3)
    StoreFailed         (3) anything else it answers, with its code
    ObjectChanged       (1) another object under the name than a moment ago
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from models_db.errors import EnvironmentProblem, Refused
from tasks.object_storage.address import Address

_DENIED = {
    "AccessDenied", "AllAccessDisabled", "AccountProblem", "AuthorizationHeaderMalformed", "ExpiredToken", "Forbidden",
    "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
    "401", "403",
}  # fmt: skip
_CHANGED = {"PreconditionFailed", "412", "NoSuchKey", "404"}
_NOT_ASKED = {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "SSOTokenLoadError",
              "UnauthorizedSSOTokenError", "CredentialRetrievalError"}  # fmt: skip
_TLS = {"SSLError", "ClientConnectorCertificateError", "ClientConnectorSSLError", "SSLCertVerificationError"}
_CODE = re.compile(r"[A-Za-z0-9._-]{1,60}")


@contextmanager
def named(address: Address) -> Iterator[None]:
    """Whatever a library raises inside becomes an error of ours.

    Raises:
        ObjectChanged: it is no longer there, or another one.
        StoreUnreachable, StoreDenied, BucketMissing, StoreFailed.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ConfigNotFound, ProfileNotFound
    from s3fs.utils import FileExpired

    try:
        yield
    except (ClientError, BotoCoreError, OSError, TimeoutError) as problem:
        if isinstance(problem, ProfileNotFound | ConfigNotFound):
            raise StoreDenied(address, "there is no such profile") from None
        if isinstance(problem, FileExpired):
            raise ObjectChanged(address) from None
        code = code_of(problem)
        raise (_unanswered(address, problem) if code is None else _answered(address, code)) from None


def code_of(problem: BaseException | None) -> str | None:
    """What a store answered with, as S3 calls it; None if there was no answer."""
    while problem is not None:
        response = getattr(problem, "response", None)
        if isinstance(response, dict):
            found = str(response.get("Error", {}).get("Code", ""))
            return found if _CODE.fullmatch(found) else "unknown"
        problem = problem.__cause__
    return None


def _answered(address: Address, code: str) -> EnvironmentProblem | Refused:
    if code in _DENIED:
        return StoreDenied(address, "the store does not allow it")
    if code == "NoSuchBucket":
        return BucketMissing(address)
    if code in _CHANGED:
        return ObjectChanged(address)
    return StoreFailed(address, f"it answers {code}")


def _unanswered(address: Address, problem: BaseException) -> EnvironmentProblem:
    kinds = {type(one).__name__ for one in _chain(problem)}
    if kinds & _NOT_ASKED:
        return StoreDenied(address, "there are no credentials")
    if kinds & _TLS:
        return StoreUnreachable(address, "its certificate is not one to be trusted")
    return StoreUnreachable(address, "no answer")


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        inner = getattr(problem, "kwargs", {}).get("error")  # where botocore keeps what it was told
        problem = inner if isinstance(inner, BaseException) else problem.__cause__ or problem.__context__


class StoreExtraMissing(EnvironmentProblem):
    """The packages that speak with stores are not there."""

    def __init__(self) -> None:
        super().__init__(
            "s3:// addresses need packages that are not installed.",
            "Install them with `pip install 'almoner[s3]'`.",
            {"extra": "s3"},
        )


class StoreUnreachable(EnvironmentProblem):
    """No answer from a store, or none that can be trusted."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            f"The store of {address} cannot be reached: {reason}.",
            f"Check the name {address.bucket!r}: what stores.yaml does not name is looked for at Amazon."
            " Then check its endpoint_url, proxy and ca_file there (docs/stores.md), and give the command again.",
            {"address": str(address), "reason": reason},
        )


class EndpointUnsafe(EnvironmentProblem):
    """The environment names an endpoint where others could read what is sent."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"The store of {address} would be reached over plain http, which anybody on the network can read.",
            "Use https. Plain http goes to this machine alone.",
            {"address": str(address)},
        )


class StoreDenied(EnvironmentProblem):
    """A store that lets us not in, or not do this."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            f"Access to {address} is denied: {reason}.",
            "Check the credentials of this session and the rights on the bucket; docs/stores.md lists what is needed.",
            {"address": str(address), "reason": reason},
        )


class CredentialsUnset(EnvironmentProblem):
    """A variable that is to hold a secret, and does not."""

    def __init__(self, address: Address, variable: str) -> None:
        super().__init__(
            f"The variable {variable}, named for the bucket of {address}, is not set.",
            f"Set {variable} in the environment of this command.",
            {"address": str(address), "variable": variable},
        )


class BucketMissing(EnvironmentProblem):
    """No such bucket."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"There is no bucket {address.bucket!r}.",
            "Check its name and endpoint_url; what stores.yaml does not name is looked for at Amazon."
            " almoner makes no buckets.",
            {"bucket": address.bucket},
        )


class StoreFailed(EnvironmentProblem):
    """A store that answers with an error of another kind."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            f"The store of {address} does not support this: {reason}.",
            "Try again later; if it stays, the store's own log says more.",
            {"address": str(address), "reason": reason},
        )


class ObjectChanged(Refused):
    """An object that was replaced or removed while it was used."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address} was changed or removed while it was read.",
            "Wait until nothing writes to it, then give the command again.",
            {"address": str(address)},
        )
