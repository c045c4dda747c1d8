"""Proofs cite code and tests by name; a name that is gone leaves a hypothesis without support."""

import ast
import re
from functools import lru_cache
from pathlib import Path

CONCERNS = ("tasks", "flows", "tests")

ROOT = Path(__file__).resolve().parents[1]
PROOFS = sorted((ROOT / "docs" / "proofs").glob("*.md"))
CITED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@lru_cache
def names_in(path: Path) -> frozenset[str]:
    """Functions and classes that a module defines, at any depth."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, definitions))


def test_what_proofs_cite_exists() -> None:
    cited = [(proof.name, *pair) for proof in PROOFS for pair in CITED.findall(proof.read_text())]
    assert len(cited) > 40
    missing = [
        f"{proof}: {path}::{name}"
        for proof, path, name in cited
        if not (ROOT / path).is_file() or name not in names_in(ROOT / path)
    ]
    assert missing == []
