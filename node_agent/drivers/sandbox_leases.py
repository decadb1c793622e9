"""Leases: one file per slot, made with O_EXCL, so that two allocations cannot hold a slot even if the control plane
errs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from pydantic import ValidationError

from node_agent.drivers.interface import DriverFailure
from node_agent.durable_files import sync_directory
from node_agent.protocol import FailureCode, Wire


class Lease(Wire):
    """Who holds a slot, and under which fence it was taken."""

    allocation_id: UUID
    fence: int


class Leases:
    """The directory `leases/` of one node."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, slots: Sequence[int], allocation_id: UUID, fence: int) -> None:
        """Take all of `slots` or none. Raises DriverFailure(LEASE_CONFLICT) naming the holder."""
        taken: list[Path] = []
        content = Lease(allocation_id=allocation_id, fence=fence).model_dump_json().encode()
        try:
            for slot in sorted(slots):
                path = self._path(slot)
                self._create(path, content, slot)
                taken.append(path)
            sync_directory(self._directory)
        except BaseException:
            for path in taken:
                path.unlink(missing_ok=True)
            raise

    def drop(self, allocation_id: UUID) -> list[int]:
        """Give up whatever `allocation_id` holds, and nothing else; the slots given up. Raises OSError."""
        dropped = [slot for slot, lease in self.held().items() if lease.allocation_id == allocation_id]
        for slot in dropped:
            self._path(slot).unlink(missing_ok=True)
        if dropped:
            sync_directory(self._directory)
        return dropped

    def held(self) -> dict[int, Lease]:
        """Every lease by slot. An unreadable one (torn by a power failure before its effect) belongs to nobody."""
        found: dict[int, Lease] = {}
        for path in self._directory.glob("slot-*.json"):
            lease = self._read(path)
            if lease is not None:
                found[int(path.stem.removeprefix("slot-"))] = lease
        return found

    def _create(self, path: Path, content: bytes, slot: int) -> None:
        if path.exists() and self._read(path) is None:
            path.unlink(missing_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            holder = self._read(path)
            who = f"allocation {holder.allocation_id} under fence {holder.fence}" if holder else "somebody"
            raise DriverFailure(FailureCode.LEASE_CONFLICT, f"slot {slot} is leased to {who}") from error
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path) -> Lease | None:
        try:
            return Lease.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _path(self, slot: int) -> Path:
        return self._directory / f"slot-{slot}.json"
