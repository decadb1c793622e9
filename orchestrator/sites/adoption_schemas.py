"""The adoption of a machine that runs already, as operators request and see it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, FailFast, Field

from node_agent.wire.deploy_enrolment import SMBIOS_UUID
from node_agent.wire.images import LOGIN_USER_PATTERN
from orchestrator.allocations.schemas import Allocation
from orchestrator.http.fields import WHOLE, Id, Labels, Printable, Request, SshKeyIds
from orchestrator.http.types.moments import Moment
from orchestrator.nodes.deploy_systems.schemas import MACS_MAX, DeployNetwork, MacAddress
from orchestrator.sites.schemas import RunNetwork


class AdoptedConnection(Request):
    """Where the tenant logs in to the machine. It is stated, and not proven."""

    host: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9:][A-Za-z0-9.:_-]*$")]
    port: Annotated[int, Field(ge=1, le=65_535), WHOLE] = 22
    user: Annotated[str, Field(pattern=LOGIN_USER_PATTERN)]
    host_key: Annotated[
        str,
        Field(
            max_length=4_096, pattern=r"^[a-z0-9][a-z0-9@.-]* [A-Za-z0-9+/]+={0,2}$",
            description="a line of OpenSSH's format without its comment",
        ),
    ]  # fmt: skip


class AdoptMachine(Request):
    """A tenant's machine that runs already. `network`: of the deploy system that wipes it at its release."""

    tenant_id: Id
    sku: Printable = Field(description="a SKU of the shape `baremetal` for all GPUs of the node")
    image: Printable | None = Field(None, description="what a rebuild deploys; default: that of the SKU")
    ssh_key_ids: SshKeyIds
    name: Printable | None = None
    labels: Labels = Field(default_factory=dict)
    ends_at: Moment | None = Field(None, description="when Berth releases it; default: never")
    connection: AdoptedConnection
    network: DeployNetwork
    macs: Annotated[list[MacAddress], Field(max_length=MACS_MAX), FailFast()] = Field(
        default_factory=list, description="ports that the machine must have beside that of `network`"
    )
    require_tpm: bool = Field(False, description="refuse the deploy system without a proof of the machine's TPM")
    smbios_uuid: Annotated[str, Field(pattern=SMBIOS_UUID)] | None = Field(
        None, description="must be the one that the BMC reports; required where it reports none"
    )
    serial: Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,256}$")] | None = Field(
        None, description="must be the one that the BMC reports"
    )


class AdoptedMachine(BaseModel):
    """The machine as its BMC described it before the adoption. null: it reported none."""

    manufacturer: str | None
    model: str | None
    serial: str | None
    uuid: str | None
    bios_version: str | None
    power_state: str
    looked_at: datetime


class Adoption(BaseModel):
    """The adoption of the machine of a node, and the allocation on it."""

    node_id: UUID
    allocation: Allocation
    adopted_at: datetime
    adopted_by: str
    machine: AdoptedMachine
    smbios_uuid: UUID
    macs: list[str]
    network: RunNetwork
    gaps: list[str] = Field(
        description="what was not seen: `disks`, `operating_system`, `host_key`, `uefi_variables`, `tpm`, `firmware`, `uuid`,"
        " `serial`, `network_port`"
    )
    inspected: bool = Field(description="whether a run of the allocation has inspected the machine since")
