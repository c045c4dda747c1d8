"""Settings of buckets that a home stores; never a secret.

The environment (AWS_PROFILE, AWS_ENDPOINT_URL, ...) decides how a bucket without settings is reached.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from models_db.errors import EnvironmentProblem
from models_db.values.requests import RequestModel, TextLine
from tasks.common.network import Address as Url
from tasks.common.network import Variable, is_loopback
from tasks.object_storage.address import AZURE, GOOGLE, S3, Address

PAGE: Final = "docs/stores.md"


class BucketSettings(RequestModel):
    """Settings that every kind of store has.

    Attributes:
        endpoint_url: the server, if it is not that of Amazon, of Google or of the Azure account; https, or http to this
            machine.
        instance_role: whether the machine's own service (169.254.169.254) is asked for credentials.
        ca_file: the authority that signed the server's certificate.
        proxy: what https is sent through; no proxy of the environment is asked.
    """

    endpoint_url: Url | None = None
    instance_role: bool = False
    ca_file: TextLine | None = None
    proxy: Url | None = None

    @model_validator(mode="after")
    def _safe(self) -> "BucketSettings":
        if self.endpoint_url is not None and not is_safe(self.endpoint_url):
            raise ValueError("plain http goes to this machine alone; use https (endpoint_url)")
        return self


class S3Settings(BucketSettings):
    """Settings of one bucket of an S3-compatible store.

    Attributes:
        profile: a section of the files that Amazon's tools read.
        key_env, secret_env, token_env: names of the variables that hold the credentials, if not Amazon's own.
        encryption: what the server encrypts objects with that are written.
        kms_key: the key for aws:kms, if not the bucket's own.
    """

    region: Annotated[str, Field(pattern="^[a-z0-9-]{1,40}$")] | None = None
    profile: TextLine | None = None
    key_env: Variable | None = None
    secret_env: Variable | None = None
    token_env: Variable | None = None
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: TextLine | None = None

    @model_validator(mode="after")
    def _fits(self) -> "S3Settings":
        if (self.key_env is None) != (self.secret_env is None):
            raise ValueError("name both variables or none (key_env, secret_env)")
        if self.token_env is not None and self.key_env is None:
            raise ValueError("token_env comes with key_env and secret_env")
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise ValueError("kms_key comes with encryption: aws:kms")
        return self


class GoogleSettings(BucketSettings):
    """Settings of one bucket of Google Cloud Storage.

    Attributes:
        credentials_env: name of the variable with the path of the credentials file, if not Google's own.
    """

    credentials_env: Variable | None = None


class AzureSettings(BucketSettings):
    """Settings of one container of Azure Blob Storage.

    Attributes:
        account: the storage account; its server is `https://ACCOUNT.blob.core.windows.net`.
        key_env, sas_env: name of the variable with the account's key, or with a shared access signature; without
            either, an identity of Microsoft Entra.
    """

    account: Annotated[str, Field(pattern="^[a-z0-9]{3,24}$")]
    key_env: Variable | None = None
    sas_env: Variable | None = None

    @model_validator(mode="after")
    def _fits(self) -> "AzureSettings":
        if self.key_env is not None and self.sas_env is not None:
            raise ValueError("name one variable, with a key or with a signature (key_env, sas_env)")
        return self


AnySettings: TypeAlias = S3Settings | GoogleSettings | AzureSettings
SETTINGS: Final[Mapping[str, type[AnySettings]]] = MappingProxyType(
    {S3: S3Settings, GOOGLE: GoogleSettings, AZURE: AzureSettings}
)
"""The settings of a bucket, by the kind of its store."""


class Buckets:
    """Settings of the buckets of a home, by their addresses without a key."""

    def __init__(self, settings: Mapping[Address, AnySettings] = MappingProxyType({})) -> None:
        self.settings = dict(settings)

    def of(self, address: Address) -> AnySettings:
        """Return the settings of the bucket of `address`; those of the environment where the home stores none.

        Raises:
            EnvironmentProblem: nothing names the account of a container of Azure.
        """
        if (settings := self.settings.get(replace(address, key=""))) is not None:
            return settings
        if address.scheme == AZURE:
            raise EnvironmentProblem(
                f"The storage account of {address} is not known: stores.yaml names none.",
                f"Write `account:` under `az://{address.bucket}:` in stores.yaml (docs/stores.md).",
                {"address": str(address)},
                code="AccountMissing",
            )
        return GoogleSettings() if address.scheme == GOOGLE else S3Settings()


def read_secret(address: Address, variable: str | None) -> str | None:
    """Return the content of a variable that the settings of a bucket name; None if they name none.

    Raises:
        CredentialsUnset: the variable is empty.
    """
    if variable is None:
        return None
    if not (value := os.environ.get(variable, "")):
        raise EnvironmentProblem(
            f"The variable {variable}, named for the bucket of {address}, is not set.",
            f"Set {variable} in the environment of this command.",
            {"address": str(address), "variable": variable},
            code="CredentialsUnset",
        )
    return value


def is_safe(url: str) -> bool:
    """Return whether a URL is https, or http to this machine: nobody on the way can read or change the data."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
