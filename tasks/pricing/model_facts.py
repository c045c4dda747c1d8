"""Facts of the model that a request names, and the form and wording of the prompt that it reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from models_db.errors import UsageError
from models_db.values.canonical_json import Json
from models_db.values.requests import Prompt
from tasks.common.network import is_external
from tasks.evaluation.registry import Metric
from tasks.inference.backends.endpoints import Endpoint, endpoint_of
from tasks.inference.catalogue import registry
from tasks.inference.catalogue.model_check import ModelCheck
from tasks.inference.catalogue.registry import LocalModel, MergedParts, model_folder_missing, preset_of
from tasks.inference.loading.check_model import check_grammar, check_prompt, require_conversation, require_usable
from tasks.inference.prompt_rendering import RenderedPrompt
from tasks.inference.prompt_spec import PromptSpec
from tasks.planning.layout import shown_names
from tasks.systems.base import System
from tasks.values.results import ReleaseKind


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


def with_default_preset(prompt: Prompt, kind: str, system: System, model: str, *, labelled: bool) -> Prompt:
    """Return the prompt with the preset of its kind of release or of its model, where the request names no wording.

    A model's preset was measured for texts of one kind (docs/utility.md), so texts with labels keep the default.

    Raises:
        WordingUnused: the prompt has a wording, and the kind of release uses none.
    """
    unworded = Prompt(description=prompt.description, examples=prompt.examples, date=prompt.date)
    if kind == ReleaseKind.INSIGHTS and prompt != Prompt(description=prompt.description):
        raise UsageError(
            f"A release of {kind} words its prompts itself; only `prompt.description` is used.",
            "Leave `preset` and the templates out of `prompt`.",
            {"kind": kind},
            code="WordingUnused",
        )
    if kind == ReleaseKind.SUMMARIES and prompt.preset is None and prompt.form is None:
        return prompt.model_copy(update={"preset": "summary"})
    preset = preset_of(model)
    if preset is None or kind != ReleaseKind.SYNTHETIC_CORPUS or labelled or prompt != unworded:
        return prompt
    return prompt.model_copy(update={"preset": preset}) if system.renders_prompt else prompt


def require_form(
    prompt: Prompt, system: System, metrics: Iterable[Metric], model: str, check: ModelCheck | None
) -> None:
    """Check that the system and the model can be asked in the request's form, and the model in that of its metrics.

    Args:
        check: a local model's; None if the model is behind an API, which holds conversations.

    Raises:
        FormUnsupported, ExamplesUnsupported: the system asks its model in conversations of its own.
        NoChatTemplate: the form is a conversation, and the model has none.
        MetricNeedsConversation: a metric asks the model in a conversation, and the model has none.
    """
    if prompt.form == "completion" and not system.renders_prompt:
        raise UsageError(
            f"{system.name!r} asks its model in conversations, so it cannot use `prompt.form: completion`.",
            "Leave `prompt.form` out and name an instruction-tuned model, or choose a mechanism that draws texts token"
            " by token, such as invisible_ink.",
            {"mechanism": system.name},
            code="FormUnsupported",
        )
    if prompt.examples and not system.renders_prompt:
        raise UsageError(
            f"{system.name!r} asks its model in conversations of its own, so no row would read `prompt.examples`.",
            "Leave them out, or choose a mechanism that draws texts token by token, such as invisible_ink.",
            {"mechanism": system.name},
            code="ExamplesUnsupported",
        )
    if prompt.form is None and check is not None:
        require_conversation(check)
    if check is not None and check.template_problem:
        for metric in metrics:
            if "conversation" in metric.needs:
                raise UsageError(
                    f"The metric {metric.name!r} asks the model {model!r} in a conversation, and it has no usable"
                    " chat template.",
                    "Leave the metric out of `evaluation`, or name an instruction-tuned model.",
                    {"metric": metric.name, "model": model},
                    code="MetricNeedsConversation",
                )


def require_context(parameters: BaseModel, check: ModelCheck | None, rendered: RenderedPrompt | None = None) -> None:
    """Check that the model's context holds the texts that `parameters` read and write, beside the prompt.

    Without a rendered prompt the shortest conversation counts.

    Systems that read a text and write in one row say so by `row_tokens`; of others the longer of the two counts.

    Raises:
        ContextTooLong.
    """
    if check is not None:
        lengths = (getattr(parameters, field, 0) for field in ("max_reference_tokens", "max_new_tokens"))
        prompt_tokens = None if rendered is None else rendered.tokens
        check.require_context(getattr(parameters, "row_tokens", max(lengths)), prompt_tokens)
