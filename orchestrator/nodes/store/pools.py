"""Pools of nodes, and whether their nodes prove their TPMs."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.problems import NotFound

_READ = """
select p.id, p.region, p.gpu_model, p.shape, coalesce(a.policy, 'offered') as attestation
from pools p left join pool_attestations a on a.pool_id = p.id
where p.id = :id
"""
_LIST = """
select p.id, p.region, p.gpu_model, p.shape, coalesce(a.policy, 'offered') as attestation
from pools p left join pool_attestations a on a.pool_id = p.id
where p.id > :after order by p.id limit :limit
"""
_SET = """
insert into pool_attestations (pool_id, policy) values (:pool_id, :policy)
on conflict (pool_id) do update set policy = excluded.policy
"""
# Of nodes' requests many are signed at a time; a change of a policy waits for those, and they for it.
_SHARE = """
select pg_advisory_xact_lock_shared(hashtext('pool_attestations'), pool_id) from nodes where id = :node_id
"""
_LOCK = "select pg_advisory_xact_lock(hashtext('pool_attestations'), :pool_id)"


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that serve the same SKUs. `attestation`: the policy of those without their own policy."""

    id: int
    region: str
    gpu_model: str
    shape: str
    attestation: str


async def read_pool(reading: Reading, pool_id: int) -> Pool:
    """One pool. Raises `NotFound`."""
    row = (await reading.execute(_READ, {"id": pool_id})).first()
    if row is None:
        raise NotFound(f"there is no pool {pool_id}")
    return Pool(row.id, row.region, row.gpu_model, row.shape, row.attestation)


async def list_pools(reading: Reading, after: int, limit: int) -> list[Pool]:
    """Up to `limit` pools with ids after this one."""
    rows = await reading.execute(_LIST, {"after": after, "limit": limit})
    return [Pool(row.id, row.region, row.gpu_model, row.shape, row.attestation) for row in rows]


async def lock_policy(tx: Transaction, pool_id: int) -> None:
    """No request of a node of the pool is decided until the commit; those that are being decided end first."""
    await tx.execute(_LOCK, {"pool_id": pool_id})


async def share_policy(tx: Transaction, node_id: object) -> None:
    """The policy of the node's pool does not change until the commit. The caller reads it afterwards."""
    await tx.execute(_SHARE, {"node_id": node_id})


async def set_policy(tx: Transaction, pool_id: int, policy: AttestationPolicy) -> None:
    """The policy of the pool's nodes without their own. The caller holds `lock_policy`."""
    await tx.execute(_SET, {"pool_id": pool_id, "policy": policy.value})
