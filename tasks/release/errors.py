"""What may have happened to the files of a release."""

from models_db.errors import Refused


class ArtifactChanged(Refused):
    """A draft is not what was produced and approved."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The draft is not what was approved: {name} {reason}.",
            "Nothing was published. Find out who changed the quarantine folder; what a run produced is never edited.",
            {"file": name, "reason": reason},
        )
