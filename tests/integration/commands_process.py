"""Several commands of almoner in a process of their own, with the tiny model.

Standard input has a line of JSON for each, a list of its arguments; standard output a line of JSON for each, its exit
code and what it said, errors included.
"""

import json
import sys

import pytest
from typer.testing import CliRunner

from cli.app import app
from tests import tiny_model
from tests.integration.story import CONFIRMED

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        for line in sys.stdin:
            done = CliRunner().invoke(app, json.loads(line), input=CONFIRMED)
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            sys.stdout.write(json.dumps([done.exit_code, done.stdout + done.stderr]) + "\n")
