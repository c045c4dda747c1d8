"""Planted secrets, and the search for them wherever they must not be."""

from pathlib import Path

from tests.integration.story import NOTES, SECRETS

SPAN = 8
"""Words of a note that nobody writes again by chance."""


def spans(text: str) -> list[str]:
    """Its words, SPAN in a row."""
    words = text.split()
    return [" ".join(words[at : at + SPAN]) for at in range(0, len(words) - SPAN + 1, SPAN)]


PRIVATE_TEXT = NOTES[0]["text"]
CANARIES = [*SECRETS, *(span for note in NOTES for span in spans(note["text"]))]


def leaks(text: str) -> list[str]:
    """The canaries that stand in a text."""
    return [canary for canary in CANARIES if canary in text]


def text_of(folder: Path) -> str:
    """Every byte below a folder, as text; also what SQLite keeps in its log and in freed pages."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in files)
