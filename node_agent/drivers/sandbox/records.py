"""What the sandbox keeps on disk for each allocation: one directory, and one record in it that says what should be.

allocations/<id>/   record.json   what it is and whether it should run; renamed to record.releasing when it is taken down
                    image.img     its own copy of the image
                    home/         where the tenant lands; user-data, if any, lies in it
                    host_key      its SSH host key
                    guest.lock    held (flock) by the guest process while it runs
                    guest.json    the guest's process id, start time, port
                    ready         the marker that the guest writes at the end of its start
                    guest.log     what the guest process itself had to say
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal
from uuid import UUID

import structlog
from pydantic import ValidationError

from node_agent.durable_files import sync_directory, write_durably
from node_agent.wire.fields import Closed

log = structlog.get_logger("node_agent.sandbox")


class GuestRecord(Closed):
    """What should be. `provisioning` and `releasing` are transient; only a `running` one is started again.

    `releasing` is not stored: a record under the name `record.releasing` is read as such, because renaming needs no space.
    """

    allocation_id: UUID
    fence: int
    slots: list[int]
    state: Literal["provisioning", "running", "stopped", "releasing"]
    host: str
    port: int | None = None
    port_first: int
    port_last: int
    hostname: str
    ssh_public_keys: list[str]
    image_sha256: str
    listens: bool = True
    writes_marker: bool = True


class GuestState(Closed):
    """What is, by the guest's own word. `start_ticks` is field 22 of /proc/<pid>/stat: together they name one
    process."""

    pid: int
    start_ticks: int
    port: int | None = None


class AllocationDirectory:
    """The paths of one allocation's directory, and its record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record_file = path / "record.json"
        self.releasing_file = path / "record.releasing"
        self.image_file = path / "image.img"
        self.home = path / "home"
        self.host_key_file = path / "host_key"
        self.lock_file = path / "guest.lock"
        self.state_file = path / "guest.json"
        self.marker_file = path / "ready"
        self.log_file = path / "guest.log"

    @property
    def device(self) -> str:
        """The name under which a release proves that this directory is wiped."""
        return f"allocations/{self.path.name}"

    def exists(self) -> bool:
        """Whether anything is there, even a dangling link."""
        return os.path.lexists(self.path)

    def load(self) -> GuestRecord | None:
        """The record; None when there is none or it cannot be read (which is logged)."""
        record = self._read(self.record_file)
        if record is not None:
            return record
        releasing = self._read(self.releasing_file)
        return releasing and releasing.model_copy(update={"state": "releasing"})

    def mark_releasing(self) -> None:
        """From here on no agent starts the guest again. Needs no space on the disk. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.record_file.rename(self.releasing_file)
            sync_directory(self.path)

    def _read(self, file: Path) -> GuestRecord | None:
        try:
            return GuestRecord.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            log.error("record_unreadable", directory=self.path.name, error=str(error))
            return None

    def save(self, record: GuestRecord) -> None:
        """Replace the record durably. Raises OSError."""
        write_durably(self.record_file, record.model_dump_json().encode())

    def guest_state(self) -> GuestState | None:
        """What the guest last said of itself."""
        try:
            return GuestState.model_validate_json(self.state_file.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None
