"""Options of benchmarks that keep lines of figures, which they go on from, and that print a table of them."""

import argparse
from pathlib import Path


def figures_parser(description: str | None, out: Path) -> argparse.ArgumentParser:
    """Return a parser with the file of the figures, and whether the table alone is asked for.

    Args:
        out: where the published figures are.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--table", action="store_true", help="only print the table of the figures that are there")
    return parser


def model_figures_parser(description: str | None, out: Path) -> argparse.ArgumentParser:
    """Return the same with the model that measures, and its device."""
    parser = figures_parser(description, out)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--device", default="auto")
    return parser
