"""What an agent of a site and the control plane send each other, besides enrolment and renewal, which are as a node's.

The control plane stores sealed passwords and cannot open one; `berth/process/sealed_passwords.py` has their format.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import FailFast, Field

from berth.process.bounded_models import at_most
from node_agent.protocol import HandedOutTask
from node_agent.wire.console import MachineConsole
from node_agent.wire.deploy_medium import CA_CHARACTERS_MAX, Address, DeployEpoch, MediumNetwork
from node_agent.wire.fields import STORABLE, Exact, FromServer, Instant, Truth, Whole, Wire
from node_agent.wire.firmware import FirmwareOrder, FirmwareResult
from node_agent.wire.switches import PORTS_MAX, PortFound, PortOrder

SEALED_LENGTH_MAX: Final = 1024
RECIPIENTS_MAX: Final = 9
"""Agents of a site, and its recovery key."""
KNOWN_BMC_TASKS_MAX: Final = 128
"""Twice the most slots of an agent: as many tasks again may wait for the SSH servers of machines."""
WAIT_SECONDS_MAX: Final = 60
LEASE_SECONDS_MAX: Final = 300
PARTS_MAX: Final = 128
REPORT_BYTES_MAX: Final = 64 * 1024
MACHINES_MAX: Final = 500
"""BMCs of a site in one page of the round that asks whether they answer."""

Sealed = Annotated[str, Field(min_length=1, max_length=SEALED_LENGTH_MAX, pattern=r"^[A-Za-z0-9._:-]+$")]
SealedTo = Annotated[dict[UUID, Sealed], Field(min_length=1, max_length=RECIPIENTS_MAX), at_most(RECIPIENTS_MAX)]
PublicKeyText = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
ServerFacts = Literal["superseded", "already_applied", "lease_lost"]


class BmcTaskKind(StrEnum):
    """What is requested of a BMC. Its task is `metal.` and this, or `metal.rotate_credentials`, `metal.start_deploy_system`,
    `metal.end_deploy_system`, `metal.eject_medium`; of `check_ports` it is `metal.move_ports` too."""

    LOOK = "look"
    ROTATE = "rotate"
    RESEAL = "reseal"
    POWER_ON = "power_on"
    POWER_OFF = "power_off"
    POWER_RESET = "power_reset"
    START_DEPLOY = "start_deploy"
    END_DEPLOY = "end_deploy"
    EJECT = "eject"
    REACH = "reach"
    RESET_BMC = "reset_bmc"
    MOVE_PORTS = "move_ports"
    CHECK_PORTS = "check_ports"
    FIRMWARE = "firmware"


class BmcPassword(Exact):
    """One generation of the password of a BMC, sealed to each recipient."""

    generation: Whole
    sealed: SealedTo


class DeployBoot(Exact):
    """The configuration of a machine's medium (`DeployMedium`), with its token sealed to agents of the site alone."""

    deploy_epoch: DeployEpoch
    api_url: Address
    ca_pem: Annotated[str, Field(max_length=CA_CHARACTERS_MAX)]
    node_api_url: Address
    token: SealedTo
    expires_at: Instant
    key_set_serial: Whole = 0
    network: MediumNetwork


class SshServer(Exact):
    """An SSH server that must show this host key, in the form `ssh-ed25519 AAAA...`."""

    host: IPv4Address | IPv6Address
    port: Annotated[Whole, Field(ge=1, le=65_535)]
    host_key: Annotated[str, Field(max_length=4_096, pattern=r"^ssh-ed25519 [A-Za-z0-9+/]+={0,2}$")]


class BmcTaskParameters(Exact):
    """A task of a site: the BMC, its passwords (the one thought current first), and the recipients of new ones.

    `boot`: of `metal.start_deploy_system` alone; `reach`: of `metal.reach` alone; `firmware`: of `metal.firmware` alone;
    `console`: of `metal.console` alone;
    `ports`: of `metal.move_ports`, and where a run switches a machine on whose ports must be where it has left them.
    """

    site_id: UUID
    url: str
    certificate_sha256: PublicKeyText
    username: str
    system_id: str | None = None
    passwords: Annotated[list[BmcPassword], Field(min_length=1, max_length=2)]
    recipients: Annotated[dict[UUID, PublicKeyText], Field(max_length=RECIPIENTS_MAX)] = Field(default_factory=dict)
    # Left out if there is none: an agent of the version before refuses unknown parameters.
    boot: DeployBoot | None = Field(None, exclude_if=lambda it: it is None)
    reach: SshServer | None = Field(None, exclude_if=lambda it: it is None)
    ports: PortOrder | None = Field(None, exclude_if=lambda it: it is None)
    firmware: FirmwareOrder | None = Field(None, exclude_if=lambda it: it is None)
    console: MachineConsole | None = Field(None, exclude_if=lambda it: it is None)


class LeaseRequest(Wire):
    """Body of `POST /site/v1/lease`: take or keep the lease of the site, or give it up. `run_id` names the process."""

    run_id: UUID
    agent_version: Annotated[str, Field(max_length=64, pattern=STORABLE)]
    sealing_key: PublicKeyText
    key_set_serial: Whole | None = None
    release: Truth = False


