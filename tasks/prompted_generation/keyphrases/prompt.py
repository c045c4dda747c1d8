"""How a model is asked for a text about phrases.

Small models write beside phrases that come as a second wish behind the first, so in the default wording the phrases
come first, and behind them what the texts are. Words that somebody wrote, or a preset's, stay as they are, and the
phrases follow them.
"""

from collections.abc import Sequence

from tasks.inference.prompts.presets import DEFAULT
from tasks.inference.prompts.prompt_spec import PromptSpec

ABOUT, CATEGORY = "Write a text about {phrases}.", " Its category is {label}."
BEHIND = "Mention all of these in it: {phrases}."
FACT = f"{ABOUT}{CATEGORY} (and the description). Behind words of the request's own, or a preset's: {BEHIND}"
"""What a price says of it."""


def seeded(prompt: PromptSpec, label: str | None, phrases: Sequence[str]) -> str:
    """The request for one text; without phrases, what a public row is asked.

    Args:
        label: public; None where none are declared.
        phrases: released ones.
    """
    if not phrases:
        return prompt.fill("public", label)
    told = ", ".join(phrases)
    if prompt.public not in (DEFAULT.public, DEFAULT.labelled):
        return f"{prompt.fill('public', label)}\n\n{BEHIND.replace('{phrases}', told)}"
    category = CATEGORY.replace("{label}", label) if label is not None else ""
    return f"{ABOUT.replace('{phrases}', told)}{category}\n\n{prompt.description.strip()}"
