"""The JSON schema of a request file: it takes what a request is, and refuses what no request is."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from tests.integration.story import REQUEST, Almoner


def test_the_schema_is_printed_without_a_home(almoner: Almoner) -> None:
    schema = json.loads(almoner.type("release schema").out)
    assert schema == almoner.ask("release schema")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(almoner.request_file().read_text()), schema)


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"kind": "poem"},
        {"mechanism": 4},
        {"prompt": {"description": ""}},
        {"prompt": {"description": "A note.", "tone": "warm"}},
    ],
)
def test_what_is_no_request_is_refused_by_both(almoner: Almoner, change: dict[str, Any]) -> None:
    almoner.ingested()
    schema = almoner.ask("release schema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(json.dumps(REQUEST | change, default=str)), schema)
    told = almoner.ask(f"release request {almoner.request_file(**change)} --dry-run", expected=2)
    assert told["error"] == "FileInvalid"
