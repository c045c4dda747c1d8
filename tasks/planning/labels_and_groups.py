"""The public parts of a release: labels under which texts are written, or groups that it summarises (PRIVACY §3, §5).

A group is a product, a ward, a court: something public that several units wrote about. Its name is the label of their
documents. Which groups there are, and what is said of them, is declared: by the dataset's owner as a catalogue
(`groups` of its public metadata), or in the request. A group that nobody wrote about gets a summary all the same.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import PublicGroup, RequestModel, model_to_json, require_distinct_groups
from tasks.corpus.identity.labels import MOST_LABELS, DeclaredLabels, normalise_label
from tasks.values.release_kinds import ReleaseKind

EVERY: Final = "all"
"""`groups: all`: the whole catalogue of the dataset, in its order."""


class PartParameters(RequestModel):
    """What a system's `parameters:` say about labels and groups; all of it is public.

    Attributes:
        labels: each text is written under one of them, in turn; empty for texts without.
        groups: in the public order of the summaries; empty in every other kind of release.
        groups_per_unit: the contribution bound m. A unit that wrote in more groups is read in m of them, which a keyed
            hash of its own id chooses; what one group costs is charged m times.
    """

    labels: DeclaredLabels = ()
    groups: Annotated[
        tuple[PublicGroup, ...], Field(max_length=MOST_LABELS), AfterValidator(require_distinct_groups)
    ] = ()
    groups_per_unit: Annotated[int, Field(ge=1)] = 1

    @property
    def names(self) -> tuple[str, ...]:
        """What documents carry as their label, in this release: the names of its groups, or its labels."""
        return tuple(group.id for group in self.groups) or self.labels

    @property
    def shown(self) -> tuple[str, ...]:
        """The same as the model is told of them."""
        return tuple(group.shown for group in self.groups) or self.labels

    @model_validator(mode="before")
    @classmethod
    def _one_text_a_group(cls, written: Any) -> Any:
        """As many samples as groups, where a request does not say so itself."""
        if isinstance(written, Mapping) and isinstance(written.get("groups"), list | tuple) and written["groups"]:
            return {"samples": len(written["groups"]), **written}
        return written

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.groups:
            if self.groups_per_unit != 1:
                raise ValueError("groups_per_unit is about groups, and none are declared")
            return self
        if self.groups_per_unit > len(self.groups):
            raise ContributionBoundExceeded(self.groups_per_unit, len(self.groups))
        for name, unfit in (("samples", len(self.groups)), ("batches", None), ("labels", ())):
            if getattr(self, name, unfit) != unfit:
                raise GroupsContradicted(name)
        return self


def labels_of(parameters: BaseModel) -> tuple[str, ...]:
    """The public labels that a system's parameters declare; none where the system knows none."""
    return parameters.labels if isinstance(parameters, PartParameters) else ()


def names_of(parameters: BaseModel) -> tuple[str, ...]:
    """What documents carry as their label in a release: the names of its groups, or its labels."""
    return parameters.names if isinstance(parameters, PartParameters) else ()


def part_facts(wanted: PartParameters) -> dict[str, str]:
    """Labels and groups, for people."""
    if not wanted.groups:
        return {"labels": ", ".join(wanted.labels)} if wanted.labels else {}
    return {"groups": str(len(wanted.groups)), "groups per unit m": str(wanted.groups_per_unit)}


def require_parts_for(kind: str, parameters: BaseModel) -> None:
    """Check that a release of that kind can be made with these labels and groups, or without any.

    Raises:
        LabelsNeeded: demonstrations without labels.
        GroupsNeeded: summaries without groups.
        GroupsUnexpected: groups in another kind of release.
    """
    groups = parameters.groups if isinstance(parameters, PartParameters) else ()
    if kind == ReleaseKind.DEMONSTRATIONS and not labels_of(parameters):
        raise LabelsNeeded
    if kind == ReleaseKind.SUMMARIES and not groups:
        raise GroupsNeeded
    if kind != ReleaseKind.SUMMARIES and groups:
        raise GroupsUnexpected(kind)


def with_catalogue(parameters: Mapping[str, Any], catalogue: Sequence[PublicGroup]) -> dict[str, Any]:
    """The request's `parameters` with each group that is named written out from the dataset's catalogue.

    Args:
        parameters: as the request's author wrote them; `groups` is `all`, or a list of ids and of whole groups.
        catalogue: what the dataset's owner has declared; where it is empty, a request declares its groups itself.

    Raises:
        GroupUnknown: a group that the catalogue does not have, or `all` of none.
    """
    asked = parameters.get("groups")
    if asked == EVERY and not catalogue:
        raise GroupUnknown(EVERY, 0)
    if asked == EVERY:
        return {**parameters, "groups": model_to_json(list(catalogue))}
    if not catalogue or not isinstance(asked, list | tuple):
        return dict(parameters)
    known = {group.id: group for group in catalogue}
    return {**parameters, "groups": [_declared(one, known) for one in asked]}


def _declared(asked: object, known: Mapping[str, PublicGroup]) -> object:
    """A group of the catalogue; what a request says of it itself stays."""
    written = asked.get("id") if isinstance(asked, Mapping) else asked
    try:
        name = normalise_label(written)
    except ValueError:
        return asked  # the format says what is wrong with it
    if name is not None and name not in known:
        raise GroupUnknown(name, len(known))
    return asked if isinstance(asked, Mapping) or name is None else model_to_json(known[name])


class LabelsNeeded(UsageError):
    """Demonstrations without labels."""

    def __init__(self) -> None:
        super().__init__(
            "The kind `demonstrations` is texts with labels, and the request declares none.",
            "Declare the public set: `parameters.labels: [...]`; or ask for a `synthetic_corpus`.",
        )


class GroupsNeeded(UsageError):
    """Summaries of nothing."""

    def __init__(self) -> None:
        super().__init__(
            "The kind `summaries` is one text for each public group, and the request names none.",
            "Declare them: `parameters.groups: [...]`, or `all` of the dataset's catalogue. See docs/summaries.md.",
        )


class GroupsUnexpected(UsageError):
    """Groups where nothing is summarised."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"A release of kind {kind!r} has no groups.",
            "Set `kind: summaries`, or leave `parameters.groups` out.",
            {"kind": kind},
        )


class GroupUnknown(UsageError):
    """A group that the dataset's catalogue does not have."""

    def __init__(self, name: str, known: int) -> None:
        super().__init__(
            f"The group {name!r} is not among the {known} that the dataset's public metadata declares."
            if name != EVERY
            else "`groups: all` needs a dataset whose public metadata declares its groups.",
            "Correct the request, or have the dataset's owner declare the group. Nothing was submitted.",
            {"group": name, "declared": known},
        )


class ContributionBoundExceeded(UsageError):
    """More groups per unit than there are groups."""

    def __init__(self, bound: int, groups: int) -> None:
        super().__init__(
            f"groups_per_unit is {bound}, and the release has {groups} groups: more would be paid than can be read.",
            f"Set it to {groups} at most. A smaller bound costs less, and reads each unit in fewer groups.",
            {"groups_per_unit": bound, "groups": groups},
        )


class GroupsContradicted(UsageError):
    """A parameter that the groups decide."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"With `groups`, `{name}` is fixed: each group gets one text, made from all units that wrote in it.",
            f"Leave `{name}` out.",
            {"parameter": name},
        )
