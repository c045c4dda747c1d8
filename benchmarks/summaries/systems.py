"""The systems that the summaries benchmark compares: as the papers have them, and as almoner does it.

Temperatures, clip norms, wordings and forms were chosen on the public half of the products alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from models_db.values.requests import PublicGroup, model_to_json
from tasks.adapters.metadata import AdapterWording, KnownAdapter
from tasks.adapters.store import AdapterUnknown, find_adapter
from tasks.adapters.training.data import TrainingSettings, default_wording
from tasks.inference.prompt_spec import PromptSpec
from tasks.systems.registry import SYSTEMS
from tasks.systems.summaries import NOISE

EPSILONS = ("0.5", "1", "2", "5", "10", "20", "50", "120")
SEVERAL = ("0.5", "2", "10", "20", "50", "120")
"""Of systems that read every review for every token: a cell of theirs takes six times as long."""
NO_NOISE = "1000000"
"""Practically no noise: what a system can do at best. One trial."""
DELTA = Decimal("1e-6")
REFERENCES = 8
TOKENS = 50
REFERENCE_TOKENS = 160

_SYSTEM = "You summarise product reviews. Reply with the summary alone."
_TEMPLATE = (
    "The product is a [TYPE]. Customers praise its [ASPECT_1] and [ASPECT_2], but some complain about [ISSUE_1] and"
    " [ISSUE_2]."
)
_ASKED = {
    "template": (
        "one summary that follows this template, every placeholder in brackets replaced by a short phrase from the"
        f" reviews: {_TEMPLATE}"
    ),
    "free": "a short summary of what customers say about this product: what it is, what they like, what they dislike",
}
FORM = (
    "This product is {quality} and {quality}. Customers like the {aspect} and the {aspect}, but some complain about the"
    " {issue}. Overall, it is {verdict}."
)
"""Tried on the public half beside two others: of the three it had the best ROUGE-L and BERTScore there, drawn by
InvisibleInk at epsilon 120 (8 products, one run each)."""


def wording(name: str) -> PromptSpec:
    """What the model is told; the row's review stands in front, and what is asked for last, as it was trained to see
    questions."""
    return PromptSpec(
        description=_ASKED[name],
        system=_SYSTEM,
        public="Many customers reviewed {label}.\n\nWrite {description}.",
        private="Reviews of {label}:\n\n{reference}\n\nWrite {description}.",
    )


@dataclass(frozen=True)
class System:
    """One line of the figures.

    Attributes:
        title: of its line, for people.
        mechanism: its name in requests.
        parameters: beyond those that all have.
        asked: which wording it is told.
        adapter: which of `ADAPTERS` it uses.
        epsilons: at which it is measured; None for a line without any privacy budget.
    """

    name: str
    title: str
    mechanism: str
    parameters: Mapping[str, Any]
    asked: str = "free"
    adapter: str | None = None
    epsilons: tuple[str | None, ...] = EPSILONS

    @property
    def prompt(self) -> PromptSpec:
        return wording(self.asked)

    def written(self) -> dict[str, Any]:
        """Its parameters without groups, as a line of results keeps them."""
        mine = {"max_new_tokens": TOKENS, "max_reference_tokens": REFERENCE_TOKENS, **self.parameters}
        prompt = self.prompt if self.adapter is None else None  # an adapter has its own
        told = None if prompt is None else {"description": prompt.description, **prompt.templates}
        return {"mechanism": self.mechanism, "told": told, "adapter": self.adapter, "noise": None, **mine}

    def request(self, groups: Sequence[PublicGroup], references: int = REFERENCES) -> Any:
        """The parameters of its requests, read as a request's."""
        own: dict[str, Any] = {
            "groups": tuple(groups),
            "references": references,
            "max_new_tokens": TOKENS,
            **self.parameters,
        }
        own.setdefault("max_reference_tokens", REFERENCE_TOKENS)
        if self.adapter is not None:
            own |= _adapter_parameters(self.adapter, int(own.get("shots", 1)))
            own.setdefault("clip_norm", find_adapter(self.adapter).meta.clip_norm)
        read: Callable[[Any], Any] = SYSTEMS[self.mechanism].parameters.model_validate
        return read(own)


