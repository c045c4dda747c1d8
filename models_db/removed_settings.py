"""Settings that request files and policies once had, and what takes the place of each."""

from collections.abc import Mapping

REMOVED_SETTINGS: Mapping[str, str] = {
    "label_rule": "ingest the corpus with `--label-field`",
    "free_above": "it made texts longer and no better; raise `max_new_tokens` for longer texts",
    "internal_figures": "every later card, price and gate states who looked, and nobody is barred",
    "presence_penalty": "it made real next tokens no likelier; leave it out",
    "scope": "a dataset has one lifetime budget; a standing authorisation bounds what a series of releases spends",
    "selection": "every drawn text is published",
    "delegation_days": "a deputy is a steward for a time, by `almoner user grant NAME steward --until DAY`",
    "pacing": "limit what one release may claim with `release`; the lifetime budget limits them all",
    "mechanism: steering_vector": "of four releases it helped one and harmed one; take `invisible_ink`",
    "complete_sentence": "by default the public model finishes a text's last sentence with at most 24 tokens",
    "label_allocation": "each label has equally many texts",
    "sampler": "tokens are drawn from the exact integer table",
    "rotate_over": "a request reads every block of its cohorts; `cohorts` chooses them",
    "outline": "longer texts are drawn without one",
}
"""The name of each removed setting or value, and the end of the sentence "it was removed: ..."."""


def explain_removed(setting: object) -> str | None:
    """Return what takes the place of a removed setting; None for a name that never was one."""
    replacement = REMOVED_SETTINGS.get(str(setting))
    return None if replacement is None else f"it was removed: {replacement}"
