"""Settings of a machine that carries out releases for Prefect: they come from its own environment, never from Prefect.

A flow run says one thing, the number of a request. The home, the destination of bundles and the device are those of
the machine, so that nobody who reaches the Prefect server can name others.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flows.orchestration.request_links import dashboard_address
from models_db.errors import UsageError
from models_db.home import ProjectHome
from tasks.object_storage.address import Place, parse_place

DESTINATION_VARIABLE: Final = "ALMONER_PUBLISH_TO"
DEVICE_VARIABLE: Final = "ALMONER_DEVICE"
HOME_VARIABLE: Final = "ALMONER_HOME"


@dataclass(frozen=True)
class WorkerSettings:
    """Home, destination of bundles, and device of a machine.

    Attributes:
        destination: a folder, or an address in an object store, as it was typed.
    """

    home: ProjectHome
    destination: str
    device: str = "auto"

    @classmethod
    def of_environment(cls) -> "WorkerSettings":
        """Return the settings that the environment names.

        Raises:
            UsageError: it names no destination (`DestinationMissing`), its home is no path, or its dashboard has no
                address to link to.
        """
        destination = os.environ.get(DESTINATION_VARIABLE)
        if not destination:
            raise UsageError(
                f"{DESTINATION_VARIABLE} names no destination, so no release could be published from here.",
                f"Set {DESTINATION_VARIABLE} to a folder or s3://bucket/prefix, or use `almoner worker --to`.",
                code="DestinationMissing",
            )
        dashboard_address()
        return cls(ProjectHome.locate(), destination, os.environ.get(DEVICE_VARIABLE, "auto"))

    @property
    def place(self) -> Place:
        """The destination.

        Raises:
            as `tasks.object_storage.address.parse_place`.
        """
        return parse_place(self.destination)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables from which a child process reads the same settings."""
        return {
            HOME_VARIABLE: str(self.home.root),
            DESTINATION_VARIABLE: self.destination,
            DEVICE_VARIABLE: self.device,
        }
