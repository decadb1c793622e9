"""Say whether the nodes of a pool prove their TPMs."""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.nodes.store import pools
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.tenants.principals import Actor


async def set_pool_attestation(
    context: Context, operation: Operation, actor: Actor, pool_id: int, policy: AttestationPolicy
) -> Answer:
    """200 with the pool. A node with its own policy keeps that. Certificates stay valid.

    From the commit on no request is signed that the policy forbids, whichever policy its listener has read.
    Raises `NotFound`.
    """

    async def effect(tx: Transaction) -> Done:
        await pools.lock_policy(tx, pool_id)
        before = await pools.read_pool(tx, pool_id)
        await pools.set_policy(tx, pool_id, policy)
        detail = {"policy": policy.value, "policy_before": before.attestation}
        await audit.record(tx, actor, "pool.set_attestation", f"pools/{pool_id}", detail, operation.request_id)
        return Done(200, asdict(await pools.read_pool(tx, pool_id)), None)

    return await run_once(context, operation, effect, None)
