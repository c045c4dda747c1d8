"""Errors of object stores, each under its own name.

Messages of libraries are never passed on: they quote requests, and those hold names of keys and people. The errors here
name the address, which is public, and the kind of failure.

    StoreExtraMissing   (3) the packages are not installed
    StoreUnreachable    (3) no answer, or not over a connection that can be trusted
    StoreDenied         (3) no credentials, or not enough of them
    BucketMissing       (3)
    StoreFailed         (3) any other error of the store, with its code
    ObjectChanged       (1) another object under the name than a moment ago
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from models_db.errors import EnvironmentProblem, Refused
from tasks.object_storage.address import AZURE, GOOGLE, S3, Address

_DENIED = {
    "AccessDenied", "AllAccessDisabled", "AccountProblem", "AuthorizationHeaderMalformed", "ExpiredToken", "Forbidden",
    "InvalidAccessKeyId", "InvalidSecurity", "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch",
    "401", "403",
}  # fmt: skip
_CHANGED = {"PreconditionFailed", "412", "NoSuchKey", "404"}
_BUSY = {"408", "429", "500", "502", "503", "504"}
_NOT_ASKED = {"NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError", "SSOTokenLoadError",
              "UnauthorizedSSOTokenError", "CredentialRetrievalError", "CredentialUnavailableError",
              "ClientAuthenticationError"}  # fmt: skip
_TLS = {"SSLError", "ClientConnectorCertificateError", "ClientConnectorSSLError", "SSLCertVerificationError"}
_CODE = re.compile(r"[A-Za-z0-9._-]{1,60}")


class StoreAnswer(OSError):
    """Answer of a store that is an error, by its code; in the form in which botocore gives it."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


@contextmanager
def translate_store_errors(address: Address, libraries: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Translate the errors that libraries raise inside the block.

    Args:
        libraries: the errors of a store's library that are no OSError.

    Raises:
        ObjectChanged: the object was removed or replaced.
        StoreUnreachable, StoreDenied, BucketMissing, StoreFailed.
    """
    kinds: tuple[type[Exception], ...] = (OSError, *libraries)
    try:
        yield
    except kinds as problem:
        code = code_of(problem)
        raise (_unanswered(address, problem) if code is None else _answered(address, code)) from None


def code_of(problem: BaseException | None) -> str | None:
    """Return the error code of a store's answer; None if there was no answer."""
    while problem is not None:
        response = getattr(problem, "response", None)
        if isinstance(response, dict):
            code = str(response.get("Error", {}).get("Code", ""))
            return code if _CODE.fullmatch(code) else "unknown"
        problem = problem.__cause__
    return None


def _answered(address: Address, code: str) -> EnvironmentProblem | Refused:
    if code in _DENIED:
        return StoreDenied(address, "the store does not allow it")
    if code == "PlainHttp":
        return endpoint_unsafe(address)
    if code == "NoSuchBucket":
        return bucket_missing(address)
    if code in _CHANGED:
        return ObjectChanged(address)
    if code in _BUSY:
        return store_unreachable(address, f"it answers {code}")
    return store_failed(address, f"it answers {code}")


def _unanswered(address: Address, problem: BaseException) -> EnvironmentProblem | Refused:
    kinds = {type(error).__name__ for error in _chain(problem)}
    if kinds & {"ProfileNotFound", "ConfigNotFound"}:
        return StoreDenied(address, "there is no such profile")
    if "FileExpired" in kinds:  # s3fs: another state than when the file was opened
        return ObjectChanged(address)
    if kinds & _NOT_ASKED:
        return StoreDenied(address, "there are no credentials")
    if kinds & _TLS:
        return store_unreachable(address, "its certificate is not trusted")
    return store_unreachable(address, "no answer")


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        inner = getattr(problem, "kwargs", {}).get("error")  # where botocore keeps the original error
        problem = inner if isinstance(inner, BaseException) else problem.__cause__ or problem.__context__


_DEFAULT_PLACE = "a bucket that stores.yaml does not name is looked for at Amazon (s3://) or Google (gs://)"
_EXTRAS = {S3: "s3", GOOGLE: "gcs", AZURE: "azure"}


def store_extra_missing(scheme: str) -> EnvironmentProblem:
    """Return the error of packages for a kind of object store that are not installed."""
    return EnvironmentProblem(
        f"{scheme}:// addresses need packages that are not installed.",
        f"Install them with `pip install 'almoner[{_EXTRAS[scheme]}]'`.",
        {"extra": _EXTRAS[scheme]},
        code="StoreExtraMissing",
    )


def store_unreachable(address: Address, reason: str) -> EnvironmentProblem:
    """Return the error of a store that does not answer, or not with an answer that can be trusted."""
    return EnvironmentProblem(
        f"The store of {address} cannot be reached: {reason}.",
        f"Check the name {address.bucket!r}: {_DEFAULT_PLACE}."
        " Then check its endpoint_url, proxy and ca_file there (docs/stores.md), and give the command again.",
        {"address": str(address), "reason": reason},
        code="StoreUnreachable",
        temporary=True,
    )


def endpoint_unsafe(address: Address) -> EnvironmentProblem:
    """Return the error of an endpoint over plain http, named by the environment, whose traffic others could read."""
    return EnvironmentProblem(
        f"The store of {address} would be reached over plain http, which anybody on the network can read.",
        "Use https. Plain http goes to this machine alone.",
        {"address": str(address)},
        code="EndpointUnsafe",
    )


class StoreDenied(EnvironmentProblem):
    """Store that denies access or an operation."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(
            f"Access to {address} is denied: {reason}.",
            "Check the credentials of this session and the rights on the bucket; docs/stores.md lists what is needed.",
            {"address": str(address), "reason": reason},
        )


def bucket_missing(address: Address) -> EnvironmentProblem:
    """Return the error of a bucket that does not exist at its store."""
    return EnvironmentProblem(
        f"There is no bucket {address.bucket!r}.",
        f"Check its name and endpoint_url; {_DEFAULT_PLACE}. almoner makes no buckets.",
        {"bucket": address.bucket},
        code="BucketMissing",
    )


def store_failed(address: Address, reason: str) -> EnvironmentProblem:
    """Return the error of a store that answers with an error of another kind."""
    return EnvironmentProblem(
        f"The store of {address} does not support this: {reason}.",
        "Try again later; if it stays, the store's own log says more.",
        {"address": str(address), "reason": reason},
        code="StoreFailed",
    )


class ObjectChanged(Refused):
    """An object that was replaced or removed while it was used."""

    def __init__(self, address: Address) -> None:
        super().__init__(
            f"{address} was changed or removed while it was read.",
            "Wait until nothing writes to it, then give the command again.",
            {"address": str(address)},
        )
