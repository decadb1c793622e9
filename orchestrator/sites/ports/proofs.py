"""What proves where the ports of a machine are: each port of the signed order, read back by a driver that has moved it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from berth.process.json_objects import JsonObject
from node_agent.wire.switches import PortFound, PortOrder, SwitchPort
from orchestrator.sites.ports.rules import Port

PortKey = tuple[str, str]
"""Switch and port."""


def read_back(found: Sequence[JsonObject] | None) -> frozenset[PortKey]:
    """The ports that the last proof of a machine has read back: a driver that moves ports has written them."""
    return frozenset((one["switch"], one["port"]) for one in found or [] if one.get("isolation") == "vlan")


def named_ports(ports: Sequence[Port], held: Collection[PortKey]) -> list[SwitchPort]:
    """The ports of an order; for those that are held a driver without isolation does not count."""
    return [
        SwitchPort(switch=one.switch, port=one.port, isolation="vlan" if (one.switch, one.port) in held else "none")
        for one in ports
    ]


def objection(order: PortOrder | None, found: Sequence[PortFound], held: Collection[PortKey]) -> str | None:
    """Why a completed report does not prove the order: a code, and what differs. None: it does."""
    wanted = set() if order is None else {(one.switch, one.port) for one in order.ports}
    read = {(one.switch, one.port) for one in found}
    if read != wanted or len(read) != len(found):
        return "bad_report: the report is not of the ports of its task"
    assert order is not None, "a report has a port"
    segments = [] if order.segment is None else [order.segment.number]
    for one in found:
        if one.isolation == "vlan" and (one.segments, one.is_shut) != (segments, order.segment is None):
            return f"bad_report: port {one.port} of {one.switch} was not read as ordered"
        if one.isolation != "vlan" and (one.switch, one.port) in held:
            return f"not_read_back: port {one.port} of {one.switch} may carry a tenant's VLAN, and {one.driver} does not read it"
    return None
