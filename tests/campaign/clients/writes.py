"""Writes as clients send them: their content, their key, and the fingerprint that distinguishes two writes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from berth.client import Allocation, AsyncClient, CreatedAllocation, Reservation
from tests.campaign.history import WriteKind

Send = Callable[[AsyncClient, str], Awaitable[BaseModel]]


@dataclass(frozen=True)
class Write:
    """One write. `send` takes the client to use and the key; `content` distinguishes two writes.

    `hopeless`: codes that every repetition would get, without being stored; a status query fences the key then.
    """

    kind: WriteKind
    key: str
    content: str
    send: Send
    allocation_id: UUID | None = None
    reservation_id: UUID | None = None
    hopeless: frozenset[str] = frozenset()


def keyed(write: Write, key: str) -> Write:
    """The same write under this key."""
    return replace(write, key=key)


def create(key: str, asked: Mapping[str, Any], ssh_key_ids: Sequence[UUID]) -> Write:
    """An allocation on units that placement chooses."""

    async def send(client: AsyncClient, key: str) -> CreatedAllocation:
        return await client.create_allocation(**asked, ssh_key_ids=ssh_key_ids, idempotency_key=key)

    return Write("create", key, _content(asked), send)


def take(key: str, reservation_id: UUID, asked: Mapping[str, Any], ssh_key_ids: Sequence[UUID]) -> Write:
    """An allocation from a reservation; `asked` holds `holder_id`, and `sku` where resources were named."""

    async def send(client: AsyncClient, key: str) -> CreatedAllocation:
        return await client.create_allocation(
            reservation_id=reservation_id, **asked, ssh_key_ids=ssh_key_ids, idempotency_key=key
        )

    return Write("take", key, f"take {reservation_id} {_content(asked)}", send, reservation_id=reservation_id)


def release(key: str, allocation_id: UUID) -> Write:
    """The tenant's release."""

    async def send(client: AsyncClient, key: str) -> Allocation:
        return await client.release_allocation(allocation_id, idempotency_key=key)

    return Write("release", key, str(allocation_id), send, allocation_id)


def force_release(key: str, allocation_id: UUID) -> Write:
    """An operator's release."""

    async def send(client: AsyncClient, key: str) -> Allocation:
        return await client.force_release(allocation_id, reason="campaign", idempotency_key=key)

    return Write("force_release", key, str(allocation_id), send, allocation_id)


def change_end(key: str, allocation_id: UUID, ends_at: datetime | None) -> Write:
    """Another end of an allocation; None: without an end."""

    async def send(client: AsyncClient, key: str) -> Allocation:
        return await client.update_allocation(
            allocation_id, ends_at=ends_at, no_end=ends_at is None, idempotency_key=key
        )

    return Write("update", key, f"end {allocation_id} {ends_at}", send, allocation_id)


def hold(key: str, asked: Mapping[str, Any]) -> Write:
    """A hold of named resources, or of GPUs."""

    async def send(client: AsyncClient, key: str) -> Reservation:
        return await client.create_reservation(**asked, idempotency_key=key)

    return Write("hold", key, _content(asked), send)


def confirm(key: str, reservation_id: UUID, holder_id: str) -> Write:
    """The holder's confirm."""

    async def send(client: AsyncClient, key: str) -> Reservation:
        return await client.confirm_reservation(reservation_id, holder_id=holder_id, idempotency_key=key)

    return Write("confirm", key, f"confirm {reservation_id} {holder_id}", send, reservation_id=reservation_id)


def cancel(key: str, reservation_id: UUID, holder_id: str) -> Write:
    """The holder's cancel."""

    async def send(client: AsyncClient, key: str) -> Reservation:
        return await client.cancel_reservation(reservation_id, holder_id=holder_id, idempotency_key=key)

    return Write("cancel", key, f"cancel {reservation_id} {holder_id}", send, reservation_id=reservation_id)


def _content(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, default=str)
