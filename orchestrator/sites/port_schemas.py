"""Segments of sites and ports of machines, as operators set and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, FailFast, Field

from node_agent.wire.switches import PORT_PATTERN, PORTS_MAX, SWITCH_PATTERN, VLAN_MAX
from orchestrator.http.fields import WHOLE, Request
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.nodes.deploy_systems.schemas import MacAddress
from orchestrator.sites.ports.rules import QUARANTINE_SECONDS, QUARANTINE_SECONDS_MAX, Place
from orchestrator.sites.schemas import BmcTask

Vlan = Annotated[int, Field(ge=1, le=VLAN_MAX), WHOLE]


class PutSegments(Request):
    """The VLANs of a site: one that machines are provisioned in, and those that are leased to tenants."""

    provisioning_vlan: Vlan
    first_tenant_vlan: Vlan
    last_tenant_vlan: Vlan
    quarantine_seconds: Annotated[int, Field(ge=0, le=QUARANTINE_SECONDS_MAX), WHOLE] = Field(
        QUARANTINE_SECONDS, description="how long a VLAN is leased to no other tenant once the last machine has left it"
    )


class LeasedSegment(BaseModel):
    """A VLAN that a tenant has, or had until `free_at`."""

    vlan: Count
    tenant_id: UUID
    fence: BigCount
    leased_at: datetime
    returned_at: datetime | None = Field(description="when its last machine was proven to have left it")
    free_at: datetime | None = Field(description="from then on another tenant may have it")
    machines: Count = Field(description="machines whose ports may carry it")


class SiteSegments(BaseModel):
    """The segments of a site."""

    site_id: UUID
    provisioning_vlan: Count
    first_tenant_vlan: Count
    last_tenant_vlan: Count
    quarantine_seconds: Count
    changed_at: datetime
    changed_by: str
    leased: list[LeasedSegment]


class SwitchPort(Request):
    """A network port of the machine, by its MAC, and the port of a switch that it is connected to."""

    switch: Annotated[str, Field(pattern=SWITCH_PATTERN, description="as the agents of the site call it")]
    port: Annotated[str, Field(pattern=PORT_PATTERN, description="as the switch calls it")]
    mac: MacAddress


class PutPorts(Request):
    """Every port of the machine that a tenant's system can use; an empty list forgets them."""

    ports: Annotated[list[SwitchPort], Field(max_length=PORTS_MAX), FailFast()]


class MovePorts(Request):
    """Where to move the ports. `tenant` puts a tenant's machine back into the segment of its tenant; `check` moves nothing."""

    to: Literal["provisioning", "tenant", "shut", "check"]


class HeardSwitch(BaseModel):
    """What the switch has announced at this port (LLDP) when the machine was inspected."""

    chassis_id: str
    port_id: str
    system_name: str | None


class PortShown(BaseModel):
    """A port as it was set. `agrees`: whether the switch announced itself so; null: none was heard."""

    switch: str
    port: str
    mac: str
    heard: HeardSwitch | None
    agrees: bool | None


class PortRead(BaseModel):
    """A port as it was read back at its switch."""

    switch: str
    port: str
    driver: str
    isolation: Literal["none", "vlan"]
    segments: list[Count]
    is_shut: bool


class NodePorts(BaseModel):
    """The switch ports of a machine, where they are to be, and what was proven of it."""

    node_id: UUID
    ports: list[PortShown]
    isolation: Literal["none", "vlan"] = Field(
        description="what separates the machine from others, as it was proven last"
    )
    place: Place | None = Field(description="where the ports are to be; null: they were never placed")
    vlan: Count | None = Field(description="the VLAN of that place; null: none, or no task has named it yet")
    changed_at: datetime | None
    proven_at: datetime | None = Field(description="when the ports were read there; null: that is not proven")
    found: list[PortRead] | None = Field(description="as they were read then")
    task: BmcTask | None = Field(description="the newest task about them, while it is the newest of the machine")
