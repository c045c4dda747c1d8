"""A dataset: ingest its versions, see its budget, price and submit requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from almoner.inputs import Data, open_input
from almoner.request import Request, RequestFields, written_fields
from almoner.session import session
from almoner.views import Budget, Price
from models_db.home import ProjectHome
from models_db.services import datasets

if TYPE_CHECKING:
    from tasks.corpus.units import LabelFields
    from tasks.ingest import RecordedVersion

ID_FIELD = "id"
"""The field with a document's id, which data may have."""


@dataclass(frozen=True)
class Dataset:
    """A registered dataset."""

    project: ProjectHome = field(repr=False)
    name: str

    def ingest(
        self,
        data: Data,
        *,
        label_field: "LabelFields" = None,
        new_cohort: bool = False,
        population: int | None = None,
        allow_unit: Sequence[str] = (),
    ) -> "RecordedVersion":
        """Copy data into the home as the next version of the dataset: all of it, or nothing.

        Args:
            data: a pandas or polars data frame, a pyarrow table, batch or reader, a `datasets.Dataset`, an iterable of
                dicts; or a path or address of what `almoner dataset ingest` takes. Tables are read a thousand rows at a
                time, and only the fields of unit, text, id and label (docs/python-api.md#data-frames).
            label_field: the field of a document's label or group, or several whose values together are the label; kept
                private.
            new_cohort: whether units that are new from here on get a budget of their own.
            population: the declared, public number of units of the new cohort.
            allow_unit: ids of units that are taken although they spell a missing value, such as the name `Null`.

        Returns:
            The version: its `number`; its `documents`, which are private and not in its repr.

        Raises:
            InputUnknown, InputUnreadable: it is no data of these kinds, or its library cannot convert it.
            ColumnMissing, BadRecord: a field is missing, or a record cannot be taken.
            AlmonerError: the errors of `flows.datasets.register.ingest`.
        """
        from flows.datasets import register as registration
        from tasks.corpus.units import fields_of_label

        with session(self.project, label_field=label_field, population=population) as workspace:
            with workspace.database.read() as ledger:
                row = datasets.find_dataset(ledger, self.name)
                fields = registration.source_fields(row.text_field, row.unit_field, *fields_of_label(label_field))
            registration.preview_ingest(workspace, self.name, new_cohort=new_cohort, population=population)
            with open_input(self.project, data, fields, optional=ID_FIELD) as source:
                return registration.ingest(
                    workspace,
                    self.name,
                    source,
                    label_field,
                    new_cohort=new_cohort,
                    population=population,
                    allowed_units=allow_unit,
                )

    def budget(self) -> Budget:
        """Return the lifetime budget, as `almoner budget show` shows it.

        Raises:
            BalancesWithheld: the policy hides the figures from the owner of this home.
        """
        from flows.datasets.budget import summarise_budget

        with session(self.project) as workspace:
            return Budget(summarise_budget(workspace, self.name))

    def price(
        self, request: Mapping[str, object] | str | Path | None = None, /, **fields: Unpack[RequestFields]
    ) -> Price:
        """Price a request without submitting it; nothing is read, and nothing spent.

        Args:
            request: a mapping of the fields of a request, or the path of a request file; `fields` are put over it.

        Raises:
            AlmonerError: the errors of `request`, except for those of the budget.
        """
        from flows.releases.propose import propose_release

        with session(self.project):
            written = written_fields(self.name, request, fields)
            return Price(propose_release(self.project.root, written, dry_run=True).price)

    def request(
        self,
        request: Mapping[str, object] | str | Path | None = None,
        /,
        *,
        standing: int | None = None,
        accept_weak_promise: bool = False,
        **fields: Unpack[RequestFields],
    ) -> Request:
        """Price a request and submit it to the spend gate, as `almoner release request` does; nothing is spent.

        Args:
            request: a mapping of the fields of a request, or the path of a request file; `fields` are put over it.
            standing: the standing authorisation that it is made under.
            accept_weak_promise: whether it may be submitted although almoner calls epsilon or delta weak.

        Raises:
            DatasetMismatch: it names another dataset.
            FileInvalid, UsageError: it is not valid.
            PolicyForbids, WeakPromise, BudgetExceeded: it may not be submitted.
            AlmonerError: the errors of `flows.releases.propose.propose_release`.
        """
        from flows.releases.propose import propose_release

        with session(self.project, standing=standing):
            written = written_fields(self.name, request, fields)
            submitted = propose_release(self.project.root, written, False, standing, accept_weak_promise)
        if submitted.request_id is None:
            raise RuntimeError("a submitted request has a number")
        return Request(self.project, submitted.request_id, Price(submitted.price))
