"""An update of a machine's firmware through its BMC (`metal.firmware`): the order, what was read, and how far it got."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import FailFast, Field

from node_agent.wire.fields import Exact, FromServer, Truth, Whole, Wire

TARGETS_MAX: Final = 8
IMAGE_BYTES_MAX: Final = 512 * 1024 * 1024
URL_LENGTH_MAX: Final = 1_000
TASKS_MAX: Final = 64
IMAGE_URL: Final = r"^https?://[A-Za-z0-9.\[\]:_-]+/[!-~]*$"
"""Without a user name: what an order names is shown to every operator."""

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
Version = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
ImageUrl = Annotated[str, Field(max_length=URL_LENGTH_MAX, pattern=IMAGE_URL)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Restart = Literal["auto", "host", "bmc"]


class FirmwareOrder(Exact):
    """What is written where, and the version that each target has afterwards. `targets`: ids of the BMC's firmware inventory.

    `restart`: what is restarted after the update; `auto`: what the BMC's task says.
    """

    image_url: ImageUrl
    sha256: Sha256
    targets: Annotated[list[Name], Field(min_length=1, max_length=TARGETS_MAX), FailFast()]
    version: Name
    restart: Restart = "auto"


class FirmwareEntry(Wire):
    """An entry of the firmware inventory."""

    id: Name
    name: Version
    version: Version


class FirmwareReading(Wire):
    """The targets as the inventory has them, and the versions of the BIOS and of the BMC as system and manager state them."""

    targets: Annotated[list[FirmwareEntry], Field(max_length=TARGETS_MAX), FailFast()]
    bios: Version = ""
    bmc: Version = ""


class FirmwareProgress(Wire):
    """What is stored before the update is sent, so that it is sent once. `sender` may send it, and no other process.

    `tasks`: those that the BMC had before; `task`: the one of the update, once it is known.
    """

    sender: UUID
    before: FirmwareReading
    power_state: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z]+$")]
    tasks: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=TASKS_MAX), FailFast()]
    task: Annotated[str, Field(max_length=1024)] | None = None


class StoreProgress(Wire):
    """Body of `POST /site/v1/tasks/{id}/progress`. The first `progress` stays, but for its `task`; None: only read it."""

    fence: Whole
    lease_fence: Whole
    progress: FirmwareProgress | None = None


class StoredProgress(FromServer):
    """What is stored now. `stored` is False if task or lease no longer count."""

    stored: bool
    progress: FirmwareProgress | None = None


class FirmwareResult(Wire):
    """What became of an update. `sent`: the BMC may have taken it from this process, or from one before.

    `sender`: this process was the one to send it. `already`: the targets had the version, so that nothing was sent.
    """

    sent: Truth
    sender: UUID | None = None
    already: Truth = False
    before: FirmwareReading | None = None
    after: FirmwareReading | None = None
    restarted: Annotated[list[Literal["host", "bmc"]], Field(max_length=2)] = Field(default_factory=list)