class LeaseAnswer(FromServer):
    """Whether the caller holds the lease, for `seconds` from when it asked, and under which fence; and the newest key set."""

    site_id: UUID
    held: bool
    fence: Whole
    seconds: Annotated[float, Field(gt=0, le=LEASE_SECONDS_MAX)]
    server_time: datetime
    key_set_serial: Whole | None = None


class BmcTasks(FromServer):
    """Answer of `GET /site/v1/tasks/wait`. `held` is False if the caller does not hold the lease that it named."""

    held: bool
    tasks: list[HandedOutTask]
    server_time: datetime


class SiteMachine(FromServer):
    """The BMC of a node of the site, and the only certificate that is trusted."""

    node_id: UUID
    url: str
    certificate_sha256: PublicKeyText


class SiteMachines(FromServer):
    """Answer of `GET /site/v1/machines`: a page of the site's BMCs by node, none behind the last one. `held` is False if the
    caller does not hold the lease that it named."""

    held: bool
    machines: Annotated[list[SiteMachine], Field(max_length=MACHINES_MAX)]
    server_time: datetime


class SilentMachine(Wire):
    """A BMC that did not answer, by the code of the problem."""

    node_id: UUID
    code: Literal["bmc_unreachable", "bmc_certificate_changed", "bmc_busy"]


class LivenessReport(Wire):
    """Body of `POST /site/v1/machines/answers`: which BMCs of a page answered right now, and which did not.

    `listed_at` is the page's `server_time`: what is reported of a BMC that was changed since is about another one.
    """

    run_id: UUID
    lease_fence: Whole
    listed_at: Instant
    answered: Annotated[list[UUID], Field(max_length=MACHINES_MAX), FailFast()]
    silent: Annotated[list[SilentMachine], Field(max_length=MACHINES_MAX), FailFast()]


class LivenessAnswer(FromServer):
    """Whether the report counted: the caller held the lease that it named."""

    held: bool


class StorePassword(Wire):
    """Body of `POST /site/v1/tasks/{id}/password`: a password before the BMC receives it, or more copies of one."""

    fence: Whole
    lease_fence: Whole
    generation: Whole
    sealed: SealedTo


class StoredPassword(FromServer):
    """What is stored now; another agent may have stored it. `stored` is False if task or lease no longer count."""

    stored: bool
    generation: Whole = 0
    sealed: dict[UUID, str] = Field(default_factory=dict)


class BmcNic(Wire):
    """A network interface; `mac` is empty if the BMC does not report it."""

    id: Text
    mac: Text
    link_up: Truth | None = None


class BmcDisk(Wire):
    """A disk as the BMC reports it, without names of the system: the serial identifies it."""

    id: Text
    model: Text
    serial: Text
    bytes: Whole | None = None
    protocol: Text


class BmcFirmware(Wire):
    """An entry of the firmware inventory."""

    id: Text
    name: Text
    version: Text
    updateable: Truth


class BmcManager(Wire):
    """The BMC itself."""

    id: Text
    model: Text
    firmware_version: Text


class BmcInventory(Wire):
    """A machine as its BMC reports it; text is empty and a number null where it reports nothing. `cut`: lists were cut to fit."""

    id: Text
    manufacturer: Text
    model: Text
    serial: Text
    uuid: Text
    bios_version: Text
    processors: Whole | None = None
    processor_model: Text
    memory_bytes: Whole | None = None
    nics: Annotated[list[BmcNic], Field(max_length=PARTS_MAX), FailFast()]
    disks: Annotated[list[BmcDisk], Field(max_length=PARTS_MAX), FailFast()]
    firmware: Annotated[list[BmcFirmware], Field(max_length=PARTS_MAX), FailFast()]
    manager: BmcManager | None = None
    quirks: Annotated[list[Text], Field(max_length=PARTS_MAX)]
    cut: Truth = False


class BmcTaskFailure(Wire):
    """Why a task failed: the code of a problem of the BMC, or of the agent, and what was found."""

    code: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    detail: Annotated[str, Field(max_length=400, pattern=STORABLE)]


class BmcTaskReport(Wire):
    """Body of `POST /site/v1/tasks/{id}/result`. `unknown`: a command was sent, and its effect is not known."""

    fence: Whole
    lease_fence: Whole
    outcome: Literal["completed", "failed", "unknown"]
    generation: Whole | None = None
    power_state: Annotated[str, Field(max_length=32, pattern=r"^[A-Za-z]+$")] | None = None
    inventory: BmcInventory | None = None
    failure: BmcTaskFailure | None = None
    ports: Annotated[list[PortFound], Field(max_length=PORTS_MAX)] | None = Field(
        None, exclude_if=lambda it: it is None
    )
    firmware: FirmwareResult | None = Field(None, exclude_if=lambda it: it is None)


class BmcTaskAnswer(FromServer):
    """`applied` is False with a reason if the report does not count."""

    applied: bool
    reason: ServerFacts | None = None
