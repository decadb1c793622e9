"""Whether a deploy system may start on a locked node."""

from __future__ import annotations

from uuid import UUID

from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import run_store, store
from orchestrator.nodes.deploy_systems.refusals import DETAILS, DeployReason
from orchestrator.nodes.deploy_systems.rules import NodeUse
from orchestrator.problems import InvalidState, NodeInUse


async def require_unused(tx: Transaction, node_id: UUID, claim_id: int | None, *, writing: bool) -> NodeUse:
    """The use of a locked node that allows a deploy system for this claim. Raises `InvalidState`, `NodeInUse`."""
    use = await store.read_use(tx, node_id)
    if use.shape != Shape.BAREMETAL:
        raise InvalidState("only nodes of the shape `baremetal` start deploy systems", state=use.state.value)
    obstacle = use.obstacle(claim_id, writing=writing)
    if obstacle is DeployReason.NODE_IN_USE:
        claims = [{"claim_id": claim, "owner_kind": kind} for claim, kind in use.claims.items() if claim != claim_id]
        raise NodeInUse(DETAILS[obstacle], claims=claims)
    if obstacle is not None:
        raise InvalidState(f"{DETAILS[obstacle]}; cordon it first", state=use.state.value)
    return use


async def require_no_run(tx: Transaction, node_id: UUID) -> None:
    """Return if no run of a deploy system is open on the locked node. Raises `InvalidState`."""
    if await run_store.is_open(tx, node_id):
        raise InvalidState(
            "a run of a deploy system is open on the node; wait for its end, or stop it: berth node run --stop",
            state="run_open",
        )
