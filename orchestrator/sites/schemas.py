"""Sites and BMCs as operators register and see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, FailFast, Field

from berth.process.bounded_models import at_most
from node_agent.protocol import EnrolRequest
from node_agent.wire.deploy_enrolment import SMBIOS_UUID
from node_agent.wire.deploy_tasks import MetalWipeReport
from node_agent.wire.sites import RECIPIENTS_MAX, SEALED_LENGTH_MAX, BmcInventory, BmcTaskKind
from orchestrator.http.documents import Waits
from orchestrator.http.fields import WHOLE, HardwareId, Id, Request, Sentence, SigningRequest
from orchestrator.http.paging import PageQuery
from orchestrator.http.types.numbers import BigCount, Count
from orchestrator.nodes.deploy_systems.root_disks import RootDiskHint
from orchestrator.nodes.deploy_systems.run_rules import RunKind, RunOutcome, RunStep
from orchestrator.nodes.deploy_systems.schemas import MACS_MAX, DeployNetwork, MacAddress
from orchestrator.nodes.schemas import TOKEN_SECONDS_MAX
from orchestrator.sites.states import AgentState, BmcTaskOutcome

SITE_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
DIGEST_PATTERN = r"^[0-9a-f]{64}$"

SiteName = Annotated[str, Field(pattern=SITE_PATTERN)]
PublicKey = Annotated[str, Field(pattern=DIGEST_PATTERN, description="X25519 public key, hex")]
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN)]


class CreateSite(Request):
    """A site to be, and the public half of its recovery key, to which every password of its BMCs is sealed."""

    name: SiteName
    recovery_key: PublicKey


class InviteAgent(Request):
    """An agent of a site; its token is bound to this hardware id, or to whichever uses it first."""

    name: SiteName
    hardware_id: HardwareId | None = None
    valid_seconds: Annotated[int, Field(ge=1, le=TOKEN_SECONDS_MAX), WHOLE] | None = None


class EnrolAgent(EnrolRequest):
    """`EnrolRequest` with a hardware id that can be stored."""

    hardware_id: HardwareId
    csr_pem: SigningRequest


class AgentToken(BaseModel):
    """A one-time token, which is shown once, and the agent that enrols with it."""

    agent_id: UUID
    token: str
    expires_at: datetime


class RevokeAgent(Request):
    """Why, on the record."""

    reason: Sentence


class SealedCopy(Request):
    """A password as it was sealed to one recipient: an agent of the site, or the site itself, which is its recovery key."""

    recipient: Id
    text: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]+$", min_length=1, max_length=SEALED_LENGTH_MAX)]


class SealedPassword(Request):
    """A password that the client sealed to each recipient of the site, as the next generation of this BMC."""

    generation: Annotated[int, Field(ge=1, le=2**53 - 1), WHOLE]
    copies: Annotated[list[SealedCopy], Field(min_length=1, max_length=RECIPIENTS_MAX), at_most(RECIPIENTS_MAX)]


_HOST = r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:]{2,39}\]"
_PORT = r"[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
BMC_URL = rf"^https://({_HOST})(:({_PORT}))?$"
"""One host, an IPv6 address in brackets, and at most one port."""


CONSOLE_HOST_KEY = r"^((ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+={0,2})?$"


class PutBmc(Request):
    """How the agents of a site reach the BMC of a node. Without `password` the present one stays."""

    site_id: Id
    url: Annotated[str, Field(pattern=BMC_URL, max_length=263)]
    certificate_sha256: Digest = Field(description="SHA-256 of the only TLS certificate (DER) that is trusted, hex")
    username: Annotated[str, Field(pattern=r"^[!-~]{1,64}$")]
    system_id: Annotated[str, Field(pattern=r"^[!-~]{1,128}$")] | None = Field(
        None, description="`Id` of the system, where the BMC has several"
    )
    password: SealedPassword | None = None
    rotates_at_release: bool | None = Field(
        None, description="whether each release rotates the password; null: as it is, and true for a new BMC"
    )
    console_host_key: Annotated[str, Field(pattern=CONSOLE_HOST_KEY, max_length=2_048)] | None = Field(
        None,
        description="the only SSH host key that is trusted for the serial console; null: as it is; empty: none, and no console",
    )
    console_shared: bool | None = Field(
        None,
        description="whether tenants may enter a console that is shared with the BMC's command line; null: as it is",
    )


class SwitchMachine(Request):
    """Switch the machine. `off` shuts its system down, and forces it where that is refused or ignored for 180 s."""

    verb: Literal["on", "off", "reset"] = Field(description="`reset`: off by force, then on")


class BmcQuery(PageQuery):
    """Which BMCs to list."""

    site_id: UUID | None = None


class Lease(BaseModel):
    """The agent that acts for the site now, until when unless it renews, and its fence."""

    agent_id: UUID
    fence: BigCount
    until: datetime


class SiteAgent(BaseModel):
    """An agent of a site."""

    id: UUID
    name: str
    state: AgentState
    epoch: BigCount
    hardware_id: str | None
    enrolled_at: datetime | None
    identity_conflict_at: datetime | None
    sealing_key: str | None = Field(description="X25519 public key to which passwords are sealed, hex")
    sealing_key_fingerprint: str | None
    agent_version: str | None
    last_seen_at: datetime | None
    created_at: datetime


class Site(BaseModel):
    """A site, with its agents."""

    id: UUID
    name: str
    recovery_key: str
    recovery_key_fingerprint: str
    created_at: datetime
    machines: Count
    lease: Lease | None = Field(description="null: no agent acts for the site now")
    agents: list[SiteAgent]


class BmcTask(BaseModel):
    """A task about a BMC."""

    id: UUID
    kind: BmcTaskKind
    requested_at: datetime
    requested_by: str
    issued_at: datetime | None
    dispatched_at: datetime | None
    ended_at: datetime | None
    outcome: BmcTaskOutcome | None = Field(description="null: it is open")
    failure: str | None = Field(description="why it did not complete: a code, and what was found")
    power_state: str | None = Field(description="as it was read at the end of the task; null: it was not read")
    waits: Waits | None


class Bmc(BaseModel):
    """The BMC of a node. `recipients`: to which the present password is sealed."""

    node_id: UUID
    site_id: UUID
    url: str
    certificate_sha256: str
    username: str
    system_id: str | None
    generation: BigCount
    pending_generation: BigCount | None = Field(description="a newer password that the BMC may have received")
    recipients: list[UUID]
    changed_at: datetime
    changed_by: str
    power_state: str | None
    inventory: BmcInventory | None
    looked_at: datetime | None
    answered_at: datetime | None = Field(description="when it answered last; null: never at this address")
    silent_because: str | None = Field(description="why it did not answer when it was asked last: a code")
    rotates_at_release: bool = Field(description="whether each release of the machine rotates the password")
    console_host_key: str | None = Field(
        description="the trusted SSH host key of the serial console; null: it is not set up"
    )
    console_shared: bool = Field(
        description="whether a console that is shared with the BMC's command line may be entered"
    )
    task: BmcTask | None = Field(description="the newest one")


class RunDeploySystem(Request):
    """What a run of a deploy system does. Without `network` or `root_disk`, that of the node's newest run; without `smbios_uuid`,
    the machine that was inspected, or that the BMC reported at the last look."""

    kind: Literal["inspect", "wipe"] = Field("inspect", description="`wipe` erases every disk of the inspected machine")
    network: DeployNetwork | None = None
    smbios_uuid: Annotated[str, Field(pattern=SMBIOS_UUID)] | None = None
    macs: Annotated[list[MacAddress], Field(max_length=MACS_MAX), FailFast()] = Field(
        default_factory=list, description="ports that the machine must have beside that of `network`"
    )
    require_tpm: bool = Field(False, description="refuse the enrolment without a proof of the machine's TPM")
    root_disk: RootDiskHint | None = Field(
        None, description="for deployments: the smallest disk that is like this and holds the image"
    )


class RunNetwork(BaseModel):
    """The network that the deploy system of a run has."""

    mac: str
    address: str
    gateway: str | None
    vlan: Count | None
    mtu: Count | None


class ReportedWipe(BaseModel):
    """What a deploy system has reported of its wipe."""

    proven: bool = Field(description="every disk of the inspection was read back as zeroes, and nothing remains")
    report: MetalWipeReport


class Finding(BaseModel):
    """What is wrong with a machine after its release, whose slots are in quarantine for it."""

    code: str = Field(
        description="`bmc_rotation_failed`, `firmware_changed`, `firmware_not_listed`, `firmware_not_read`"
    )
    detail: str
    next_step: str | None = Field(description="null: the code is of a later version")


class DeployRun(BaseModel):
    """A run of a machine: switch off, start a deploy system, its task, end; or one without, which switches a rented machine."""

    id: UUID
    node_id: UUID
    site_id: UUID
    kind: RunKind
    step: RunStep = Field(description="what it does now, or did last")
    smbios_uuid: UUID
    network: RunNetwork
    root_disk: RootDiskHint | None = Field(description="null: the smallest disk that holds the image")
    allocation_id: UUID | None = Field(description="whose task it performs; null: an operator requested it")
    requested_at: datetime
    requested_by: str
    stop_requested_at: datetime | None
    stop_requested_by: str | None
    deploy_epoch: BigCount | None = Field(description="of the deploy system that it has permitted")
    ended_at: datetime | None
    outcome: RunOutcome | None = Field(description="null: it is open")
    failure: str | None = Field(description="why it failed: a code, and what was found")
    wipe: ReportedWipe | None = Field(description="null: it wipes nothing, or nothing was reported")
    isolation: Literal["none", "vlan"] = Field(
        description="what separates the machine from others, as its ports were read back last in this run"
    )
    findings: list[Finding] = Field(description="what is wrong with the machine after a release, which completes")
    waits: Waits | None
