"""Settings of buckets that a home stores; never a secret.

The environment (AWS_PROFILE, AWS_ENDPOINT_URL, ...) decides how a bucket without settings is reached.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from models_db.values.requests import RequestModel, TextLine
from tasks.common.network import Address as Url
from tasks.common.network import Variable, is_loopback
from tasks.object_storage.address import Address

PAGE: Final = "docs/stores.md"


class BucketSettings(RequestModel):
    """Settings of one bucket.

    Attributes:
        endpoint_url: the server, if it is not that of Amazon; https, or http to this machine.
        instance_role: whether the machine's own service (169.254.169.254) is asked for credentials.
        ca_file: the authority that signed the server's certificate.
        proxy: what https is sent through; no proxy of the environment is asked.
        profile: a section of the files that Amazon's tools read.
        key_env, secret_env, token_env: names of the variables that hold the credentials, if not Amazon's own.
        encryption: what the server encrypts objects with that are written.
        kms_key: the key for aws:kms, if not the bucket's own.
    """

    endpoint_url: Url | None = None
    instance_role: bool = False
    ca_file: TextLine | None = None
    proxy: Url | None = None
    region: Annotated[str, Field(pattern="^[a-z0-9-]{1,40}$")] | None = None
    profile: TextLine | None = None
    key_env: Variable | None = None
    secret_env: Variable | None = None
    token_env: Variable | None = None
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: TextLine | None = None

    @model_validator(mode="after")
    def _fits(self) -> "BucketSettings":
        if self.endpoint_url is not None and not is_safe(self.endpoint_url):
            raise ValueError("plain http goes to this machine alone; use https (endpoint_url)")
        if (self.key_env is None) != (self.secret_env is None):
            raise ValueError("name both variables or none (key_env, secret_env)")
        if self.token_env is not None and self.key_env is None:
            raise ValueError("token_env comes with key_env and secret_env")
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise ValueError("kms_key comes with encryption: aws:kms")
        return self


class Buckets:
    """Settings of the buckets of a home, by their names."""

    def __init__(self, settings: Mapping[str, BucketSettings] = MappingProxyType({})) -> None:
        self.settings = dict(settings)

    def of(self, address: Address) -> BucketSettings:
        """Return the settings of the bucket of `address`; those of the environment where the home stores none."""
        return self.settings.get(address.bucket) or BucketSettings()


def is_safe(url: str) -> bool:
    """Return whether a URL is https, or http to this machine: nobody on the way can read or change the data."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
