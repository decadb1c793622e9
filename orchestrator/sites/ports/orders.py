"""Tasks that move or compare the ports of a machine: requested, signed, and reported. Within the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid4

from node_agent.wire.sites import BmcTaskKind
from node_agent.wire.switches import PortFound, PortOrder, Segment
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.deploy_systems.run_store import DeployRun
from orchestrator.sites.ports import store
from orchestrator.sites.ports.proofs import named_ports, objection, read_back
from orchestrator.sites.ports.rules import Place, isolation_of
from orchestrator.sites.store.bmc_tasks import BmcTask

OF_PORTS: Final = frozenset({BmcTaskKind.MOVE_PORTS, BmcTaskKind.CHECK_PORTS})
"""Kinds of tasks about the ports of a machine."""
RELYING: Final = frozenset({BmcTaskKind.START_DEPLOY, BmcTaskKind.POWER_ON})
"""What switches a machine on: only if its ports are where the newest task has left them."""


class NoSegment(Exception):
    """The ports have no segment to be moved to; the text is a code, and why."""


async def order_of(tx: Transaction, task: BmcTask, run: DeployRun | None) -> PortOrder | None:
    """What a task names of the ports of its locked machine; None if it does not concern them. Leases the tenant's segment.

    Raises NoSegment.
    """
    if task.kind not in OF_PORTS and task.kind not in RELYING:
        return None
    ports = await store.read_ports(tx, task.node_id)
    placed = await store.read_node_segment(tx, task.node_id)
    if ports and task.kind in RELYING:
        await _require_place(tx, task, placed, run)
    if not ports or placed is None:
        if task.kind in OF_PORTS:
            raise NoSegment("no_ports: no port of the machine is set any more")
        return None
    moves = task.kind is BmcTaskKind.MOVE_PORTS
    vlan = await _named(tx, task.node_id, placed, run) if moves else placed.vlan
    if vlan is None and placed.place is not Place.SHUT:
        raise NoSegment("not_placed: no task has named the segment of the ports yet: berth node port move")
    is_held = placed.tenant_vlan is not None or (moves and placed.place is Place.TENANT)
    named = named_ports(ports, read_back(placed.found) if is_held else frozenset())
    segment, while_off = None if vlan is None else Segment(number=vlan), moves and placed.place is Place.PROVISIONING
    return PortOrder(ports=named, segment=segment, move=moves, while_off=while_off)


async def _require_place(
    tx: Transaction, task: BmcTask, placed: store.NodeSegment | None, run: DeployRun | None
) -> None:  # fmt: skip
    """Return if what the task starts belongs to the segment that the ports were moved to last. Raises NoSegment."""
    if task.kind is BmcTaskKind.START_DEPLOY:
        if placed is None or placed.place is not Place.PROVISIONING:
            raise NoSegment(
                "not_in_provisioning: a deploy system starts in the provisioning segment alone; order it again"
            )
        return
    if run is not None and run.allocation_id is not None:
        tenant: UUID | None = await store.read_tenant(tx, run.allocation_id)
    else:
        tenant = await store.read_occupant(tx, task.node_id)
    if tenant is None:
        return
    held = None if placed is None or placed.place is not Place.TENANT else placed.tenant_vlan
    if placed is None or held is None or not await store.is_of_tenant(tx, placed.site_id, held, tenant):
        raise NoSegment(
            "not_in_tenant_segment: the machine has a tenant's system, and its ports are not in the segment of that tenant;"
            " the tenant's start or reboot moves them, and a release wipes it"
        )


async def _named(tx: Transaction, node_id: UUID, placed: store.NodeSegment, run: DeployRun | None) -> int | None:
    """The VLAN that the ports are moved to; None: they are shut."""
    if placed.place is Place.TENANT:
        if run is None or run.allocation_id is None:
            return placed.tenant_vlan
        tenant, held = await store.read_tenant(tx, run.allocation_id), placed.tenant_vlan
        if held is not None and not await store.is_of_tenant(tx, placed.site_id, held, tenant):
            raise NoSegment(f"segment_not_left: the ports may still carry VLAN {held} of another tenant")
        vlan = await store.lease_segment(tx, node_id, placed.site_id, tenant)
        if vlan is None and await store.is_unknown(tx, placed.site_id):
            raise NoSegment(
                "segments_unknown: machines of the site may carry VLANs of the lost interval of a restore; wipe or keep each that"
                " berth restore nodes lists"
            )
        if vlan is None:
            raise NoSegment("segments_exhausted: every tenant VLAN of the site is leased, or in its quarantine")
        return vlan
    if placed.place is Place.SHUT:
        await store.name_segment(tx, node_id, None)
        return None
    segments = await store.read_segments(tx, placed.site_id)
    assert segments is not None, "a placed machine has a site with segments"
    await store.name_segment(tx, node_id, segments.provisioning_vlan)
    return segments.provisioning_vlan


async def unproven(tx: Transaction, task: BmcTask, order: PortOrder | None, found: Sequence[PortFound]) -> str | None:
    """Why the report of a completed task about ports is no proof: a code, and what differs. None: it is one."""
    placed = await store.read_node_segment(tx, task.node_id)
    is_held = placed is not None and placed.tenant_vlan is not None
    return objection(order, found, read_back(placed.found) if placed is not None and is_held else frozenset())


async def note_ended(
    tx: Transaction, task: BmcTask, outcome: str, failure: str | None, found: Sequence[PortFound] | None
) -> None:
    """Keep what a task about ports has found, and emit `node.ports_moved` if it was to move them."""
    if task.kind not in OF_PORTS:
        return
    if outcome == "completed":
        await store.note_proven(tx, task.node_id, task.id, found or [])
    else:
        await store.note_doubt(tx, task.node_id, task.id)
    if task.kind is not BmcTaskKind.MOVE_PORTS:
        return
    placed = await store.read_node_segment(tx, task.node_id)
    moved = {
        "node_id": task.node_id, "task_id": task.id, "place": None if placed is None else placed.place.value,
        "vlan": None if placed is None else placed.vlan, "isolation": isolation_of(found or []) if found else None,
        "outcome": outcome, "failure": failure,
    }  # fmt: skip
    await append_events(tx, [Event(EventType.NODE_PORTS_MOVED, f"nodes/{task.node_id}", uuid4(), None, moved)])
