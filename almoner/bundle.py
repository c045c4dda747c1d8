"""A published bundle: verify it, read its texts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from almoner.rows import TEXT_COLUMNS, Rows, topic_rows
from models_db.home import ProjectHome

if TYPE_CHECKING:
    from tasks.object_storage.address import Place
    from tasks.publishing.verify import VerificationReport

BUNDLE_COLUMNS = TEXT_COLUMNS[:3]


@dataclass(frozen=True)
class Bundle:
    """A published bundle, on this machine or in a store.

    Attributes:
        project: the home whose settings open stores; a bundle on this machine needs none.
        place: the folder, or the address.
    """

    project: ProjectHome = field(repr=False)
    place: "Place"

    @classmethod
    def at(cls, place: str | os.PathLike[str]) -> "Bundle":
        """Return the bundle at a path or address; verify it before you rely on it."""
        from tasks.object_storage.address import parse_place

        return cls(ProjectHome.locate(), parse_place(os.fspath(place)))

    def verify(self, key: str | None = None) -> "VerificationReport":
        """Verify it offline, as `almoner verify-release` does: digests, signatures, approvals, epsilon recomputed.

        Args:
            key: the publisher's public key from another source; without it the origin stays unproven.

        Returns:
            The checks, with `holds` for all of them and a `conclusion` in words.
        """
        from tasks.publishing.verify import verify_release

        with self._folder() as folder:
            return verify_release(folder, key)

    def texts(self) -> Rows:
        """Return all published texts: `id`, `label`, `text`.

        Raises:
            NoBundle, FileUnfit: there is no bundle, or a file of it is not in its format.
        """
        from tasks.release.bundle_format import read_labelled

        with self._folder() as folder:
            rows = tuple(
                {"id": number, "label": label, "text": text}
                for number, (text, label) in enumerate(read_labelled(folder), 1)
            )
        return Rows(rows, f"texts of {self.place}", BUNDLE_COLUMNS)

    def topics(self) -> Rows:
        """Return all published topics, parents before their children.

        Raises:
            NotInsights: it is a release of another kind.
            NoBundle, FileUnfit: as `texts`.
        """
        from flows.releases.release_texts import read_topics

        with self._folder() as folder:
            return topic_rows(read_topics(folder, str(self.place)), f"topics of {self.place}")

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        from flows.workspace.object_stores import open_bundle_folder

        with open_bundle_folder(self.project, self.place) as folder:
            yield folder
