"""Public labels and groups of a release: labels of its texts, groups that it summarises (PRIVACY §3, §5).

A group is a product, a ward, a court: something public that several units wrote about. Its name is the label of their
documents. Which groups there are, and what is said of them, is declared: by the dataset's owner as a catalogue
(`groups` of its public metadata), or in the request. A group that nobody wrote about gets a summary all the same.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import PublicGroup, RequestModel, model_to_json, require_distinct_groups
from tasks.corpus.units import MOST_LABELS, DeclaredLabels, normalise_label
from tasks.values.results import ReleaseKind

EVERY: Final = "all"
"""Value of `groups` that stands for the whole catalogue of the dataset, in its order."""


class PartParameters(RequestModel):
    """Labels and groups in a system's `parameters:`; all of it is public.

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
        """Labels of documents in this release: the names of its groups, or its labels."""
        return tuple(group.id for group in self.groups) or self.labels

    @property
    def shown(self) -> tuple[str, ...]:
        """Descriptions of the same groups or labels in the model's prompt."""
        return tuple(group.shown for group in self.groups) or self.labels

    @model_validator(mode="before")
    @classmethod
    def _one_text_a_group(cls, fields: Any) -> Any:
        """Set the number of samples to that of the groups, where a request names none."""
        if isinstance(fields, Mapping) and isinstance(fields.get("groups"), list | tuple) and fields["groups"]:
            return {"samples": len(fields["groups"]), **fields}
        return fields

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if not self.groups:
            if self.groups_per_unit != 1:
                raise ValueError("groups_per_unit is about groups, and none are declared")
            return self
        if self.groups_per_unit > len(self.groups):
            raise _contribution_bound_exceeded(self.groups_per_unit, len(self.groups))
        for name, unfit in (
            ("samples", len(self.groups)), ("batches", None), ("labels", ()),
        ):  # fmt: skip
            if getattr(self, name, unfit) != unfit:
                raise UsageError(
                    f"With `groups`, `{name}` is fixed: each group gets one text, made from all units that wrote in"
                    " it.",
                    f"Leave `{name}` out.",
                    {"parameter": name},
                    code="GroupsContradicted",
                )
        return self


def labels_of(parameters: BaseModel) -> tuple[str, ...]:
    """Return the public labels of a system's parameters; none if the system has no labels."""
    return parameters.labels if isinstance(parameters, PartParameters) else ()


def names_of(parameters: BaseModel) -> tuple[str, ...]:
    """Return the labels of documents in a release: the names of its groups, or its labels."""
    return parameters.names if isinstance(parameters, PartParameters) else ()


def shown_names(parameters: BaseModel) -> tuple[str, ...]:
    """Return the labels or groups of a release as prompts name them."""
    return parameters.shown if isinstance(parameters, PartParameters) else ()


def part_facts(parameters: PartParameters) -> dict[str, str]:
    """Return the facts about labels and groups that a plan shows."""
    if not parameters.groups:
        return {"labels": ", ".join(parameters.labels)} if parameters.labels else {}
    return {"groups": str(len(parameters.groups)), "groups per unit m": str(parameters.groups_per_unit)}


def require_parts_for(kind: str, parameters: BaseModel) -> None:
    """Check that a release of that kind can be made with these labels and groups, or without any.

    Raises:
        LabelsNeeded: demonstrations without labels.
        GroupsNeeded: summaries without groups.
        GroupsUnexpected: groups in another kind of release.
    """
    groups = parameters.groups if isinstance(parameters, PartParameters) else ()
    if kind == ReleaseKind.DEMONSTRATIONS and not labels_of(parameters):
        raise UsageError(
            "The kind `demonstrations` is texts with labels, and the request declares none.",
            "Declare the public set: `parameters.labels: [...]`; or ask for a `synthetic_corpus`.",
            code="LabelsNeeded",
        )
    if kind == ReleaseKind.SUMMARIES and not groups:
        raise groups_needed()
    if kind != ReleaseKind.SUMMARIES and groups:
        raise UsageError(
            f"A release of kind {kind!r} has no groups.",
            "Set `kind: summaries`, or leave `parameters.groups` out.",
            {"kind": kind},
            code="GroupsUnexpected",
        )


def with_catalogue(parameters: Mapping[str, Any], catalogue: Sequence[PublicGroup]) -> dict[str, Any]:
    """Return the request's `parameters` with the named groups filled in from the dataset's catalogue.

    Args:
        parameters: as the request's author wrote them; `groups` is `all`, or a list of ids and of whole groups.
        catalogue: what the dataset's owner has declared; where it is empty, a request declares its groups itself.

    Raises:
        GroupUnknown: a group that the catalogue does not have, or `all` of none.
    """
    requested = parameters.get("groups")
    if requested == EVERY and not catalogue:
        raise _group_unknown(EVERY, 0)
    if requested == EVERY:
        return {**parameters, "groups": model_to_json(list(catalogue))}
    if not catalogue or not isinstance(requested, list | tuple):
        return dict(parameters)
    declared = {group.id: group for group in catalogue}
    return {**parameters, "groups": [_catalogue_group(group, declared) for group in requested]}


def _catalogue_group(requested: object, declared: Mapping[str, PublicGroup]) -> object:
    """Return the catalogue's group of that name; a group that the request writes out itself stays."""
    identifier = requested.get("id") if isinstance(requested, Mapping) else requested
    try:
        name = normalise_label(identifier)
    except ValueError:
        return requested  # validation of the format reports what is wrong with it
    if name is not None and name not in declared:
        raise _group_unknown(name, len(declared))
    return requested if isinstance(requested, Mapping) or name is None else model_to_json(declared[name])


def groups_needed() -> UsageError:
    """Return the error of summaries without groups."""
    return UsageError(
        "The kind `summaries` is one text for each public group, and the request names none.",
        "Declare them: `parameters.groups: [...]`, or `all` of the dataset's catalogue. See docs/summaries.md.",
        code="GroupsNeeded",
    )


def _group_unknown(name: str, declared: int) -> UsageError:
    return UsageError(
        f"The group {name!r} is not among the {declared} that the dataset's public metadata declares."
        if name != EVERY
        else "`groups: all` needs a dataset whose public metadata declares its groups.",
        "Correct the request, or have the dataset's owner declare the group. Nothing was submitted.",
        {"group": name, "declared": declared},
        code="GroupUnknown",
    )


def _contribution_bound_exceeded(bound: int, groups: int) -> UsageError:
    return UsageError(
        f"groups_per_unit is {bound}, and the release has {groups} groups: more would be paid than can be read.",
        f"Set it to {groups} at most. A smaller bound costs less, and reads each unit in fewer groups.",
        {"groups_per_unit": bound, "groups": groups},
        code="ContributionBoundExceeded",
    )