def _adapter_parameters(name: str, shots: int) -> dict[str, Any]:
    known = find_adapter(name)
    used = {"sha256": known.digest, "meta": model_to_json(known.meta)}
    return {"adapter": used, "instalment": shots, "max_reference_tokens": known.meta.max_reference_tokens}


@dataclass(frozen=True)
class Training:
    """An adapter that the benchmark trains.

    Attributes:
        answers: how many answers of Dolly are learned from beside the public products.
    """

    settings: Mapping[str, Any]
    wording: AdapterWording
    answers: int = 0


_WRITING = "a short summary of what customers say about this product"
_PAPERS_WORDING = AdapterWording(
    description=_WRITING,
    system=_SYSTEM,
    private="{reference}\n\nThis and more was written about {label}.\n\nWrite {description}.",
    reading_system=_SYSTEM,
    reading_private="Reviews of {label}:\n\n{reference}\n\nWrite a short summary.",
    reading_opening="",
)
_OUR_WORDING = default_wording(_WRITING, labelled=True)
_QUIET = {"noise_least": 0, "noise_most": 0}

ADAPTERS: Mapping[str, Training] = {
    "summaries-paper": Training({"dimensions": 0, "soft_tokens": 8, "words": 0, **_QUIET}, _PAPERS_WORDING),
    "summaries-ours": Training({}, _OUR_WORDING),
    "summaries-centres": Training({"centres": 4}, _OUR_WORDING),
}


def training_settings(training: Training) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {
            "max_reference_tokens": REFERENCE_TOKENS,
            "max_summary_tokens": 80,
            "steps": 100,
            "patience": 2,
            **training.settings,
        }
    )


def known_adapter(name: str) -> KnownAdapter | None:
    """The adapter of that name, if this machine has it."""
    try:
        return find_adapter(name)
    except AdapterUnknown:
        return None


_COLD, _ONE_SHOT = {"temperature": "0.1"}, {"temperature": "0.3"}
_INK = {"temperature": "0.4"}
_FORM = {"form": FORM, "slot_tokens": 4}
_PAPERS = {"temperature": "0.3", "centre": "none", "top_k": 0}
_WITH_NONE = (*EPSILONS, NO_NOISE)
_OURS = {**_COLD, "noise": str(NOISE)}

SYSTEMS_COMPARED: tuple[System, ...] = (
    System("public_only", "public only", "public_only", _COLD, "free", epsilons=(None,)),
    System("public_only_form", "public only, form", "public_only", {**_COLD, **_FORM}, "free",
           epsilons=(None,)),
    System("non_private", "all reviews in the prompt, no privacy", "non_private",
           {**_COLD, "max_reference_tokens": 1400}, "free", epsilons=(None,)),
    System("token_level_paper", "token-level, as in the paper", "token_level_summary", _PAPERS, "template",
           epsilons=(*SEVERAL, NO_NOISE)),
    System("token_level", "token-level, ours", "token_level_summary", _OURS, epsilons=(*SEVERAL, NO_NOISE)),
    System("token_level_form", "token-level, ours, form", "token_level_summary", {**_OURS, **_FORM}, epsilons=SEVERAL),
    System("ink", "InvisibleInk, one review a prompt", "invisible_ink", _INK, epsilons=SEVERAL),
    System("ink_form", "InvisibleInk, form", "invisible_ink", {**_INK, **_FORM}, epsilons=SEVERAL),
    System("one_shot_paper", "one-shot, as in the paper", "one_shot_summary", _ONE_SHOT, "free", "summaries-paper",
           _WITH_NONE),
    System("one_shot", "one-shot, ours", "one_shot_summary", _ONE_SHOT, "free", "summaries-ours", _WITH_NONE),
    System("one_shot_centres", "one-shot, ours, 4 centres", "one_shot_summary", _ONE_SHOT, "free",
           "summaries-centres"),
    System("one_shot_4", "one-shot, ours, 4 shots", "one_shot_summary", {**_ONE_SHOT, "shots": 4}, "free",
           "summaries-ours"),
)  # fmt: skip
BY_NAME: Mapping[str, System] = {system.name: system for system in SYSTEMS_COMPARED}
