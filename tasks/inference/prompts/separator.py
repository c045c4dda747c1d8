"""Separator of the texts of a completion prompt: a line of its own, at which a text that is written ends.

A function of a text alone. Applied to what was drawn it is post-processing of released tokens, so the rule by which a
text ends costs nothing and says nothing that its tokens do not say.
"""


def text_before(separator: str, text: str) -> str | None:
    """Return the text before the first line that is `separator`; None if no line is.

    A line ends with a line feed: the last characters of a text may be the beginning of a longer line.
    """
    before, line, _ = f"\n{text}".partition(f"\n{separator}\n")
    return before[1:] if line else None
