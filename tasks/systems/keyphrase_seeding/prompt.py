"""Prompts for texts about phrases.

Small models ignore phrases that follow another instruction, so in the default wording the phrases come first, and the
description of the texts after them. The wording of a request or of a preset stays unchanged, and the phrases follow it.
"""

from collections.abc import Sequence

from tasks.inference.prompt_spec import DEFAULT_WORDING, PromptSpec

ABOUT, CATEGORY = "Write a text about {phrases}.", " Its category is {label}."
BEHIND = "Mention all of these in it: {phrases}."
FACT = f"{ABOUT}{CATEGORY} (and the description). Behind words of the request's own, or a preset's: {BEHIND}"
"""The wording, as a fact of a plan."""


def seeded(prompt: PromptSpec, label: str | None, phrases: Sequence[str]) -> str:
    """Return the prompt for one text; without phrases, that of a public row.

    Args:
        label: public; None without declared labels.
        phrases: released phrases.
    """
    if not phrases:
        return prompt.fill("public", label)
    phrase_list = ", ".join(phrases)
    if prompt.public not in (DEFAULT_WORDING.public, DEFAULT_WORDING.labelled):
        return f"{prompt.fill('public', label)}\n\n{BEHIND.replace('{phrases}', phrase_list)}"
    category = CATEGORY.replace("{label}", label) if label is not None else ""
    return f"{ABOUT.replace('{phrases}', phrase_list)}{category}\n\n{prompt.description.strip()}"
