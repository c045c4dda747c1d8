"""Error for a draft whose files changed."""

from models_db.errors import Refused


class ArtifactChanged(Refused):
    """A draft differs from the files that were produced and approved."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The draft differs from what was approved: {name} {reason}.",
            "Nothing was published. Find out who changed the quarantine folder; the output of a run is never edited.",
            {"file": name, "reason": reason},
        )
