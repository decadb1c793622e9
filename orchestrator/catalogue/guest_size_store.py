"""Which nodes cannot make guests of the size that a SKU states. An active SKU with a size has no such node in its pools.

Two writers keep it so: one makes a SKU active, the other approves a topology. The first holds `lock_sizes`, the second
`share_sizes`, so that one of them sees what the other wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from node_agent.wire.guests import GUEST_SIZE_FEATURE
from node_agent.wire.topology import Topology
from orchestrator.catalogue.refusals import GuestSizeMisfit, GuestSizeUnsupported
from orchestrator.catalogue.rules import GuestSize, SlotRoom, lack_of, rooms_of
from orchestrator.database.transactions import Reading, Transaction

_LOCK = "select pg_advisory_xact_lock(hashtext('guest_sizes'), 0)"
_SHARE = "select pg_advisory_xact_lock_shared(hashtext('guest_sizes'), 0)"
_FIND_NODE = """
select n.name, n.agent_version, n.agent_version is null or :feature = any (n.agent_features) as supported, t.approved
from pools p join nodes n on n.pool_id = p.id left join node_topologies t on t.node_id = n.id
where p.gpu_model = :gpu_model and p.shape = 'gpu_slice' and n.state <> 'retired'
  and (n.agent_version is not null and not :feature = any (n.agent_features)
       or t.slot_processors < cast(:vcpus as integer) or t.slot_memory_bytes < cast(:memory_bytes as bigint))
order by n.id limit 100
"""
_FIND_SKUS = """
select s.name, s.vcpus_per_gpu, s.memory_bytes_per_gpu, n.name as node, n.agent_version,
       n.agent_version is null or :feature = any (n.agent_features) as supported
from nodes n join skus s on s.gpu_model = n.gpu_model and s.shape = n.shape
where n.id = :node_id and s.state = 'active' and num_nulls(s.vcpus_per_gpu, s.memory_bytes_per_gpu) < 2
order by s.name
"""


async def lock_sizes(tx: Transaction) -> None:
    """No topology is approved until the commit; those that are being approved end first."""
    await tx.execute(_LOCK, {})


async def share_sizes(tx: Transaction) -> None:
    """No SKU changes until the commit. The caller reads SKUs afterwards."""
    await tx.execute(_SHARE, {})


async def require_nodes(tx: Transaction, sku: str, gpu_model: str, size: GuestSize) -> None:
    """Return if no node of the SKU's pools is known to lack the size. The caller holds `lock_sizes`.

    Raises `GuestSizeUnsupported` and `GuestSizeMisfit` with the first node that lacks it.
    """
    values = {
        "feature": GUEST_SIZE_FEATURE, "gpu_model": gpu_model, "vcpus": size.vcpus, "memory_bytes": size.memory_bytes,
    }  # fmt: skip
    for row in await tx.execute(_FIND_NODE, values):
        if not row.supported:
            raise GuestSizeUnsupported.by(row.name, sku, row.agent_version)
        lack = lack_of(rooms_of(Topology.model_validate(row.approved)), size)
        # None: a process of the version before has approved another topology, and what is stored of its slots is older.
        if lack is not None:
            raise GuestSizeMisfit.of(row.name, sku, lack)


async def require_sizes(reading: Reading, node_id: UUID, rooms: Sequence[SlotRoom]) -> None:
    """Return if slots with these rooms give every active SKU of the node's pool its size. The caller holds `share_sizes`.

    Raises `GuestSizeUnsupported` and `GuestSizeMisfit` with the first SKU that is not given it.
    """
    for row in await reading.execute(_FIND_SKUS, {"node_id": node_id, "feature": GUEST_SIZE_FEATURE}):
        if not row.supported:
            raise GuestSizeUnsupported.by(row.node, row.name, row.agent_version)
        lack = lack_of(rooms, GuestSize(row.vcpus_per_gpu, row.memory_bytes_per_gpu))
        if lack is not None:
            raise GuestSizeMisfit.of(row.node, row.name, lack)
