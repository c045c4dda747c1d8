"""Presets of prompts: the default wording, a shorter one, and one for each common kind of text.

Nearly all of them are conversations of two turns: a text is asked for, the reference stands as the answer, another is
asked for. The wording for summaries has one turn: what one unit wrote, and the task. The words are ours; the idea of a
wording per domain is InvisibleInk's (App. C). The default wording never changes: requests that name neither templates
nor a preset are stored without any. Whatever else is used is written out in the request, so a better word here changes
no request that is stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from models_db.values.requests import Preset


@dataclass(frozen=True)
class PromptWording:
    """The templates of a prompt in two turns, or in one.

    Attributes:
        system: the system message of every row.
        public: the request; all that a public row is asked.
        labelled: the request where labels are declared.
        again: the second request of a private row, after the reference, in two turns.
        private, private_labelled: all that a private row is asked, in one turn; None in two.
    """

    system: str
    public: str
    labelled: str
    again: str
    private: str | None = None
    private_labelled: str | None = None


DEFAULT = PromptWording(
    system="You write realistic texts. Reply with the text alone.",
    public="{description}\n\nWrite one.",
    labelled="{description}\n\nCategory: {label}\n\nWrite one of this category.",
    again="Write another.",
)

COMPLETION, COMPLETION_LABELLED = "{description}", "{description}\n\nCategory: {label}"
"""Default beginning of a completion prompt, without labels and with them."""

SEPARATOR = "###"
"""Default line between the texts of a completion prompt."""

PRESETS: Mapping[Preset, PromptWording] = {
    "brief": PromptWording(
        system="Reply with the text alone.",
        public="{description}\n\nOne:",
        labelled="{description}\n\nCategory: {label}\n\nOne of this category:",
        again="Another:",
    ),
    "clinical": PromptWording(
        system=(
            "You write fictional clinical records as health professionals write them: terse, with the usual headings,"
            " abbreviations, doses and values. Every person in them is invented. Reply with the record alone."
        ),
        public="Kind of record: {description}\n\nWrite one complete record of this kind.",
        labelled="Kind of record: {description}\nCategory: {label}\n\nWrite one complete record of this category.",
        again="Write the record of another patient, in the same style and of about the same length.",
    ),
    "court": PromptWording(
        system=(
            "You write fictional passages of court documents: formal, in numbered paragraphs, with procedure, facts and"
            " reasoning in the usual order. Parties, places and dates are invented. Reply with the passage alone."
        ),
        public="Kind of document: {description}\n\nWrite one such passage.",
        labelled="Kind of document: {description}\nCategory: {label}\n\nWrite one such passage of this category.",
        again="Write the passage of another case, in the same style and of about the same length.",
    ),
    "review": PromptWording(
        system=(
            "You write reviews as customers write them: in the first person, about one visit or purchase, with an"
            " opinion and its reasons, in everyday language. Reply with the review alone."
        ),
        public="What is reviewed: {description}\n\nWrite one review.",
        labelled="What is reviewed: {description}\nCategory: {label}\n\nWrite one review of this category.",
        again="Write a review by another customer, in the same style and of about the same length.",
    ),
    "chat": PromptWording(
        system=(
            "You write conversations and messages as people type them: short turns, each behind the name of who speaks,"
            " with the slips and shortcuts of everyday talk. Everybody is invented. Reply with the conversation alone."
        ),
        public="Kind of conversation: {description}\n\nWrite one.",
        labelled="Kind of conversation: {description}\nCategory: {label}\n\nWrite one of this category.",
        again="Write a conversation between other people, in the same style and of about the same length.",
    ),
    "summary": PromptWording(
        system="You summarise what many people wrote. Reply with the summary alone.",
        public="Many people wrote about one thing. Write {description}.",
        labelled="Many people wrote about this: {label}\n\nWrite {description}.",
        again=DEFAULT.again,
        private="{reference}\n\nThis and more was written about one thing. Write {description}.",
        private_labelled="{reference}\n\nThis and more was written about: {label}\n\nWrite {description}.",
    ),
}
