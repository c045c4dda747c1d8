"""Facts of the model that a request names: its identity, what a check of it found, and how its prompts read."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from models_db.values.canonical_json import Json
from tasks.common.network import is_external
from tasks.inference.backends.endpoints import Endpoint, endpoint_of
from tasks.inference.catalogue import registry
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.registry import LocalModel, MergedParts, model_folder_missing
from tasks.inference.loading.check_model import check_grammar, check_prompt, require_usable
from tasks.inference.prompt_rendering import RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.planning.labels_and_groups import shown_names
from tasks.systems.base import System


@dataclass(frozen=True)
class ModelFacts:
    """Identity of a model by digest; for an endpoint, the digest of its configuration.

    `parts` are the digests of base and adapter, where an adapter was merged.
    `check` is a local model's: the result of checking it.
    """

    name: str
    revision: str
    digest: str
    licence: str
    endpoint: Endpoint | None = None
    check: ModelCheck | None = None
    parts: MergedParts | None = None

    def to_json(self) -> dict[str, Json]:
        """Return it as it stands in a request."""
        whole = {"name": self.name, "revision": self.revision, "sha256": self.digest, "licence": self.licence}
        return {**whole, **({} if self.parts is None else self.parts.to_json())}

    def rendered(self, system: System, prompt: PromptSpec, parameters: BaseModel) -> RenderedPrompt | None:
        """Return the prompts as the model reads them; None if its rows read others, or it is not on this machine.

        Raises:
            NoChatTemplate, BadDescription, ControlTokens.
        """
        if self.check is None or not system.renders_prompt:
            return None
        return check_prompt(self.name, prompt, shown_names(parameters))

    def require_writable(self, parameters: BaseModel) -> None:
        """Check that a model of this machine can write texts of the schema or form in so many tokens.

        Raises:
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall, FormNotWritable, FormTooLong.
        """
        if self.check is not None:
            check_grammar(self.name, parameters)


def model_facts(name: str, endpoints: Mapping[str, Endpoint] | None = None) -> ModelFacts:
    """Return the facts of the installed model or the endpoint that a request names.

    Args:
        endpoints: those of the home, by name.

    Raises:
        UnknownModel, NoRevision, ModelNotPulled, ModelFolderMissing, EndpointUnknown, UnsupportedModel,
        UnreadableModel.
    """
    if is_external(name):
        endpoint = endpoint_of(name, endpoints or {})
        return ModelFacts(name, endpoint.revision, endpoint.digest, endpoint.licence, endpoint)
    known = registry.find(name)
    if isinstance(known, LocalModel) and not known.folder.is_dir():
        raise model_folder_missing(name, known.folder)
    for model in registry.list_models():
        if model.name == name and model.installed and model.digest:
            check = require_usable(name)
            return ModelFacts(model.name, model.revision, model.digest, model.licence, check=check, parts=model.parts)
    raise registry.ModelNotPulled(name)
