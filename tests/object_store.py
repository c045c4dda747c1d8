"""A real S3 server on this machine, in a process of its own: moto's, spoken to over HTTP.

It reads who signed a request and compares no signature, so tests put things into it with plain requests.
"""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import yaml

KEY, SECRET = "AKIAPORCELAINHERON", "velvet-thunder-marzipan-4711"
ENVIRONMENT = {"LAMPLIGHT_KEY": KEY, "LAMPLIGHT_SECRET": SECRET, "AWS_EC2_METADATA_DISABLED": "false"}
_SIGNED = {
    "Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host,"
    " Signature=0"
}
_SERVE = """
import logging, sys
logging.disable()
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass
class ObjectStore:
    """The server, and the short ways of a test to look into it."""

    url: str
    process: "subprocess.Popen[str]"

    @classmethod
    def start(cls) -> "ObjectStore":
        """Start a server; it ends with its standard input."""
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        return cls(f"http://127.0.0.1:{process.stdout.readline().strip()}", process)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.communicate()

    def _ask(self, method: str, place: str, **more: Any) -> httpx.Response:
        return httpx.request(method, f"{self.url}/{place}", headers=_SIGNED, **more).raise_for_status()

    def bucket(self, name: str) -> None:
        """Make an empty bucket."""
        self._ask("put", f"{name}")

    def put(self, place: str, data: bytes) -> None:
        """Put an object at `bucket/key`."""
        self._ask("put", f"{place}", content=data)

    def get(self, place: str) -> bytes:
        """The object at `bucket/key`."""
        return self._ask("get", f"{place}").content

    def head(self, place: str) -> Mapping[str, str]:
        """What the server tells of the object at `bucket/key`."""
        return self._ask("head", f"{place}").headers

    def remove(self, place: str) -> None:
        """Remove the object at `bucket/key`."""
        self._ask("delete", f"{place}")

    def forbid(self, bucket: str, *actions: str) -> None:
        """Have the bucket deny some actions to everybody."""
        said = {"Effect": "Deny", "Principal": "*", "Action": list(actions), "Resource": f"arn:aws:s3:::{bucket}/*"}
        self._ask("put", f"{bucket}?policy", json={"Version": "2012-10-17", "Statement": [said]})

    def keys(self, bucket: str) -> list[str]:
        """All keys in a bucket, sorted."""
        listed = ElementTree.fromstring(self._ask("get", f"{bucket}").content)
        return sorted(str(key.text) for key in listed.iter() if key.tag.endswith("Key"))

    def told_to(self, home: Path, *buckets: str, **more: Any) -> None:
        """Write the settings with which a home finds these buckets here."""
        one = {"endpoint_url": self.url, "region": "us-east-1", "key_env": "LAMPLIGHT_KEY",
               "secret_env": "LAMPLIGHT_SECRET", **more}  # fmt: skip
        path = home / "stores.yaml"
        path.write_text(yaml.safe_dump({"buckets": {name: dict(one) for name in buckets}}))
        path.chmod(0o600)
