"""Drains that tests order, the events about them, and the sweeper's part."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.testclient import TestClient

from orchestrator.nodes.commands.drains import advance_drain
from orchestrator.nodes.drains.queries import find_allocations_to_release, find_due_drains
from tests.api.calling import Place
from tests.maintenance.windows import rows
from tests.support.public_api import PublicApi

EVENTS = (
    "select event_type, payload, tenant_id::text from outbox where event_type = any (%s) and subject = %s order by id"
)
TO_TENANTS = ["allocation.node_draining", "allocation.node_drain_cancelled"]
TO_OPERATORS = ["node.draining", "node.drained", "node.drain_overdue", "node.uncordoned"]
END = "update claims set booked = false, occupied = false, closed_at = now() where owner_id = %s returning 1"
"""Ends the claim of an allocation."""
_OVER = """
update node_drains set deadline = now(), waits_until = now() where node_id = %s and overdue_at is null returning 1
"""


def drain(api: PublicApi, place: Place, **order: Any) -> Any:
    return api.admin.make(f"/admin/nodes/{place.node['id']}/drain", order or None)


def to_tenant(api: PublicApi, allocation: str) -> list[tuple[Any, ...]]:
    """The events about drains to the tenant of an allocation."""
    return rows(api, EVENTS, TO_TENANTS, f"allocations/{allocation}")


def to_operators(api: PublicApi, place: Place) -> list[Any]:
    return [kind for kind, _, _ in rows(api, EVENTS, TO_OPERATORS, f"nodes/{place.node['id']}")]


def call(api: PublicApi, command: Any, *arguments: Any) -> Any:
    """Run a command or query of the worker."""
    assert isinstance(api.admin.http, TestClient)
    assert api.services is not None
    portal = api.admin.http.portal
    assert portal is not None
    return portal.call(command, api.services.context.for_platform(), *arguments)


def sweep(api: PublicApi, place: Place) -> Any:
    """What the sweeper does about the node's drain now, which it finds if there is something to do."""
    node = UUID(place.node["id"])
    is_due = node in call(api, find_due_drains, 100)
    advanced = call(api, advance_drain, node)
    assert is_due is (advanced is not None)
    return advanced


def pass_deadline(api: PublicApi, place: Place) -> None:
    assert rows(api, _OVER, place.node["id"]) == [(1,)]


def to_release(api: PublicApi) -> list[tuple[UUID, UUID]]:
    """The allocations that drains release, each with its node."""
    return [(one.node_id, one.allocation_id) for one in call(api, find_allocations_to_release, 0, 100)]
