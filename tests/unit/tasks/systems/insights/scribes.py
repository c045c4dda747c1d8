"""Stand-ins for a public model that writes records, for tests of post-processing."""

from collections.abc import Callable, Sequence

from tasks.decoding.structured_output import Record, Schema


def last_line(prompt: str, start: str) -> list[str]:
    """What the last line of a prompt that begins with `start` lists."""
    found = [line for line in prompt.splitlines() if line.startswith(start)][-1]
    return found.removeprefix(start).strip().replace("; ", ", ").split(", ")


class Scribe:
    """Answers by a function of the prompt, and keeps every prompt.

    Attributes:
        asked: the prompts of each call.
    """

    def __init__(self, answer: Callable[[str], Record]) -> None:
        self.answer = answer
        self.asked: list[list[str]] = []

    def __call__(self, prompts: Sequence[str], schema: Schema) -> list[Record]:
        self.asked.append(list(prompts))
        return [self.answer(prompt) for prompt in prompts]


def of_keywords(prompt: str) -> Record:
    """A sensible answer about keywords."""
    words = last_line(prompt, "Keywords:")
    return {
        "name": f"All about {', '.join(words[:3])}",
        "description": f"These texts are about {words[0]}. They deal with {words[-1]}.",
    }
