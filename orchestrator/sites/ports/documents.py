"""Segments and ports as operators see them: the JSON of docs/reference/metal/switches.md."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_tasks import LldpNeighbour
from orchestrator.sites.documents import task_document
from orchestrator.sites.ports.orders import OF_PORTS
from orchestrator.sites.ports.rules import Port, agrees
from orchestrator.sites.ports.store import NodeSegment, SiteSegments, TenantSegment
from orchestrator.sites.store.bmc_tasks import BmcTask
from orchestrator.times import rfc3339


def segments_document(segments: SiteSegments, leased: Sequence[TenantSegment]) -> JsonObject:
    """The JSON of the segments of a site."""
    return {
        "site_id": str(segments.site_id),
        "provisioning_vlan": segments.provisioning_vlan,
        "first_tenant_vlan": segments.first_vlan,
        "last_tenant_vlan": segments.last_vlan,
        "quarantine_seconds": segments.quarantine_seconds,
        "changed_at": rfc3339(segments.changed_at),
        "changed_by": segments.changed_by,
        "leased": [
            {
                "vlan": one.vlan, "tenant_id": str(one.tenant_id), "fence": one.fence, "leased_at": rfc3339(one.leased_at),
                "returned_at": rfc3339(one.returned_at), "free_at": rfc3339(one.free_at), "machines": one.machines,
            }
            for one in leased
        ],
    }  # fmt: skip


def ports_document(
    node_id: UUID, ports: Sequence[Port], placed: NodeSegment | None, task: BmcTask | None,
    neighbours: Sequence[LldpNeighbour] | None,
) -> JsonObject:  # fmt: skip
    """The JSON of the ports of a machine; `neighbours`: what its newest inspection heard."""
    return {
        "node_id": str(node_id),
        "ports": [_port_document(port, neighbours) for port in ports],
        "isolation": "none" if placed is None or placed.isolation is None else placed.isolation,
        "place": None if placed is None else placed.place.value,
        "vlan": None if placed is None else placed.vlan,
        "changed_at": None if placed is None else rfc3339(placed.changed_at),
        "proven_at": None if placed is None else rfc3339(placed.proven_at),
        "found": None if placed is None or placed.proven_at is None else placed.found,
        "task": None if task is None or task.kind not in OF_PORTS else task_document(task),
    }


def _port_document(port: Port, neighbours: Sequence[LldpNeighbour] | None) -> JsonObject:
    heard = next((one for one in neighbours or [] if one.mac == port.mac), None)
    return {
        "switch": port.switch,
        "port": port.port,
        "mac": port.mac,
        "heard": None if heard is None else heard.model_dump(exclude={"mac"}),
        "agrees": agrees(port, neighbours),
    }
