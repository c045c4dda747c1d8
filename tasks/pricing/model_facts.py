"""Facts of the model that a request names: its identity, what a check of it found, and how its prompts read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel

from models_db.values.canonical_json import Json
from tasks.common.network import is_external
from tasks.inference.backends.endpoints import Endpoint, endpoint_of
from tasks.inference.catalogue import registry
from tasks.inference.catalogue.local_models import LocalModel, MergedParts, ModelFolderMissing
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.loading.check_model import require_usable
from tasks.inference.loading.check_request import check_grammar, check_prompt
from tasks.inference.prompts.prompt_spec import PromptSpec
from tasks.inference.prompts.rendered import RenderedPrompt
from tasks.planning.labels_and_groups import shown_names
from tasks.values.plan import Generator


@dataclass(frozen=True)
class ModelFacts:
    """Identity of a model by digest; for an endpoint, the digest of its configuration.

    `parts` are the digests of base and adapter, where an adapter was merged.
    `check`, `render` and `follow` are a local model's: the result of checking it; a function that renders its prompts,
    given the labels or groups as prompts name them; and one that refuses a grammar that its tokens cannot follow.
    """

    name: str
    revision: str
    digest: str
    licence: str
    endpoint: Endpoint | None = None
    check: ModelCheck | None = None
    render: Callable[[PromptSpec, Sequence[str]], RenderedPrompt] | None = field(default=None, compare=False)
    follow: Callable[[BaseModel], None] | None = field(default=None, compare=False)
    parts: MergedParts | None = None

    def to_json(self) -> dict[str, Json]:
        """Return it as it stands in a request."""
        whole = {"name": self.name, "revision": self.revision, "sha256": self.digest, "licence": self.licence}
        return {**whole, **({} if self.parts is None else self.parts.to_json())}

    def rendered(self, system: Generator[Any], prompt: PromptSpec, parameters: BaseModel) -> RenderedPrompt | None:
        """Return the prompts as the model reads them; None if its rows read others, or it is not on this machine.

        Raises:
            NoChatTemplate, BadDescription, ControlTokens.
        """
        if self.render is None or not system.renders_prompt:
            return None
        return self.render(prompt, shown_names(parameters))

    def require_writable(self, parameters: BaseModel) -> None:
        """Check that a model of this machine can write texts of the schema, form or outline in so many tokens.

        Raises:
            TokenizerNotSupported, EndTokenMissing, TokenLimitTooSmall, FormNotWritable, FormTooLong.
        """
        if self.follow is not None:
            self.follow(parameters)


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
        raise ModelFolderMissing(name, known.folder)
    for model in registry.list_models():
        if model.name == name and model.installed and model.digest:
            return ModelFacts(
                model.name,
                model.revision,
                model.digest,
                model.licence,
                check=require_usable(name),
                render=partial(check_prompt, name),
                follow=partial(check_grammar, name),
                parts=model.parts,
            )
    raise registry.ModelNotPulled(name)
