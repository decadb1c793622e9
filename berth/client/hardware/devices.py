"""The virtual devices of guests."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.models import Answer


class GuestDevice(Answer):
    """One virtual device; `name` is its row in docs/reference/fleet/guest-devices.md."""

    name: str
    model: str | None = None
    address: str | None = None


class AllocationDevices(Answer):
    """The virtual devices of a guest at its last start by a task. `devices` None: unknown; `reason` says why there are none."""

    allocation_id: UUID
    status: str
    devices: list[GuestDevice] | None = None
    reason: str | None = None
    task_id: UUID | None = None
    read_at: datetime | None = None
