"""GPUs and disks by serial number: where each is, what happened to it, its repairs."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from berth.client.models import Answer


class HardwarePlace(Answer):
    """Where a GPU or disk is, as its node reports it. `contested_since`: another node reports it too."""

    serial: str
    kind: str
    model: str | None = None
    node_id: UUID
    slots: list[int]
    positions: list[str]
    since: datetime
    missing_since: datetime | None = None
    contested_since: datetime | None = None


class Repair(Answer):
    """A repair of a GPU or disk; open until `closed_at`."""

    id: UUID
    serial: str
    kind: str
    reason: str
    opened_at: datetime
    opened_by: str
    closed_at: datetime | None = None
    closed_by: str | None = None
    result: str | None = None


class Hardware(Answer):
    """A GPU or disk. `contested`: several nodes report its serial number."""

    serial: str
    kind: str
    contested: bool
    places: list[HardwarePlace]
    open_repair: Repair | None = None


class HardwareEntry(Answer):
    """What happened to a GPU or disk, and where it was then."""

    id: UUID
    serial: str
    kind: str
    happened: str
    happened_at: datetime
    node_id: UUID | None = None
    slots: list[int]
    actor: str
    detail: str
    evidence: str | None = None
    reference: UUID | None = None
    contested: bool
