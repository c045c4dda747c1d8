"""NOTICE names what is installed beside almoner, with its licence, and none of it is under the GPL or the AGPL."""

import re
import tomllib
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path

from tasks.inference.catalogue.registry import REGISTRY
from tests.test_ci import needed, pins

ROOT = Path(__file__).resolve().parents[1]
PACKAGES, MODELS = (
    dict(re.findall(r"^  ([a-z0-9.-]+) {2,}(\S.*)$", part, re.MULTILINE))
    for part in (ROOT / "NOTICE").read_text().split("\nMODELS\n")
)
COPYLEFT = re.compile("GPL|General Public", re.IGNORECASE)
CHOSEN = {"psycopg": "LGPL-3.0-only", "psycopg-binary": "LGPL-3.0-only", "text-unidecode": "Artistic-1.0-Perl"}
"""The only packages whose metadata names a licence of that family, and the licence under which almoner uses them."""


def described(name: str) -> PackageMetadata | None:
    """The metadata of a package; None for one of another platform."""
    try:
        return metadata(name)
    except PackageNotFoundError:
        return None


def test_the_packages_are_those_of_the_locks_and_the_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    program, development = (pins((ROOT / f"requirements{kind}.lock").read_text()) for kind in ("", "-dev"))
    installed = program.keys() | needed(one for extra in extras.values() for one in extra) & development.keys()
    assert sorted(installed - PACKAGES.keys()) == [], "missing in NOTICE"
    assert sorted(PACKAGES.keys() - installed) == [], "in NOTICE, and not installed"


def test_a_stated_licence_is_the_listed_one() -> None:
    stated = {name: found.get("License-Expression", "") for name in PACKAGES if (found := described(name))}
    assert {name: (one, PACKAGES[name]) for name, one in stated.items() if one and one != PACKAGES[name]} == {}
    assert sum(map(bool, stated.values())) > 50


def test_no_package_is_under_the_gpl() -> None:
    def names_it(found: PackageMetadata) -> bool:
        licences = [one for one in found.get_all("Classifier", []) if one.startswith("License ::")]
        licences += [found.get(field, "").partition("\n")[0] for field in ("License", "License-Expression")]
        return COPYLEFT.search(" ".join(licences)) is not None

    assert {name for name in PACKAGES if (found := described(name)) and names_it(found)} == CHOSEN.keys()
    assert all(PACKAGES[name].startswith(licence) for name, licence in CHOSEN.items())
    assert not any(COPYLEFT.search(licence) for name, licence in PACKAGES.items() if name not in CHOSEN)


def test_models_have_the_licence_that_the_registry_states() -> None:
    listed = [(spec.licence, MODELS[spec.name]) for spec in REGISTRY]
    assert [one for one in listed if not one[0].startswith(one[1])] == []


def test_it_is_in_the_wheel_and_the_image() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license-files"] == ["LICENSE", "NOTICE"]
    assert " LICENSE NOTICE " in (ROOT / "deploy" / "Dockerfile").read_text()
    assert "!NOTICE" in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
