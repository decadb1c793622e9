"""SQL of nodes without an agent: machines that are reached through their BMC alone. Callers hold the lock of the node's row."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.nodes.topology.rules import Profile

_NOTE_WITHOUT_AGENT = """
update nodes set driver = 'redfish', row_version = row_version + 1
where id = :node_id and enrolled_at is null and driver is distinct from 'redfish'
"""
_READ = """
select n.name, n.gpu_model, n.slot_count, n.half_slots, n.epoch, p.driver as pool_driver
from nodes n join pools p on p.id = n.pool_id
where n.id = :node_id and n.driver = 'redfish' and n.enrolled_at is null
"""
_GIVE_UP = """
update nodes set driver = null, online = false, row_version = row_version + 1
where id = :node_id and driver = 'redfish' and enrolled_at is null
"""
_SET_POOL_DRIVER = """
update pools p set driver = 'redfish' from nodes n where n.id = :node_id and p.id = n.pool_id and p.driver is null
"""


@dataclass(frozen=True, slots=True)
class Agentless:
    """A node without an agent, as it was declared. `pool_driver`: the driver of the pool's nodes, None before the first."""

    name: str
    profile: Profile
    epoch: int
    pool_driver: str | None


async def note_machine_without_agent(tx: Transaction, node_id: UUID) -> None:
    """A deploy system has inspected the machine, or it was adopted: unless an agent has enrolled for the node, it has none from
    now on."""
    await tx.execute(_NOTE_WITHOUT_AGENT, {"node_id": node_id})


async def read_agentless(tx: Transaction, node_id: UUID) -> Agentless | None:
    """The node; None if it has an agent, or was never inspected."""
    row = (await tx.execute(_READ, {"node_id": node_id})).first()
    if row is None:
        return None
    return Agentless(row.name, Profile(row.gpu_model, row.slot_count, row.half_slots), row.epoch, row.pool_driver)


async def give_up_agentless(tx: Transaction, node_id: UUID) -> None:
    """An agent enrols for the node: its heartbeats say from now on whether it is online, and no BMC."""
    await tx.execute(_GIVE_UP, {"node_id": node_id})


async def set_pool_driver(tx: Transaction, node_id: UUID) -> None:
    """The pool of the node has nodes without an agent from now on, unless it has a driver."""
    await tx.execute(_SET_POOL_DRIVER, {"node_id": node_id})
