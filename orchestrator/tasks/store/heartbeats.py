"""Records heartbeats: each alone, or many that change nothing but times and what the agent says of itself in one statement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import orjson

from berth.process.json_objects import JsonMapping, JsonObject
from node_agent.protocol import Heartbeat
from node_agent.wire.networks import VLAN_FEATURE
from orchestrator.database.calls import FunctionCall
from orchestrator.database.transactions import Transaction

SANDBOX_DRIVERS = frozenset({"sandbox", "noop"})
"""Drivers that carry nothing out on a real GPU."""
RESERVED_DRIVERS = frozenset({"redfish"})
"""Of nodes without an agent; no agent may say that it is theirs."""


def is_driver_allowed(driver: str, *, sandbox_allowed: bool) -> bool:
    """Whether an agent may say that this is its driver, whatever its pool's is."""
    return driver not in RESERVED_DRIVERS and (driver not in SANDBOX_DRIVERS or sandbox_allowed)


_HEARTBEAT = """
with before as (
    select n.id, n.online, n.underlay, :vlan = any (n.agent_features) as by_vlan,
           n.identity_conflict_at is null as identified, p.driver as pool_driver,
           :allowed and coalesce(p.driver = :driver, true) as accepted
    from nodes n join pools p on p.id = n.pool_id where n.id = :node_id for no key update of n
)
update nodes n set driver = :driver, agent_version = :agent_version, agent_features = :features,
    key_set_serial = :key_set_serial, key_set_refusal = :key_set_refusal,
    agent_run = coalesce(cast(:agent_run as uuid), n.agent_run),
    underlay = case when b.accepted and b.identified then cast(:underlay as inet) else n.underlay end,
    last_seen_at = case when b.accepted then clock_timestamp() else n.last_seen_at end,
    online = b.accepted and b.identified and n.state <> 'retired',
    row_version = n.row_version + (n.online <> (b.accepted and b.identified and n.state <> 'retired'))::integer,
    held_allocations = case when b.accepted then cast(:allocations as jsonb) else n.held_allocations end
from before b where n.id = b.id
returning n.name, n.state, b.online, b.identified, n.pool_id, b.pool_driver, b.accepted, n.last_seen_at,
    n.underlay is distinct from b.underlay or (:vlan = any (n.agent_features)) <> b.by_vlan
        or (n.underlay is not null and n.online and not b.online) as has_moved,
    clock_timestamp() as now
"""
_SET_POOL_DRIVER = "update pools set driver = :driver where id = :pool_id and driver is null"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a heartbeat finds."""

    name: str
    state: str
    was_online: bool
    is_accepted: bool
    has_moved: bool
    """Whether the node has another underlay address than before, or none any more, or has it again after it was offline; or
    whether it is connected by VLANs and was not, or the reverse."""
    pool_driver: str | None
    last_seen_at: datetime | None
    now: datetime


async def note_heartbeat(tx: Transaction, node_id: UUID, heartbeat: Heartbeat, *, sandbox_allowed: bool) -> Seen:
    """Record the heartbeat, with the allocations and the key set that the node reports.

    The first driver for real GPUs in a pool is the pool's from then on. A node with a driver that is not allowed, not its
    pool's, or reserved, is not accepted: it is offline, and only its driver, version and key set are recorded. The underlay
    address of a node whose identity is in conflict is not recorded: two machines may report in turn.
    """
    is_real = heartbeat.driver not in SANDBOX_DRIVERS
    values = {
        "node_id": node_id, "agent_version": heartbeat.agent_version, "driver": heartbeat.driver,
        "allocations": json.dumps([str(allocation) for allocation in heartbeat.allocations]),
        "key_set_serial": heartbeat.key_set_serial, "key_set_refusal": heartbeat.key_set_refusal,
        "allowed": is_driver_allowed(heartbeat.driver, sandbox_allowed=sandbox_allowed), "agent_run": heartbeat.agent_run,
        "features": heartbeat.features, "underlay": str(heartbeat.span.underlay) if heartbeat.span else None,
        "vlan": VLAN_FEATURE,
    }  # fmt: skip
    row = (await tx.execute(_HEARTBEAT, values)).one()
    if row.accepted and is_real and row.pool_driver is None:
        await tx.execute(_SET_POOL_DRIVER, {"driver": heartbeat.driver, "pool_id": row.pool_id})
    may_be_online = row.identified and row.state != "retired"
    was_online = row.online or (row.accepted and not may_be_online)
    return Seen(
        row.name, row.state, was_online, row.accepted, row.has_moved, row.pool_driver, row.last_seen_at, row.now
    )  # fmt: skip


_NOTE = "select note_heartbeats(%(reports)s::jsonb)"


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A heartbeat, the node that its certificate names, and the certificate's serial (lower-case hex)."""

    node_id: UUID
    serial: str
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class Noted:
    """A heartbeat that was recorded. `at`: the database's clock as RFC 3339; `etag`: of the node's networks, as it reported."""

    state: str
    at: str
    etag: str | None


async def note_heartbeats(
    call: FunctionCall, reports: Sequence[NodeReport], *, sandbox_allowed: bool
) -> dict[UUID, Noted]:
    """Record what can be recorded without waiting; the others are missing in the result, and nothing of theirs is changed.

    Each node may report once. Missing is also a node whose certificate does not count.
    """
    documents = [_document(report, sandbox_allowed) for report in reports]
    found: JsonMapping = await call.value(_NOTE, {"reports": orjson.dumps(documents).decode()})
    return {UUID(node): Noted(**noted) for node, noted in found.items()}


def _document(report: NodeReport, sandbox_allowed: bool) -> JsonObject:
    heartbeat = report.heartbeat
    span, inventory = heartbeat.span, heartbeat.inventory
    return {
        "node_id": report.node_id, "serial": report.serial,
        "agent_version": heartbeat.agent_version, "driver": heartbeat.driver,
        "is_allowed": is_driver_allowed(heartbeat.driver, sandbox_allowed=sandbox_allowed),
        "is_sandbox": heartbeat.driver in SANDBOX_DRIVERS, "features": heartbeat.features,
        "key_set_serial": heartbeat.key_set_serial, "key_set_refusal": heartbeat.key_set_refusal,
        "agent_run": heartbeat.agent_run,
        "connects": span is not None, "underlay": str(span.underlay) if span else None, "etag": span.etag if span else None,
        "allocations": heartbeat.allocations,
        "inventory": inventory.model_dump(mode="json")["allocations"] if inventory else None,
        "gathered_after": inventory.gathered_after if inventory else None,
    }  # fmt: skip
