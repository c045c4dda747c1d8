"""Public passages that a released text may have been copied from: what its request wrote, and almoner's own wording."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import astuple
from typing import Any, Final

from tasks.decoding import structured_output
from tasks.inference.backends import text_backend
from tasks.inference.prompt_spec import DEFAULT_WORDING, PRESETS, PromptWording
from tasks.systems.registry import SYSTEMS
from tasks.text.doubts import PROMPT_RUN
from tasks.text.words import plain_words

SHOWN_PARAMETERS: Final = ("labels", "groups", "adapter")
"""Parameters whose texts prompts show. A form is none: its words stand in every text by construction."""

_END_OF_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+|\{\w+\}")


def prompt_passages(request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the passages that texts of a stored request are compared with (`tasks.text.doubts.find_doubts`).

    Of the request: description, examples, templates, and the labels, groups and wording of an adapter that prompts
    show. A passage of fewer than `PROMPT_RUN` words is left out, because a text about a group may well name it. Of
    almoner: every sentence of the wordings that it may put before a model, so that a text which repeats one is found
    whatever the request says.

    Args:
        request: in any format; what is not where it should be is no passage.
    """
    parameters = request.get("parameters")
    shown = [parameters.get(name) for name in SHOWN_PARAMETERS] if isinstance(parameters, Mapping) else []
    own = (text for text in _texts([request.get("prompt"), shown]) if len(plain_words(text)) >= PROMPT_RUN)
    return (*dict.fromkeys(own), *_ALMONERS)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in parts:
        yield from _texts(part)


def _almoners() -> tuple[str, ...]:
    wordings: tuple[PromptWording, ...] = (DEFAULT_WORDING, *PRESETS.values())
    texts = (
        *_texts([astuple(wording) for wording in wordings]),
        text_backend.SYSTEM,
        structured_output.SYSTEM,
        *(sentence for system in SYSTEMS.own.values() for sentence in system.model_sentences),
    )
    return tuple(dict.fromkeys(sentence for text in texts for sentence in _END_OF_SENTENCE.split(text) if sentence))


_ALMONERS: Final = _almoners()
