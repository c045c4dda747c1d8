"""A project home: its datasets and its requests."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from almoner.dataset import Dataset
from almoner.inputs import Data, open_input
from almoner.request import Request
from almoner.session import session
from models_db.home import ProjectHome
from models_db.services import datasets, requests


def open_home(home: str | os.PathLike[str] | None) -> "Home":
    """Open a project home; see `almoner.open`."""
    project = ProjectHome.locate(None if home is None else Path(home))
    with session(project) as workspace:
        return Home(project, workspace.actor.name)


@dataclass(frozen=True, repr=False)
class Home:
    """A project home, used by the owner of its signing key.

    Attributes:
        project: its paths.
        principal: the name under which the ledger knows the owner: who registers, asks, decides and runs.
    """

    project: ProjectHome
    principal: str

    def __repr__(self) -> str:
        return f"Home({str(self.project.root)!r}, principal {self.principal!r})"

    def register(
        self,
        name: str,
        *,
        unit: str | None = None,
        epsilon: Any = None,
        delta: Any = None,
        text: str = "text",
        blocks: int | None = None,
        population: int | None = None,
        public: bool = False,
        public_metadata: object = None,
        shares_account_with: str | None = None,
        accept_weak_promise: bool = False,
        check: Data | None = None,
        allow_unit: Sequence[str] = (),
    ) -> Dataset:
        """Register a dataset with its lifetime claim, as `almoner dataset register` does.

        A notebook may repeat it: a dataset that is registered with exactly these terms is returned as it is. Until its
        first version, proposal or erasure other terms register it again.

        Args:
            unit: the field that names the person; without it each record is a unit.
            epsilon: of the lifetime claim, which is never exceeded and never reset: a number, or its decimal text.
            delta: of the same claim, in the same form.
            text: the field that holds the text.
            blocks: the number of disjoint blocks of the units, each with the whole budget.
            population: the declared, public number of people.
            public: whether the data is public, so that no guarantee is made or needed.
            public_metadata: the owner's statements on published data, a mapping (docs/bundle.md).
            shares_account_with: the dataset of the same people whose budget this one shares.
            accept_weak_promise: whether a claim that almoner calls weak may be registered.
            check: data whose first records are read before anything is fixed; nothing of them is kept.
            allow_unit: ids of units that `check` takes although they spell a missing value, such as the name `Null`.

        Raises:
            ClaimRequired, UnexpectedClaim, WeakPromise, InvalidTarget: the claim is missing, doubled, weak or none.
            DatasetExists, InvalidPlainName, InvalidDatasetText, FileInvalid: a name or the metadata is unfit.
            RuleViolated: only a steward or an admin registers a dataset.
            UsageError: `check` lacks a field, or is no data.
        """
        with session(self.project, name=name, unit=unit, text=text, population=population, blocks=blocks) as workspace:
            from flows.datasets import register as registration

            metadata = None if public_metadata is None else registration.metadata_text(public_metadata)
            terms = datasets.Registration(name, unit, text, not public, population, metadata)
            if check is not None:
                fields = registration.source_fields(text, unit)
                with open_input(self.project, check, fields, most=registration.RECORDS_CHECKED) as source:
                    registration.check_fields(source, terms, allowed_units=allow_unit)
            claim = registration.ClaimTerms(
                None if epsilon is None else str(epsilon),
                None if delta is None else str(delta),
                blocks,
                shares_account_with,
                accept_weak_promise,
            )
            if not registration.is_registered(workspace, terms, claim):
                registration.register(workspace, terms, claim)
        return Dataset(self.project, name)

    def dataset(self, name: str) -> Dataset:
        """Return a registered dataset.

        Raises:
            DatasetUnknown: there is none of that name.
        """
        with session(self.project, name=name) as workspace, workspace.database.read() as ledger:
            datasets.find_dataset(ledger, name)
        return Dataset(self.project, name)

    def datasets(self) -> tuple[Dataset, ...]:
        """Return all registered datasets by name."""
        with session(self.project) as workspace, workspace.database.read() as ledger:
            return tuple(Dataset(self.project, each.name) for each in datasets.list_all(ledger))

    def request(self, number: int) -> Request:
        """Return a request that was submitted before, here or by a command.

        Raises:
            RequestUnknown: the ledger has no such request.
        """
        with session(self.project, number=number) as workspace, workspace.database.read() as ledger:
            requests.find_request(ledger, number)
        return Request(self.project, number)
