"""Layout of a release over public labels, groups and batches: public numbers only (PRIVACY §3, §5).

*Labels and groups*: labels of its texts, groups that it summarises. A group is a product, a ward, a court: something
public that several units wrote about. Its name is the label of their documents. Which groups there are, and what is
said of them, is declared: by the dataset's owner as a catalogue (`groups` of its public metadata), or in the request. A
group that nobody wrote about gets a summary all the same.

*Batches*. A block is split by keyed hash into `per_block` batches, and each sample has one batch to itself. `per_block`
is declared in the request, or follows from a declared or noisily counted population so that a batch has about as many
units as `references`; it may exceed the number of samples, and then only the first batches are read. Which ones is
public and the same for all units, so a unit in an unread batch contributes nothing, and a unit in a read one meets
exactly one sample's draws: every block is still charged once (docs/decisions/0002).

With labels, a block is split once for each label of the public set. A unit is read under one label, so it is in one
batch as before. How many units a label has is private: they are taken to be equally many, so a frequent label has
fuller batches than `references`, and a rare one emptier ones (docs/decisions/0020).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, Field, model_validator

from models_db.errors import UsageError
from models_db.values.requests import PublicGroup, RequestModel, model_to_json, require_distinct_groups
from tasks.corpus.store import Place
from tasks.corpus.units import MOST_LABELS, DeclaredLabels, normalise_label
from tasks.values.results import GeneratedText, ReleaseKind

EVERY_GROUP: Final = "all"
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
    if requested == EVERY_GROUP and not catalogue:
        raise _group_unknown(EVERY_GROUP, 0)
    if requested == EVERY_GROUP:
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
        if name != EVERY_GROUP
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


def batches_per_cell(samples: int, cells: int, declared: int | None = None) -> int:
    """Return the least number of batches of each cell that gives every sample one of its own.

    Args:
        cells: blocks times labels.
        declared: batches of each cell that a request declares; more than the least are made, fewer are not.
    """
    return max(-(-samples // cells), declared or 0)


@dataclass(frozen=True)
class BatchLayout:
    """Distribution of `samples` over blocks and labels: as even as possible over either, earlier ones first.

    Attributes:
        labels: how many labels the request declares; 1 without labels.
    """

    samples: int
    blocks: int
    labels: int = 1

    def __post_init__(self) -> None:
        if self.samples < self.blocks:
            raise UsageError(
                f"{self.samples} samples cannot be shared by {self.blocks} blocks: each block makes at least one.",
                f"Ask for at least {self.blocks} samples.",
                {"samples": self.samples, "blocks": self.blocks},
                code="BlockWithoutSample",
            )
        if self.samples < self.labels:
            raise UsageError(
                f"{self.samples} samples cannot be shared by {self.labels} labels: each label has at least one.",
                f"Ask for at least {self.labels} samples, or declare fewer labels.",
                {"samples": self.samples, "labels": self.labels},
                code="LabelWithoutSample",
            )

    @property
    def cells(self) -> int:
        """Number of splits into batches: one for each label of each block."""
        return self.blocks * self.labels

    @property
    def most_in_a_block(self) -> int:
        """The least `per_block` that gives every sample a batch of its own."""
        return batches_per_cell(self.samples, self.cells)

    def per_block(self, units: int, references: int) -> int:
        """Return the batches per block and label, so that `units` units make batches of about `references`."""
        return max(self.most_in_a_block, round(max(units, 0) / (self.cells * references)))

    def sources(self) -> list[tuple[Place, ...]]:
        """Return the one batch of every sample, in the public order of the texts."""
        return [(place,) for place in sorted(self._place(sample) for sample in range(self.samples))]

    def labels_of_texts(self, labels: Sequence[str]) -> list[str | None]:
        """Return the label of every text, in their public order; None if there are no labels."""
        return [labels[label] if labels else None for ((_, label, _),) in self.sources()]

    def _place(self, sample: int) -> Place:
        """Return the place of a sample.

        Blocks and labels advance together; a shift by one after each common round reaches every pair exactly once.
        """
        batch, cell = divmod(sample, self.cells)
        return (cell + cell // lcm(self.blocks, self.labels)) % self.blocks, cell % self.labels, batch


@dataclass(frozen=True)
class GroupLayout:
    """One text for each public group, made of all units that are read for it, from every block.

    A unit is in one block, and read for as many groups at most as its contribution bound says: so much is charged, to
    every block.
    """

    groups: int
    blocks: int

    cells = 1
    most_in_a_block = 1

    def per_block(self, units: int, references: int) -> int:
        """Return 1: a group's units are not split any further."""
        return 1

    def sources(self) -> list[tuple[Place, ...]]:
        """Return the parts of every group, one in each block, in the order of the groups."""
        return [tuple((block, group, 0) for block in range(self.blocks)) for group in range(self.groups)]

    def labels_of_texts(self, labels: Sequence[str]) -> list[str | None]:
        """Return the groups' names, in their order."""
        return list(labels)


Layout: TypeAlias = BatchLayout | GroupLayout


def layout_of(parts: PartParameters, samples: int, blocks: int) -> Layout:
    """Return the layout of a release's texts over blocks and labels, or over groups.

    Raises:
        BlockWithoutSample, LabelWithoutSample: there are too few samples.
    """
    if parts.groups:
        return GroupLayout(len(parts.groups), blocks)
    return BatchLayout(samples, blocks, max(1, len(parts.labels)))


def labels_without_batches(parts: PartParameters, samples: int) -> list[str | None]:
    """Return the label of every text of a system whose texts belong to no batch, in their public order.

    Raises:
        LabelWithoutSample: there are too few samples.
    """
    return layout_of(parts, samples, 1).labels_of_texts(parts.names)


def with_labels(texts: Sequence[GeneratedText], labels: Sequence[str | None]) -> tuple[GeneratedText, ...]:
    """Return the texts with the labels of their places, one for each."""
    return tuple(replace(text, label=label) for text, label in zip(texts, labels, strict=True))
