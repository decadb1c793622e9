"""Whether a deploy system may start on a locked node, and whether a node without an agent may serve."""

from __future__ import annotations

from uuid import UUID

from orchestrator.catalogue.shapes import Shape
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import agentless_store, run_store, store
from orchestrator.nodes.deploy_systems.refusals import DETAILS, DeployReason
from orchestrator.nodes.deploy_systems.rules import NodeUse
from orchestrator.nodes.refusals import DriverRefused
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import maintenance_tasks
from orchestrator.problems import InvalidState, NodeInUse

REDFISH = "redfish"
"""The driver of nodes without an agent."""


async def require_unused(tx: Transaction, node_id: UUID, claim_id: int | None, *, writing: bool) -> NodeUse:
    """The use of a locked node that allows a deploy system for this claim. Raises `InvalidState`, `NodeInUse`."""
    use = await store.read_use(tx, node_id, claim_id)
    if use.shape != Shape.BAREMETAL:
        raise InvalidState("only nodes of the shape `baremetal` start deploy systems", state=use.state.value)
    obstacle = use.obstacle(writing=writing)
    if obstacle is DeployReason.NODE_IN_USE:
        claims = [{"claim_id": claim, "owner_kind": kind} for claim, kind in use.claims.items() if claim != use.named]
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


async def require_no_update(tx: Transaction, node_id: UUID) -> None:
    """Return if no maintenance window updates firmware of the locked node. Raises `InvalidState`."""
    window_id = await maintenance_tasks.read_updating(tx, node_id)
    if window_id is not None:
        raise InvalidState(
            f"maintenance window {window_id} updates the firmware of the machine; wait for its end",
            state="maintenance_task",
        )


async def require_servable(tx: Transaction, node_id: UUID, state: NodeState) -> None:
    """Return if the locked node may be put into service. A node without an agent makes its pool one of such nodes.

    Raises `InvalidState` if it is registered, and neither an agent has enrolled nor a deploy system inspected its machine, or it
    has no slot, or no completed run has shown that its site can start a deploy system on it; `DriverRefused` if the nodes of its
    pool have another driver.
    """
    found = await agentless_store.read_agentless(tx, node_id)
    if found is None:
        if state is NodeState.REGISTERED:
            raise InvalidState(
                "the node is registered: its agent enrols, or a deploy system inspects its machine first",
                state=state.value,
            )
        return
    if found.pool_driver not in (None, REDFISH):
        raise DriverRefused(
            f"the nodes of its pool have the driver {found.pool_driver!r}, and this one has no agent; register it in another pool"
        )
    if await run_store.read_completed_medium(tx, node_id) is None:
        raise InvalidState("no run of its site has completed on the machine: berth node inspect", state=state.value)
    if not found.profile.slot_count:
        raise InvalidState(
            "the node has no slot before its topology is approved: berth node approve", state=state.value
        )
    await agentless_store.set_pool_driver(tx, node_id)


async def require_enrollable(tx: Transaction, node_id: UUID) -> None:
    """Return if an agent may enrol for the locked node: not while a site works on the machine or has deployed on it.

    Raises `InvalidState`, `NodeInUse`. A node that has an agent always may.
    """
    if await agentless_store.read_agentless(tx, node_id) is None:
        return
    await require_no_run(tx, node_id)
    claims = (await store.read_use(tx, node_id, None)).claims
    if claims:
        raise NodeInUse(
            "the node has no agent, and what is on its machine ends through its BMC alone; an agent enrols when it is empty",
            claims=[{"claim_id": claim, "owner_kind": kind} for claim, kind in claims.items()],
        )
