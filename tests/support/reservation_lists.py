"""Lists of holds and confirms, and their results."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from uuid import UUID

from orchestrator.operations.execution import Deferred, Result
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from orchestrator.reservations.commands.hold import hold_resources
from orchestrator.reservations.hold_requests import HoldRequest
from orchestrator.reservations.store.confirming import Confirm
from orchestrator.reservations.store.holding import Hold
from tests.reservations.holding import HOLDER, ReservationClient


def ask(client: ReservationClient, *names: str, key: str | None = None, ttl_seconds: int = 900) -> HoldRequest:
    """A hold of named resources, to be one of a list."""
    operation = client.operation(client.seeded.tenant_id, key)
    hold = Hold(operation, client.seeded.tenant_id, HOLDER, None, None, ttl_seconds, None, None, uuid.uuid4())
    return HoldRequest(hold, names)


def confirm_of(
    client: ReservationClient, reservation_id: UUID, *, holder: str = HOLDER, key: str | None = None
) -> Confirm:
    """A confirm, to be one of a list."""
    tenant_id = client.seeded.tenant_id
    return Confirm(client.operation(tenant_id, key, ending=True), tenant_id, reservation_id, holder)


async def hold_all(client: ReservationClient, asked: Sequence[HoldRequest]) -> list[Result | Deferred]:
    """The list's way through the command."""
    return await hold_resources(client.context, client.catalogue, asked)


def code_of(result: Result | Deferred) -> str:
    """The code that a client would read, or `deferred`."""
    if isinstance(result, Problem):
        return result.code
    if isinstance(result, Answer):
        return str(json.loads(result.body).get("code", result.status))
    return "deferred"


def held_id(result: Result | Deferred) -> UUID:
    """The reservation of a hold that succeeded."""
    assert isinstance(result, Answer)
    return UUID(json.loads(result.body)["reservation_id"])


async def settled(results: Sequence[Result | Deferred]) -> list[Result]:
    """The results of all items; deferred ones are retried alone."""
    return [one if isinstance(one, Answer | Problem) else await one.retry_alone() for one in results]
