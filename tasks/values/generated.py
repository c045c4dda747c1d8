"""Result of a system: the texts of a release, and the values that its mechanisms released on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from models_db.values.canonical_json import Json
from tasks.values.insight import Insight


@dataclass(frozen=True)
class GeneratedText:
    """One released text.

    Attributes:
        complete: False if it was cut at the token limit.
        label: the public label of its batch, where the request declares labels.
        facts: public figures beside it (mean number of candidates, ...): functions of released tokens and of public
            logits alone, so post-processing.
        insight: the node of a hierarchy that it describes, in a release of insights.
    """

    text: str
    tokens: int
    complete: bool
    label: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    insight: Insight | None = None


@dataclass(frozen=True)
class Generated:
    """All texts of a release in a public order, and figures that charged mechanisms released on the way.

    Attributes:
        values: everything that was released, where more texts can be made of that alone; kept for `release extend`.
    """

    texts: tuple[GeneratedText, ...]
    released: Mapping[str, str] = field(default_factory=dict)
    values: Json = None
