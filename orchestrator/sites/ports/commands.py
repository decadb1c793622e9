"""Set the segments of a site and the ports of machines, and request moves of ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from node_agent.wire.sites import BmcTaskKind
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_no_update, require_unused
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import AlreadyExists, Invalid, InvalidState
from orchestrator.sites.ports import store
from orchestrator.sites.ports.queries import show_ports, show_segments
from orchestrator.sites.ports.rules import Place, Port, Verb
from orchestrator.sites.rules import REQUEST_SECONDS_MAX
from orchestrator.sites.store import bmc_tasks, bmcs, sites
from orchestrator.tenants.principals import Actor


async def put_segments(
    context: Context, operation: Operation, actor: Actor, site_id: UUID, provisioning_vlan: int, vlans: tuple[int, int],
    quarantine_seconds: int,
) -> Answer:  # fmt: skip
    """200 with the segments of the site.

    Refusals: `NotFound`; `Invalid` if the VLANs overlap or are reversed; `InvalidState` if a leased VLAN would be outside
    (`segments_leased`), the provisioning VLAN changes while ports of machines carry it (`ports_placed`), or one of the VLANs is
    leased to a network of virtual machines (`network_vlans_leased`).
    """
    _require_apart(provisioning_vlan, vlans)

    async def effect(tx: Transaction) -> Done:
        await sites.lock_site(tx, site_id)
        present = await store.read_segments(tx, site_id)
        outside, placed = await store.count_bound(tx, site_id, vlans)
        if outside:
            raise InvalidState(
                f"{outside} VLANs outside {vlans[0]} to {vlans[1]} are leased, or in quarantine; wait for their end",
                state="segments_leased",
            )
        if present is not None and placed and present.provisioning_vlan != provisioning_vlan:
            raise InvalidState(
                f"ports of {placed} machines are placed; remove them before the provisioning VLAN changes",
                state="ports_placed",
            )
        taken = await store.find_of_networks(tx, provisioning_vlan, vlans)
        if taken is not None:
            raise InvalidState(
                f"VLAN {taken} is leased to a tenant network of virtual machines, or in quarantine; use VLANs that are in no"
                " BERTH_NETWORK_VLANS, or wait for its end",
                state="network_vlans_leased",
            )
        by = f"{actor.kind.value}:{actor.id}"
        await store.put_segments(tx, site_id, provisioning_vlan, vlans, quarantine_seconds, by)
        said = {
            "provisioning_vlan": provisioning_vlan, "first_tenant_vlan": vlans[0], "last_tenant_vlan": vlans[1],
            "quarantine_seconds": quarantine_seconds,
        }  # fmt: skip
        await audit.record(tx, actor, "site.put_segments", f"sites/{site_id}", said, operation.request_id)
        return Done(200, await show_segments(tx, site_id), site_id)

    return await run_once(context, operation, effect, None)


def _require_apart(provisioning_vlan: int, vlans: tuple[int, int]) -> None:
    if vlans[0] > vlans[1]:
        raise _invalid("last_tenant_vlan", "is at least first_tenant_vlan")
    if vlans[0] <= provisioning_vlan <= vlans[1]:
        raise _invalid("provisioning_vlan", "is none of the tenants' VLANs")


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"{field} {message}", errors=[{"field": field, "message": message}])


async def put_ports(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, ports: Sequence[Port]
) -> Answer:
    """200 with the ports of the machine, which are these and no others.

    Refusals: `NotFound` (no node, or no BMC); `Invalid` for a port or MAC that is named twice; `AlreadyExists` if another machine
    of the site has it; `NodeInUse`; `InvalidState` if the node is in service, a run or task is open, the site has no segments
    (`no_segments`), or a port may carry the segment of a tenant (`in_tenant_segment`). A retired node loses its ports alone.
    """
    if len({(one.switch, one.port) for one in ports}) < len(ports) or len({one.mac for one in ports}) < len(ports):
        raise _invalid("ports", "names a port or a MAC twice")

    async def effect(tx: Transaction) -> Done:
        site_id = await _lock(tx, node_id)
        if ports or not await _is_retired(tx, node_id):
            await require_unused(tx, node_id, None, writing=True)
        if await store.read_segments(tx, site_id) is None:
            raise InvalidState("the site of the machine has no segments: berth site segments set", state="no_segments")
        placed = await store.read_node_segment(tx, node_id)
        if placed is not None and placed.tenant_vlan is not None:
            raise InvalidState(
                f"a port may carry VLAN {placed.tenant_vlan} of a tenant: berth node port move NODE provisioning",
                state="in_tenant_segment",
            )
        taken = await store.find_taken(tx, site_id, node_id, ports)
        if taken is not None:
            raise AlreadyExists(
                f"node {taken[1]} of the site has port {taken[0].port} of {taken[0].switch} with MAC {taken[0].mac}"
            )
        await store.put_ports(tx, node_id, site_id, ports, f"{actor.kind.value}:{actor.id}")
        said = {"ports": [{"switch": one.switch, "port": one.port, "mac": one.mac} for one in ports]}
        await audit.record(tx, actor, "node.put_ports", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, await show_ports(tx, node_id), node_id)

    return await run_once(context, operation, effect, None)


_PLACES: Final = {
    Verb.PROVISIONING: Place.PROVISIONING, Verb.SHUT: Place.SHUT, Verb.TENANT: Place.TENANT,
}  # fmt: skip


async def request_move(context: Context, operation: Operation, actor: Actor, node_id: UUID, verb: Verb) -> Answer:
    """200 with the ports of the machine and the task that moves or compares them.

    Refusals: `NotFound`; `InvalidState` without a port (`no_ports`), while a run or task is open, for `tenant` unless a port may
    carry a tenant's segment (`no_tenant_segment`), for `check` before a task has named a segment (`not_placed`); for the others
    also if the node is in service, and `NodeInUse`. The ports of a retired node can be moved out of a tenant's segment.
    """

    async def effect(tx: Transaction) -> Done:
        site_id = await _lock(tx, node_id)
        if not await store.has_ports(tx, node_id):
            raise InvalidState("no switch port of the machine is set: berth node port set", state="no_ports")
        placed = await store.read_node_segment(tx, node_id)
        if verb is Verb.TENANT and (placed is None or placed.tenant_vlan is None):
            raise InvalidState("the machine is in no segment of a tenant", state="no_tenant_segment")
        if verb is Verb.CHECK and (placed is None or (placed.vlan is None and placed.place is not Place.SHUT)):
            raise InvalidState("no task has placed the ports yet: berth node port move", state="not_placed")
        if verb in (Verb.PROVISIONING, Verb.SHUT) and not await _is_retired(tx, node_id):
            await require_unused(tx, node_id, None, writing=True)
        kind = BmcTaskKind.CHECK_PORTS if verb is Verb.CHECK else BmcTaskKind.MOVE_PORTS
        by = f"{actor.kind.value}:{actor.id}"
        task = await bmc_tasks.request_task(tx, node_id, site_id, kind, by, REQUEST_SECONDS_MAX)
        if verb in _PLACES:
            await store.want_place(tx, node_id, site_id, _PLACES[verb], task.id)
        else:
            await store.want_compared(tx, node_id, task.id)
        said = {"to": verb.value, "task_id": str(task.id)}
        await audit.record(tx, actor, "node.move_ports", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, await show_ports(tx, node_id), node_id)

    return await run_once(context, operation, effect, None)


async def _is_retired(tx: Transaction, node_id: UUID) -> bool:
    """Whether the locked node is retired: nothing is on it, and its ports are left to other machines."""
    return await nodes.lock_node(tx, node_id) is NodeState.RETIRED


async def _lock(tx: Transaction, node_id: UUID) -> UUID:
    """Lock node, site and BMC of a machine on which nothing is open; its site. Raises `NotFound`, `InvalidState`."""
    await nodes.lock_node(tx, node_id)
    found = (await bmcs.read_bmc(tx, node_id)).site_id
    await sites.lock_site(tx, found)
    await bmcs.lock_bmc(tx, node_id)
    await require_no_run(tx, node_id)
    await require_no_update(tx, node_id)
    task = await bmc_tasks.lock_open(tx, node_id)
    if task is not None:
        raise InvalidState(f"a task ({task.kind.value}) of the machine is open; wait for its end", state="task_open")
    return found
