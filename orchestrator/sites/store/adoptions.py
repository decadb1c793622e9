"""SQL of adopted machines: the node before, and what is stored with its allocation for the run that inspects it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.states import NodeState
from orchestrator.sites.adopting.rules import Candidate

_CANDIDATE = """
select n.state, n.shape, n.gpu_model, n.region, n.slot_count, n.enrolled_at is not null as has_agent,
       (select count(*) from slots s where s.node_id = n.id and s.state = 'out_of_service') as slots_out,
       exists (select from awaited_inventories w where w.node_id = n.id) as is_awaited
from nodes n where n.id = :node_id
"""
# A run of the allocation counts alone: an inspection before the adoption does not show what the tenancy has left.
_READ = """
select a.adoption -> 'medium' as medium, exists (
           select from deploy_runs r
           where r.node_id = a.node_id and r.allocation_id = a.id and r.kind = 'inspect' and r.outcome = 'completed'
       ) as is_inspected
from allocations a where a.id = :allocation_id and a.adoption is not null
"""
_OF_NODE = """
select a.id, a.adoption, a.active_at, exists (
           select from deploy_runs r
           where r.node_id = a.node_id and r.allocation_id = a.id and r.kind = 'inspect' and r.outcome = 'completed'
       ) as is_inspected
from allocations a
where a.node_id = :node_id and a.adoption is not null and a.state not in ('released', 'failed')
order by a.id desc limit 1
"""
_CORDON = """
update nodes set state = 'cordoned', row_version = row_version + 1 where id = :node_id and state = 'registered'
"""


@dataclass(frozen=True, slots=True)
class Adoption:
    """An adopted machine. `medium`: what a deploy system is permitted with; `is_inspected`: by a run of its allocation."""

    medium: JsonObject
    is_inspected: bool


@dataclass(frozen=True, slots=True)
class StoredAdoption:
    """The adoption of a live allocation, as it was recorded."""

    allocation_id: UUID
    recorded: JsonObject
    adopted_at: Any
    is_inspected: bool


async def read_candidate(tx: Transaction, node_id: UUID) -> tuple[Candidate, str]:
    """The locked node, and its region."""
    row = (await tx.execute(_CANDIDATE, {"node_id": node_id})).one()
    found = Candidate(
        NodeState(row.state), row.shape, row.gpu_model, row.slot_count, row.slots_out, row.has_agent, row.is_awaited
    )
    return found, row.region


async def read_adoption(reading: Reading, allocation_id: UUID) -> Adoption | None:
    """The adoption of an allocation; None if Berth has deployed it."""
    row = (await reading.execute(_READ, {"allocation_id": allocation_id})).first()
    return None if row is None else Adoption(row.medium, row.is_inspected)


async def read_adoption_of(reading: Reading, node_id: UUID) -> StoredAdoption | None:
    """The adoption of the live allocation of a node; None without one."""
    row = (await reading.execute(_OF_NODE, {"node_id": node_id})).first()
    return None if row is None else StoredAdoption(row.id, row.adoption, row.active_at, row.is_inspected)


async def cordon_registered(tx: Transaction, node_id: UUID) -> bool:
    """A registered node is cordoned; False for one that is already. The caller has locked it."""
    return bool((await tx.execute(_CORDON, {"node_id": node_id})).rowcount)
