"""What is declared with a dataset, or in a request, is approved with it and arrives in the bundle."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.release.bundle_format import CARD, CROISSANT, DEPLOYMENT, RECORD
from tests.integration.story import Almoner

pytestmark = pytest.mark.contract

WITH_THE_DATASET = {"name": "Visits", "licence": "CC-BY-4.0", "language": "en", "creators": "The clinic"}
IN_THE_REQUEST = {"licence": "CC0-1.0", "region": "Utopia"}
TOGETHER = {
    "name": "Visits", "licence": "CC0-1.0", "language": ["en"], "creators": ["The clinic"], "region": "Utopia",
}  # fmt: skip


def bundle_text(almoner: Almoner, name: str) -> str:
    return (almoner.bundle / name).read_text()


def test_what_is_declared_arrives_in_the_bundle(almoner: Almoner) -> None:
    declared: Path = almoner.write("declared.yaml", WITH_THE_DATASET)
    almoner.ingested(f"--public-metadata {declared}")
    shown: dict[str, Any] = almoner.ask("dataset show clinic")["public_metadata"]
    assert shown == {"name": "Visits", "licence": "CC-BY-4.0", "language": ["en"], "creators": ["The clinic"]}
    request = almoner.request_file(public_metadata=IN_THE_REQUEST)
    assert almoner.ask(f"release request --dry-run {request}")["price"]["public_metadata"] == TOGETHER
    almoner.type(f"release request {request}")
    for line in (
        'approve 1 --gate spend --reason "a first look"',
        "run 1",
        'approve 1 --gate publish --reason "names nobody"',
        f"publish 1 --to {almoner.folder / 'out'}",
    ):
        almoner.type(line)
    assert almoner.ask(f"verify-release {almoner.bundle}")["holds"] is True
    assert json.loads(bundle_text(almoner, RECORD))["request"]["public_metadata"] == TOGETHER
    assert yaml.safe_load(bundle_text(almoner, CARD).split("---")[1])["license"] == "cc0-1.0"
    assert json.loads(bundle_text(almoner, CROISSANT))["inLanguage"] == ["en"]
    basic = yaml.safe_load(bundle_text(almoner, DEPLOYMENT))["deployment"]["basic"]
    assert (basic["data_product_region"], basic["data_curators"]) == ("Utopia", [{"data_curator_name": "The clinic"}])


def test_a_field_that_is_not_listed_is_refused(almoner: Almoner) -> None:
    almoner.type("init")
    declared = almoner.write("declared.yaml", WITH_THE_DATASET | {"patients": 154})
    line = f"dataset register clinic --epsilon 8 --delta 1e-6 --public-metadata {declared}"
    assert "patients" in almoner.type(line, 2).err
    assert almoner.ask("dataset list") == []
