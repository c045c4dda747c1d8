"""Sentence on a release that publishes a selection of its texts: a promise, which changes with docs/requests.md."""

from typing import Final

from tasks.planning import selection as figures
from tasks.release.record import ReleaseRecord

SELECTED: Final = (
    "Of {drawn} texts that were drawn, {published} are published, selected by criteria that read these texts, the"
    " request and the public model alone. Left out: {reasons}. {in_doubt}"
)
CHARGED: Final = "All {drawn} were charged, and the claim covers all of them."
IN_DOUBT: Final = "{in_doubt} of the published texts fail a criterion, because too few texts fail none."
NO_DOUBT: Final = "No published text fails a criterion."

_REASONS: Final = {
    "nonsense": "nonsense {}",
    "duplicates": "duplicates {}",
    "prompt": "copies of the prompt {}",
    "identifiers": "addresses or long numbers {}",
    "perplexity": "less usual perplexity {}",
    "surplus": "drawn last {}",
}


def selection_sentence(record: ReleaseRecord) -> str | None:
    """Return how many texts were drawn, how many of them are published, and why others are not; None without selection.

    A record that a stranger made may lack figures; they are `?` here, and verification names what is wrong.
    """
    if record.selection is None:
        return None
    left_out = [wording.format(count) for name, wording in _REASONS.items() if (count := record.left_out.get(name))]
    drawn = record.released.get(figures.DRAWN, "?")
    published = int(drawn) - sum(record.left_out.values()) if drawn.isdecimal() else "?"
    in_doubt = record.released.get(figures.IN_DOUBT, "?")
    template = f"{SELECTED} {CHARGED}" if record.claim is not None else SELECTED
    return template.format(
        drawn=drawn,
        published=published,
        reasons=", ".join(left_out) or "none",
        in_doubt=NO_DOUBT if in_doubt == "0" else IN_DOUBT.format(in_doubt=in_doubt),
    )
