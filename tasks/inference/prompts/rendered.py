"""Rendered prompts of a request: the public tokens around every private text, as a digest and a length.

The words of a prompt are approved with the request; tokenizer and chat template make tokens of them, and so do the
libraries that read both. The digest is part of the request, so what is approved is what the model reads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from models_db.values.canonical_json import digest
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.render import prompts_for


@dataclass(frozen=True)
class RenderedPrompt:
    """The rendered prompts of a request.

    Attributes:
        sha256: of the canonical JSON of the token ids: for each label or group in the request's order, or once where
            there are none, four lists: prefix and suffix of the public row, then of the private rows.
        tokens: of the longest one, without a reference.
    """

    sha256: str
    tokens: int

    @classmethod
    def of(cls, tokenizer: Any, spec: PromptSpec, shown: Sequence[str]) -> "RenderedPrompt":
        """Render the prompts of all labels or groups.

        Args:
            shown: the labels or groups as prompts name them.

        Raises:
            NoChatTemplate, BadDescription, ControlTokens.
        """
        pairs = [prompts_for(tokenizer, spec, label) for label in shown or (None,)]
        ids = [[list(part) for pieces in pair for part in (pieces.prefix, pieces.suffix)] for pair in pairs]
        return cls(digest(ids), max(len(pieces.tokens) for pair in pairs for pieces in pair))
