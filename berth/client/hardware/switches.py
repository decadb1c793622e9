"""Segments of sites and switch ports of machines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from berth.client.hardware.sites import BmcTask
from berth.client.models import Answer


class LeasedSegment(Answer):
    """A VLAN that a tenant has, or had until `free_at`. `machines`: how many may carry it."""

    vlan: int
    tenant_id: UUID
    fence: int
    leased_at: datetime
    returned_at: datetime | None = None
    free_at: datetime | None = None
    machines: int


class SiteSegments(Answer):
    """The VLANs of a site, and which of them tenants have."""

    site_id: UUID
    provisioning_vlan: int
    first_tenant_vlan: int
    last_tenant_vlan: int
    quarantine_seconds: int
    changed_at: datetime
    changed_by: str
    leased: list[LeasedSegment]


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """A network port of a machine, by its MAC, and the port of a switch that it is connected to."""

    switch: str
    port: str
    mac: str

    def document(self) -> dict[str, str]:
        """The JSON that the API takes."""
        return {"switch": self.switch, "port": self.port, "mac": self.mac}


class HeardSwitch(Answer):
    """What the switch has announced at a port when the machine was inspected."""

    chassis_id: str
    port_id: str
    system_name: str | None = None


class SetPort(Answer):
    """A port as it was set. `agrees` None: the inspection heard no switch there."""

    switch: str
    port: str
    mac: str
    heard: HeardSwitch | None = None
    agrees: bool | None = None


class ReadPort(Answer):
    """A port as it was read back at its switch. `isolation` none: its driver moves nothing."""

    switch: str
    port: str
    driver: str
    isolation: str
    segments: list[int]
    is_shut: bool


class NodePorts(Answer):
    """The switch ports of a machine and where they are to be. `proven_at` None: that is not proven."""

    node_id: UUID
    ports: list[SetPort]
    isolation: str
    place: str | None = None
    vlan: int | None = None
    changed_at: datetime | None = None
    proven_at: datetime | None = None
    found: list[ReadPort] | None = None
    task: BmcTask | None = None
