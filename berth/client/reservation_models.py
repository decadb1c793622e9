"""What the API answers about reservations, resources and operations (docs/reference/reservations.md), as immutable models."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import Field

from berth.client.models import Answer, Failure, Waits
from berth.process.json_objects import JsonObject

RESERVATION_FINAL_STATES = frozenset({"cancelled", "expired", "consumed", "released"})


class Reservation(Answer):
    """A hold on units, or a confirmed window of them.

    `result` is in the answers of confirm and cancel: `ok`, or `noop` when there was nothing left to do. `expires_at` is a
    hold's deadline.
    """

    reservation_id: UUID
    tenant_id: UUID | None = None
    holder_id: str
    status: str
    resources: list[str] = Field(default_factory=list)
    sku: str | None = None
    gpus: int | None = None
    region: str | None = None
    count: int | None = None
    gpus_held: int = 0
    starts_at: datetime
    ends_at: datetime | None = None
    expires_at: datetime | None = None
    allocation: JsonObject | None = None
    allocation_ids: list[UUID] = Field(default_factory=list)
    name: str | None = None
    failure: Failure | None = None
    waits: Waits | None = None
    created_version: int | None = None
    released_version: int | None = None
    retire_after: datetime | None = None
    held_at: datetime | None = None
    confirmed_at: datetime | None = None
    ended_at: datetime | None = None
    correlation_id: UUID | None = None
    row_version: int | None = None
    result: str | None = None


class Resource(Answer):
    """What can be claimed: a node, a slot, or what an operator registered (`kind`).

    `reservation_id` is the caller's reservation whose window covers now; `row_version` is there to be observed only.
    """

    id: str
    kind: str
    state: str
    reason: str | None = None
    reservation_id: UUID | None = None
    row_version: int


class Operation(Answer):
    """What became of a write.

    `pending`: it runs; `committed` or `rejected`: `result` is what was answered with `status`; `unknown`: it was not done
    and never will be under this key; `retired`: its record is no longer kept.
    """

    key: str
    state: str
    status: int | None = None
    code: str | None = None
    result: Any = None
    subject_id: UUID | None = None
    version: int | None = None
    retire_after: datetime | None = None
