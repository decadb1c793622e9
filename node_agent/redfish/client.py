"""The Redfish client over httpx: `Bmc` for one machine. It reads nothing of the environment, no proxy and no CA."""

from __future__ import annotations

import httpx

from node_agent.redfish import accounts, description, firmware, logs, restart, serial_consoles, updates
from node_agent.redfish.boot import Boot
from node_agent.redfish.clock import Clock, SystemClock
from node_agent.redfish.contract import (
    BegunUpdate,
    Bmc,
    BmcAccess,
    BootOverride,
    BootTarget,
    Deadlines,
    EventLog,
    FirmwareItem,
    Medium,
    PowerAction,
    PowerOutcome,
    PowerReading,
    PowerState,
    ResetNeed,
    SshConsole,
    SystemDescription,
    UpdateOutcome,
    Working,
)
from node_agent.redfish.machine import Machine
from node_agent.redfish.media import Media
from node_agent.redfish.power import Power
from node_agent.redfish.session import Session
from node_agent.redfish.wire import Wire


class RedfishBmc(Bmc):
    """See `Bmc` for what each method guarantees.

    `quiet`: the caller knows that no command of an earlier process can be queued, so the power state is certain at once.
    Raises ValueNotAllowed for a URL or fingerprint of another form.
    """

    def __init__(
        self,
        access: BmcAccess,
        deadlines: Deadlines | None = None,
        *,
        quiet: bool = False,
        clock: Clock | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._wire = Wire(access, deadlines or Deadlines(), clock or SystemClock(), transport)
        self._password = access.password
        self._session = Session(self._wire, access.username, access.password)
        self._machine = Machine(self._session, access.system_id)
        self._power = Power(self._machine, quiet)
        self._media = Media(self._machine, self._power)
        self._boot = Boot(self._machine)

    @property
    def quirks(self) -> tuple[str, ...]:
        """Names of the quirks met so far, in the order in which they were met."""
        return tuple(self._wire.quirks)

    async def describe(self) -> SystemDescription:
        """The machine: identity, parts, firmware, manager."""
        return await description.describe(self._machine)

    async def power_state(self) -> PowerReading:
        """One read of PowerState."""
        return await self._power.read()

    async def settle(self, expected: PowerState, unchanged_for_seconds: float | None = None) -> None:
        """Wait until the state is `expected`, unchanged and certain."""
        await self._power.settle(expected, unchanged_for_seconds)

    async def set_power(self, action: PowerAction) -> PowerOutcome:
        """Reach the state of `action`."""
        return await self._power.set(action)

    async def insert_medium(self, url: str, kind: BootTarget = BootTarget.CD) -> Medium:
        """Insert a medium while the machine is off."""
        return await self._media.insert(url, kind)

    async def eject_medium(self, kind: BootTarget = BootTarget.CD) -> Medium:
        """Eject the medium."""
        return await self._media.eject(kind)

    async def read_medium(self, kind: BootTarget = BootTarget.CD) -> Medium:
        """The medium as it is now."""
        return await self._media.read(kind)

    async def boot_once(self, target: BootTarget) -> BootOverride:
        """Boot once from `target` at the next start."""
        return await self._boot.once(target)

    async def set_boot_disk(self) -> BootOverride:
        """Boot from the disk from now on."""
        return await self._boot.disk()

    async def read_boot(self) -> BootOverride:
        """The boot override as it is now."""
        return await self._boot.read()

    async def rotate(self, new_password: str) -> Working:
        """Change the account's password, and try which one works."""
        working = await accounts.rotate(self._session, self._password, new_password)
        if working in (Working.NEW, Working.BOTH):
            self._password = new_password
        return working

    async def read_log(self, limit: int = 200) -> EventLog:
        """The newest entries of the event logs."""
        return await logs.read_log(self._machine, limit)

    async def firmware(self) -> tuple[FirmwareItem, ...]:
        """The firmware inventory."""
        return await firmware.inventory(self._session)

    async def update_firmware(self, image_url: str, targets: tuple[str, ...] = ()) -> UpdateOutcome:
        """Update firmware by SimpleUpdate, and wait for its task."""
        return await firmware.update(self._session, image_url, targets)

    async def begin_update(self, image_url: str, targets: tuple[FirmwareItem, ...]) -> BegunUpdate:
        """Send SimpleUpdate once."""
        return await updates.begin(self._session, image_url, targets)

    async def update_tasks(self) -> tuple[str, ...]:
        """The paths of the BMC's tasks."""
        return await updates.tasks(self._session)

    async def await_update(self, task: str, seconds: float) -> frozenset[ResetNeed]:
        """Read the task of an update until it has ended."""
        return await updates.follow(self._machine, task, seconds)

    async def read_versions(self, ids: tuple[str, ...], version: str, seconds: float) -> tuple[FirmwareItem, ...]:
        """Entries of the inventory, once all have this version, or after `seconds`."""
        return await updates.read_versions(self._session, ids, version, seconds)

    async def reset_bmc(self) -> None:
        """Restart the BMC once, and wait until it was seen to restart and answers again."""
        await restart.reset_bmc(self._machine)

    async def ssh_console(self) -> SshConsole | None:
        """The serial console over SSH."""
        return await serial_consoles.find_ssh_console(self._machine)

    async def close(self) -> None:
        """Delete the session and close connections."""
        try:
            await self._session.end()
        finally:
            await self._wire.close()
