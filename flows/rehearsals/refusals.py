"""Refusals of rehearsals, each with advice."""

from collections.abc import Sequence

from models_db.errors import Refused, UsageError


class RehearsalOnGovernedData(Refused):
    """The dataset of a rehearsal is governed, and its people are protected."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The dataset {name!r} is governed: a rehearsal reads its texts without protection, and a request that"
            " depends on such a result is not differentially private.",
            "Rehearse on a public corpus of the same kind: `almoner dataset register NAME --public ...`, ingest it, and"
            " name it with --on NAME.",
            {"dataset": name},
        )


class NotRehearsed(UsageError):
    """A mechanism or a kind of release that has no rehearsal."""

    def __init__(self, kind: str, mechanism: str, mechanisms: Sequence[str]) -> None:
        super().__init__(
            f"A release of kind {kind} by {mechanism} is not rehearsed: only where each text is drawn from a batch of"
            " people of its own has a smaller number of texts the same noise.",
            f"Rehearsed are requests for texts by {', '.join(mechanisms)}.",
            {"kind": kind, "mechanism": mechanism},
        )


class ExternalModelNotRehearsed(Refused):
    """The request names a model behind an API."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model!r} is behind an API; requests with such a model are not rehearsed.",
            "Rehearse the same request with a model of this machine.",
            {"model": model},
        )


class TextsOutOfRange(UsageError):
    """Too few or too many texts for a rehearsal."""

    def __init__(self, texts: int, least: int, most: int, limit: str) -> None:
        super().__init__(
            f"{texts} texts cannot be rehearsed: at least {least} are needed for a comparison (one for each block and"
            f" label, and no fewer than five), and {limit} {most}.",
            f"Choose --texts from {least} to {most}."
            if least <= most
            else "Rehearse a request for more texts, or on a larger public dataset.",
            {"texts": texts, "least": least, "most": most},
        )


class RehearsalDiffers(Refused):
    """The request, priced on the twin, would have other mechanisms than it has."""

    def __init__(self) -> None:
        super().__init__(
            "On the twin the request would be drawn with another noise than it was priced with: almoner or the model"
            " has changed since.",
            "Submit the request again, and rehearse that.",
        )
