"""The interface to one machine's BMC: what a site agent may read and command, and what each answer proves.

Rules of every implementation:

- A 2xx proves nothing. Each command ends with a read of what it changed, and the result holds what was read.
- After a command was sent, no answer or a broken connection is `OutcomeUnknown`, never a failure; it is never sent again.
- A power state is `certain` only after no command can be queued any more: see `PowerReading`.
- Every call ends before its deadline (`Deadlines`). Errors are those of `node_agent.redfish.problems`.
- No password, token or URL of a medium is in a repr, an error or a log line.

One `Bmc` is used by one task at a time; its methods are not to be called concurrently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class PowerState(StrEnum):
    """Redfish's PowerState; `UNKNOWN` for a value that the specification does not name, or none."""

    ON = "On"
    OFF = "Off"
    POWERING_ON = "PoweringOn"
    POWERING_OFF = "PoweringOff"
    PAUSED = "Paused"
    UNKNOWN = "Unknown"


class PowerAction(StrEnum):
    """What `set_power` may be asked for. `RESTART` is a forced off, a look, and an on; never one command."""

    ON = "on"
    GRACEFUL_OFF = "graceful_off"
    FORCE_OFF = "force_off"
    RESTART = "restart"


class BootTarget(StrEnum):
    """Redfish's BootSourceOverrideTarget, as far as Berth uses it."""

    CD = "Cd"
    USB_CD = "UsbCd"
    UEFI_HTTP = "UefiHttp"
    PXE = "Pxe"
    DISK = "Hdd"
    NONE = "None"


class Working(StrEnum):
    """Which password the BMC accepts after `rotate`."""

    NEW = "new"
    OLD = "old"
    BOTH = "both"
    NEITHER = "neither"


@dataclass(frozen=True)
class BmcAccess:
    """How to reach one BMC. `url` is https://host[:port]; `certificate_sha256` (hex) is the only leaf certificate trusted.

    `system_id` chooses one of several systems of a BMC by its Id; None: the BMC has exactly one.
    """

    url: str
    username: str
    password: str = field(repr=False)
    certificate_sha256: str
    system_id: str | None = None


@dataclass(frozen=True)
class Deadlines:
    """Bounds of one BMC, in seconds. `queue_seconds`: how long the BMC may hold a command; `settle_seconds` must be longer."""

    connect_seconds: float = 10
    read_seconds: float = 60
    command_seconds: float = 180
    insert_seconds: float = 600
    settle_seconds: float = 300
    task_seconds: float = 1800
    poll_seconds: float = 1
    queue_seconds: float = 30
    restart_seconds: float = 600


@dataclass(frozen=True)
class PowerReading:
    """One read of PowerState. `certain`: no command that was sent before can still change it.

    A new `Bmc` is not certain for `queue_seconds`, as a process before it may have sent a command.
    """

    state: PowerState
    certain: bool


@dataclass(frozen=True)
class Nic:
    """One network interface of the system; `mac` is lower case with colons, or empty if the BMC does not report it."""

    id: str
    mac: str
    link_up: bool | None


@dataclass(frozen=True)
class Disk:
    """One drive as the BMC reports it. Many BMCs report none: the deploy system's inventory decides."""

    id: str
    model: str
    serial: str
    bytes: int | None
    protocol: str


@dataclass(frozen=True)
class FirmwareItem:
    """One entry of the firmware inventory. `path`: where the BMC has it."""

    id: str
    name: str
    version: str
    updateable: bool
    path: str = field(default="", compare=False)


@dataclass(frozen=True)
class Manager:
    """The BMC itself."""

    id: str
    model: str
    firmware_version: str


@dataclass(frozen=True)
class SystemDescription:
    """What the BMC reports of its machine; text is empty and a number None where the BMC reports nothing."""

    id: str
    manufacturer: str
    model: str
    serial: str
    uuid: str
    bios_version: str
    power_state: PowerState
    processors: int | None
    processor_model: str
    memory_bytes: int | None
    nics: tuple[Nic, ...]
    disks: tuple[Disk, ...]
    firmware: tuple[FirmwareItem, ...]
    manager: Manager | None
    quirks: tuple[str, ...]


@dataclass(frozen=True)
class PowerOutcome:
    """A finished `set_power`. `sent` are the ResetType values sent (none: it was already so); `state` was read after."""

    state: PowerState
    sent: tuple[str, ...]
    answered: bool


@dataclass(frozen=True)
class Medium:
    """A virtual medium, as read. `image` may hold a secret of the URL: not in the repr."""

    kind: BootTarget
    inserted: bool
    write_protected: bool | None
    image: str = field(repr=False)


@dataclass(frozen=True)
class BootOverride:
    """The boot override, as read back. `once` False: the BMC keeps it, so set the disk (`set_boot_disk`) after the boot."""

    target: str
    once: bool
    enabled: str


@dataclass(frozen=True)
class LogEntry:
    """One entry of an event log; `created` is the BMC's own clock and text, which may be wrong."""

    id: str
    created: str
    severity: str
    message: str


@dataclass(frozen=True)
class EventLog:
    """Newest entries of the BMC's logs, at most as many as asked for; `truncated`: the BMC holds more."""

    entries: tuple[LogEntry, ...]
    truncated: bool


@dataclass(frozen=True)
class UpdateOutcome:
    """A firmware update that the BMC reports as completed. It proves nothing: read `firmware()` after the restart."""

    task_state: str
    messages: tuple[str, ...]


