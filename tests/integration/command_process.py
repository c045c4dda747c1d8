"""A command of almoner in a process of its own, with the tiny model: its arguments are the command's."""

import sys

import pytest

from cli.app import main
from tests import tiny_model

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        tiny_model.install(patch)
        sys.argv[0] = "almoner"
        main()
