"""Version of the computing code: a digest of our own and of extensions, and the versions of libraries that decide."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import models_db
from tasks.common.extensions import extension_sources, extensions

SOURCES = (".css", ".html", ".js", ".py")
ROOMS = ("almoner", "cli", "flows", "migrations", "models_db", "tasks")
LIBRARIES = ("dp-accounting", "numpy", "opendp", "torch", "transformers")


@cache
def code_digest() -> str:
    """Return the SHA-256 of the source of the six rooms, templates included, to which a spend approval is bound.

    The source of installed extensions is part of it (`tasks.common.extensions`).

    Raises:
        ExtensionUnfit: an extension cannot be used.
    """
    root = Path(models_db.__file__).parent.parent
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted(path for path in (root / room).rglob("*") if path.suffix in SOURCES):
            digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for name, content in extension_sources():
        digest.update(f"{name}\0".encode() + hashlib.sha256(content).digest())
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decide the results of a run, and of the extensions."""
    own = {extension.package: extension.version for extension in extensions()}
    return own | {name: version(name) for name in LIBRARIES}