@dataclass(frozen=True)
class SshConsole:
    """The serial console over SSH as announced. `entry_command` enters it; `hot_keys` is the BMC's text about the keys that leave
    it; both may be empty, and `hot_keys` is None if what is announced is no printable text. `shared`: the SSH server is that of
    the manager's command line too; None: the BMC does not say."""

    port: int
    entry_command: str
    hot_keys: str | None
    shared: bool | None


class ResetNeed(StrEnum):
    """What must be reset so that an update takes effect."""

    HOST = "host"
    BMC = "bmc"


@dataclass(frozen=True)
class BegunUpdate:
    """A SimpleUpdate that the BMC has taken. `task`: the path of its task; None: it has none, and was answered as done."""

    task: str | None


class Bmc(Protocol):
    """One machine's BMC. Every method raises `BmcProblem`s alone, and ends within its deadline."""

    async def describe(self) -> SystemDescription:
        """The machine: identity, parts, firmware, manager. Optional parts that cannot be read are empty."""
        ...

    async def power_state(self) -> PowerReading:
        """One read of PowerState."""
        ...

    async def settle(self, expected: PowerState, unchanged_for_seconds: float | None = None) -> None:
        """Return once every read in the last `unchanged_for_seconds` (None: `queue_seconds`) saw `expected`, and it is certain.

        Raises NotSettled after `settle_seconds`.
        """
        ...

    async def set_power(self, action: PowerAction) -> PowerOutcome:
        """Reach the state of `action`: look, send at most one command per step, look until it is reached and certain.

        Raises ValueNotAllowed if the BMC lists no such reset type, OutcomeUnknown if a command had no answer and the state is
        not reached, NotSettled if it had an answer and the state is not reached.
        """
        ...

    async def insert_medium(self, url: str, kind: BootTarget = BootTarget.CD) -> Medium:
        """Insert a medium, write protected, after ejecting another one; read back. Only while the machine is off.

        Raises WithoutEffect if it reads back as not inserted, Conflict if the machine is not certain to be off.
        """
        ...

    async def eject_medium(self, kind: BootTarget = BootTarget.CD) -> Medium:
        """Eject; read back. Nothing is sent if there is none. It does not revoke what the machine has read."""
        ...

    async def read_medium(self, kind: BootTarget = BootTarget.CD) -> Medium:
        """The medium as it is now."""
        ...

    async def boot_once(self, target: BootTarget) -> BootOverride:
        """Boot once from `target` at the next start; read back. `once` False: the BMC ignores "Once" and keeps `target`.

        Raises WithoutEffect if it reads back with another target.
        """
        ...

    async def set_boot_disk(self) -> BootOverride:
        """Boot from the disk from now on: override to the disk, or no override where the BMC does not list the disk."""
        ...

    async def read_boot(self) -> BootOverride:
        """The boot override as it is now."""
        ...

    async def rotate(self, new_password: str) -> Working:
        """Change the password of the account of `BmcAccess`; then try both passwords once each, new first.

        The caller has stored both before. Whatever the change was answered, the result is what the BMC accepts now.
        Raises OutcomeUnknown if the trials had too few answers to decide. The client goes on with the password that works.
        """
        ...

    async def read_log(self, limit: int = 200) -> EventLog:
        """The newest entries of the system's and the manager's event logs, at most `limit` (1 to 1000)."""
        ...

    async def firmware(self) -> tuple[FirmwareItem, ...]:
        """The firmware inventory, at most 500 entries."""
        ...

    async def update_firmware(self, image_url: str, targets: tuple[str, ...] = ()) -> UpdateOutcome:
        """SimpleUpdate; polls the task until it ends. Raises TaskFailed, or OutcomeUnknown after `task_seconds`."""
        ...

    async def begin_update(self, image_url: str, targets: tuple[FirmwareItem, ...]) -> BegunUpdate:
        """SimpleUpdate of these entries, sent once. Raises TaskFailed, and OutcomeUnknown if it had no answer."""
        ...

    async def update_tasks(self) -> tuple[str, ...]:
        """The paths of the BMC's tasks, at most 64; none if it lists none."""
        ...

    async def await_update(self, task: str, seconds: float) -> frozenset[ResetNeed]:
        """Read the task until it has ended; what its messages say must be reset.

        Raises TaskFailed; OutcomeUnknown if it does not end in time, or is not known any more; NotBack if the credentials are
        refused twice.
        """
        ...

    async def read_versions(self, ids: tuple[str, ...], version: str, seconds: float) -> tuple[FirmwareItem, ...]:
        """These entries of the inventory, once all have this version, or after `seconds`, as they were read last.

        Raises NotBack if the BMC did not answer at the last, or refuses the credentials twice.
        """
        ...

    async def reset_bmc(self) -> None:
        """Restart the BMC by one command; returns once it was seen to restart and answers again with the pinned certificate.

        Raises WithoutEffect if it was not seen to restart, OutcomeUnknown too if the command had no answer, NotBack if it
        did not answer again within `restart_seconds`, CertificateChanged.
        """
        ...

    async def ssh_console(self) -> SshConsole | None:
        """The serial console of the machine over SSH; None if the BMC announces none that is enabled."""
        ...

    async def close(self) -> None:
        """Delete the session and close connections. Raises nothing; safe to repeat."""
        ...
