"""Deploy systems as operators permit and see them, and as machines enrol."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, FailFast, Field

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_enrolment import SMBIOS_UUID, DeployChallengeRequest, DeployEnrolRequest
from node_agent.wire.deploy_medium import MAC
from node_agent.wire.deploy_tasks import FirmwareVersion, MetalInspectReport
from orchestrator.http.documents import Waits
from orchestrator.http.fields import WHOLE, Request, SigningRequest
from orchestrator.http.types.numbers import BigCount
from orchestrator.nodes.deploy_systems.rules import PermissionState

TOKEN_SECONDS = 900
CERTIFICATE_SECONDS = 1_800
MACS_MAX = 16
_INTERFACE = r"^[0-9a-fA-F.:]{2,45}/[0-9]{1,3}$"
_ADDRESS = r"^[0-9a-fA-F.:]{2,45}$"

MacAddress = Annotated[str, Field(pattern=MAC, description="six octets in lower case, with colons")]


class DeployNetwork(Request):
    """The static network of the deploy system: the port with this MAC has this address."""

    mac: MacAddress
    address: Annotated[str, Field(pattern=_INTERFACE, description="address and prefix length: 192.0.2.7/24")]
    gateway: Annotated[str, Field(pattern=_ADDRESS)] | None = None
    vlan: Annotated[int, Field(ge=1, le=4_094), WHOLE] | None = None
    mtu: Annotated[int, Field(ge=576, le=9_216), WHOLE] | None = None


class PermitDeploySystem(Request):
    """What is permitted: one start of a deploy system on one machine. Without `smbios_uuid`, the machine that was inspected."""

    network: DeployNetwork
    smbios_uuid: Annotated[str, Field(pattern=SMBIOS_UUID)] | None = Field(
        None, description="of the machine, in lower case, as its BMC or inspection reports it"
    )
    macs: Annotated[list[MacAddress], Field(max_length=MACS_MAX), FailFast()] = Field(
        default_factory=list, description="ports that the machine must have beside that of `network`"
    )
    require_tpm: bool = Field(False, description="refuse the enrolment without a proof of the machine's TPM")
    valid_seconds: Annotated[int, Field(ge=60, le=3_600), WHOLE] = Field(TOKEN_SECONDS, description="life of the token")
    certificate_seconds: Annotated[int, Field(ge=60, le=14_400), WHOLE] = Field(
        CERTIFICATE_SECONDS, description="life of the certificate; it is not renewed"
    )


class InspectMachine(Request):
    """An inspection of the machine."""

    power_off: bool = Field(True, description="power the machine off after the report")


class DeploySystem(BaseModel):
    """A permission to start a deploy system."""

    id: UUID
    node_id: UUID
    deploy_epoch: BigCount
    state: PermissionState
    smbios_uuid: UUID
    macs: list[str]
    tpm_required: bool
    expires_at: datetime = Field(description="the token is not accepted after it")
    used_at: datetime | None
    serial: str | None = Field(description="of its certificate")
    not_after: datetime | None = Field(description="the end of its certificate")
    hello_at: datetime | None = Field(description="when the deploy system said that it had started")
    refusal: str | None = Field(description="why the issuer refused the certificate")


class PermittedDeploySystem(DeploySystem):
    """A new permission. `medium` is returned in this answer, and in its replays to the same caller, only."""

    medium: str = Field(description="the configuration on the medium (JSON), with its one-time token")


class InspectedMachine(BaseModel):
    """What the last inspection found."""

    smbios_uuid: UUID
    macs: list[str]
    report: MetalInspectReport
    inspected_at: datetime
    firmware: list[FirmwareVersion] | None = Field(description="as its deploy system read it; null: it reported none")
    bmc_firmware: list[FirmwareVersion] | None = Field(
        description="as the BMC named it at the end; null: it named none"
    )


class NodeDeploySystem(DeploySystem):
    """The newest permission of a node, and its machine."""

    machine: InspectedMachine | None = Field(description="null: it was not inspected yet")


class DeployTask(BaseModel):
    """A task of a deploy system."""

    id: UUID
    node_id: UUID
    deploy_epoch: BigCount
    type: str
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None = Field(description="null: its task was not signed yet")
    ended_at: datetime | None
    outcome: str | None = Field(description="completed, failed or not_run; null: it is open")
    failure: str | None = Field(description="why it did not complete: a code, and what was found")
    result: JsonObject | None
    waits: Waits | None


class ChallengeDeploySystem(DeployChallengeRequest):
    """As the wire type; for the OpenAPI document."""


class EnrolDeploySystem(DeployEnrolRequest):
    """As the wire type, with the form of a signing request."""

    csr_pem: SigningRequest
