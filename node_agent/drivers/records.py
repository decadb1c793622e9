"""The directory that a driver keeps of one allocation, and the record in it that says what should be.

`record.json` is what the allocation is and whether it should run. It is renamed to `record.releasing` when the allocation is
taken down: renaming needs no space on a full disk.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Generic, Literal, TypeVar
from uuid import UUID

import structlog
from pydantic import ValidationError

from berth.process.durable_directories import sync_directory
from node_agent.durable_files import write_durably
from node_agent.wire.fields import Closed
from node_agent.wire.first_boot import FirstBoot
from node_agent.wire.guests import RestartPolicy
from node_agent.wire.images import LOGIN_USER

log = structlog.get_logger("node_agent.drivers")


class AllocationRecord(Closed):
    """What every driver records. `provisioning` and `releasing` are transient; only a `running` one is started again.

    `releasing` is not stored: a record under the name `record.releasing` is read as such.
    """

    allocation_id: UUID
    fence: int
    slots: list[int]
    state: Literal["provisioning", "running", "stopped", "releasing"]
    port: int | None = None
    restart_policy: RestartPolicy = RestartPolicy.ALWAYS
    login_user: str = LOGIN_USER
    first_boot: FirstBoot | None = None
    """Of a driver that hears of it."""

    @property
    def starts_again(self) -> bool:
        """Whether the agent starts the guest again when it finds it ended."""
        return self.state == "running" and self.restart_policy is RestartPolicy.ALWAYS


Record = TypeVar("Record", bound=AllocationRecord)


class RecordDirectory(Generic[Record]):
    """The directory and its record, of the type `model`."""

    def __init__(self, path: Path, model: type[Record]) -> None:
        self.path = path
        self.record_file = path / "record.json"
        self.releasing_file = path / "record.releasing"
        self._model = model

    @property
    def allocation_id(self) -> UUID | None:
        """The allocation that the directory is named after, or None."""
        try:
            return UUID(self.path.name)
        except ValueError:
            return None

    def exists(self) -> bool:
        """Whether anything is there, even a dangling link."""
        return os.path.lexists(self.path)

    def load(self) -> Record | None:
        """The record; None when there is none or it cannot be read (which is logged)."""
        record = self._read(self.record_file)
        if record is not None:
            return record
        releasing = self._read(self.releasing_file)
        return releasing and releasing.model_copy(update={"state": "releasing"})

    def save(self, record: Record) -> None:
        """Replace the record durably. Raises OSError."""
        write_durably(self.record_file, record.model_dump_json().encode())

    def mark_releasing(self) -> None:
        """From here on no agent starts the guest again. Needs no space on the disk. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.record_file.rename(self.releasing_file)
            sync_directory(self.path)

    @property
    def was_up(self) -> bool:
        """Whether the record, also one of an allocation that is taken down, is of a guest that has been up."""
        record = self._read(self.record_file) or self._read(self.releasing_file)
        return record is not None and record.state in ("running", "stopped")

    def remove_empty(self) -> None:
        """Remove the directory, in which nothing is left; a missing one is fine. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self.path.rmdir()
            sync_directory(self.path.parent)

    def _read(self, file: Path) -> Record | None:
        try:
            return self._model.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            log.error("record_unreadable", directory=self.path.name, error=str(error))
            return None
