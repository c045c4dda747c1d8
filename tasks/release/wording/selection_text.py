"""Sentence on a release that publishes a selection of its texts: a promise, which changes with docs/requests.md."""

from typing import Final

from tasks.release.record import ReleaseRecord

SELECTED: Final = (
    "Of {drawn} texts that were drawn, {published} are published, selected by criteria that read these texts, the"
    " request and the public model alone. Left out: {reasons}. Of the published texts, {in_doubt} fail a criterion,"
    " where too few texts fail none. All {drawn} were charged, and the claim covers all of them."
)
SELECTED_WITHOUT_CLAIM: Final = SELECTED.partition(" All {drawn}")[0]

_REASONS: Final = {
    "nonsense": "nonsense {}",
    "duplicates": "duplicates {}",
    "prompt": "copies of the prompt {}",
    "identifiers": "with addresses or long numbers {}",
    "perplexity": "of less usual perplexity {}",
    "surplus": "drawn last {}",
}


def selection_sentence(record: ReleaseRecord) -> str | None:
    """Return how many texts were drawn, how many of them are published, and why others are not; None without selection.

    A record that a stranger made may lack figures; they are `?` here, and verification names what is wrong.
    """
    if record.selection is None:
        return None
    reasons = [wording.format(record.left_out[name]) for name, wording in _REASONS.items() if name in record.left_out]
    drawn = record.released.get("texts_drawn", "?")
    published = "?" if drawn == "?" else int(drawn) - sum(record.left_out.values())
    template = SELECTED if record.claim is not None else SELECTED_WITHOUT_CLAIM
    in_doubt = record.released.get("texts_published_in_doubt", "?")
    return template.format(drawn=drawn, published=published, reasons=", ".join(reasons), in_doubt=in_doubt)
