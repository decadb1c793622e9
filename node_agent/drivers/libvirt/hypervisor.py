"""Calls of libvirt, each in a thread: a call may block for seconds. Every problem is a `HypervisorError`, an OSError."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import libvirt

from node_agent.drivers.libvirt.devices import devices_of
from node_agent.drivers.libvirt.domain import NAMESPACE, Owner, channel_path, owner_of, secret_xml
from node_agent.drivers.libvirt.serial_console import SerialConsole
from node_agent.drivers.libvirt.users import domain_with_user_of
from node_agent.drivers.threads import in_thread
from node_agent.wire.devices import GuestDevices

Result = TypeVar("Result")

_UNDEFINE = (
    libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM  # the release overwrites it first
    | libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
    | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
)
_PAUSED = {
    (libvirt.VIR_DOMAIN_PAUSED, reason)
    for reason in (
        libvirt.VIR_DOMAIN_PAUSED_UNKNOWN, libvirt.VIR_DOMAIN_PAUSED_USER, libvirt.VIR_DOMAIN_PAUSED_IOERROR,
        libvirt.VIR_DOMAIN_PAUSED_WATCHDOG, libvirt.VIR_DOMAIN_PAUSED_CRASHED,
    )
}  # fmt: skip
"""Not while libvirt starts a guest, copies its memory or migrates it: there it goes on by itself."""
_ABSENT = (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_DOMAIN_METADATA, libvirt.VIR_ERR_NO_SECRET)

# libvirt prints every error to standard error otherwise, those too that are handled.
libvirt.registerErrorHandler(lambda *_: None, None)


class HypervisorError(OSError):
    """libvirt cannot be reached or refuses a call. The text is libvirt's."""


class Hypervisor:
    """One libvirtd, and the domains of the guests below `directory`. A connection that broke is opened anew by the next call."""

    def __init__(self, uri: str, directory: Path) -> None:
        self._uri = uri
        self._directory = str(directory)
        self._connection: Any = None
        self._lock = threading.Lock()

    async def define(self, allocation_id: UUID, xml: str) -> None:
        """Define the domain, in place of an inactive one with its UUID. Raises HypervisorError."""

        def define(connection: Any) -> None:
            domain = self._domain(connection, allocation_id)
            if domain is None and _lookup(connection, allocation_id) is not None:
                raise HypervisorError(f"the domain of allocation {allocation_id} is not this node's")
            if domain is not None and domain.isActive():
                raise HypervisorError(f"the domain of allocation {allocation_id} runs already")
            # Without VALIDATE a misspelt element is dropped in silence.
            connection.defineXMLFlags(xml, libvirt.VIR_DOMAIN_DEFINE_VALIDATE)

        await self._call(define)

    async def start(self, allocation_id: UUID, key: bytes) -> None:
        """Give libvirt the disk's key and start the domain. Raises HypervisorError."""

        def start(connection: Any) -> None:
            domain = self._domain(connection, allocation_id)
            if domain is None:
                raise HypervisorError(f"there is no domain of allocation {allocation_id}")
            if (other := domain_with_user_of(connection, domain)) is not None:
                raise HypervisorError(
                    f"the guest's user runs {other} too; give each agent of this host its own BERTH_GUEST_USER_ID_FIRST"
                )
            # A restart of libvirtd forgets the key.
            secret = connection.secretDefineXML(secret_xml(allocation_id))
            secret.setValue(key)
            # A saved state of the guest, made by others, is not restored.
            domain.createWithFlags(libvirt.VIR_DOMAIN_START_FORCE_BOOT)

        await self._call(start)

    async def press_power_button(self, allocation_id: UUID) -> None:
        """Ask the guest to shut down, by ACPI. Not an error if it does not run, or is paused. Raises HypervisorError."""

        def press(connection: Any) -> None:
            domain = self._domain(connection, allocation_id)
            if domain is not None and domain.isActive():
                with _absent_ignored(libvirt.VIR_ERR_OPERATION_INVALID):
                    domain.shutdownFlags(libvirt.VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN)

        await self._call(press)

    async def destroy(self, allocation_id: UUID) -> None:
        """Kill the guest; takes about two seconds. Not an error if it does not run. Raises HypervisorError."""

        def destroy(connection: Any) -> None:
            domain = self._domain(connection, allocation_id)
            if domain is not None and domain.isActive():
                with _absent_ignored(libvirt.VIR_ERR_OPERATION_INVALID):
                    domain.destroy()

        await self._call(destroy)

    async def remove(self, allocation_id: UUID) -> None:
        """Forget definition and key. Not an error if they are not there. Raises HypervisorError."""

        def remove(connection: Any) -> None:
            domain = self._domain(connection, allocation_id)
            if domain is not None and domain.isPersistent():
                with _absent_ignored():
                    domain.undefineFlags(_UNDEFINE)
            with _absent_ignored():
                connection.secretLookupByUUIDString(str(allocation_id)).undefine()

        await self._call(remove)

    async def is_active(self, allocation_id: UUID) -> bool:
        """Whether libvirt says that the guest runs; it notices the end of QEMU two seconds late. Raises HypervisorError."""

        def active(connection: Any) -> bool:
            domain = self._domain(connection, allocation_id)
            return domain is not None and bool(domain.isActive())

        return await self._call(active)

    async def paused(self) -> set[UUID]:
        """The guests of this directory that are there and do not run: a full disk, a pause by hand. Raises HypervisorError.

        Not those that libvirt starts at this moment: QEMU is paused until its devices are set up.
        """

        def paused(connection: Any) -> set[UUID]:
            domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_PAUSED)
            owners = [owner for domain in domains if _is_paused(domain) and (owner := _owner(domain)) is not None]
            return {owner.allocation_id for owner in owners if owner.directory == self._directory}

        return await self._call(paused)

    async def go_on(self, allocation_id: UUID) -> bool:
        """Let a paused guest run again; whether it was paused. Raises HypervisorError."""

        def go_on(connection: Any) -> bool:
            domain = self._domain(connection, allocation_id)
            if domain is None or not _is_paused(domain):
                return False
            domain.resume()
            return True

        return await self._call(go_on)

    async def channel(self, allocation_id: UUID) -> str:
        """The socket of the guest's ready channel. Raises HypervisorError, LookupError."""

        def channel(connection: Any) -> str:
            domain = self._domain(connection, allocation_id)
            if domain is None:
                raise LookupError(f"there is no domain of allocation {allocation_id}")
            return channel_path(domain.XMLDesc())

        return await self._call(channel)

    async def console(self, allocation_id: UUID) -> SerialConsole:
        """The open console of the running guest. Raises HypervisorError, LookupError."""

        def console() -> SerialConsole:
            connection = libvirt.open(self._uri)
            try:
                domain = self._domain(connection, allocation_id)
                if domain is None or not domain.isActive():
                    raise LookupError(f"no guest runs for allocation {allocation_id}")
                return SerialConsole(connection, domain)
            except BaseException:
                connection.close()
                raise

        try:
            return await in_thread(console)
        except libvirt.libvirtError as error:
            raise HypervisorError(f"libvirt: {error}") from error

    async def devices(self, allocation_id: UUID) -> GuestDevices:
        """The devices of the running guest. Raises HypervisorError, LookupError."""

        def devices(connection: Any) -> GuestDevices:
            domain = self._domain(connection, allocation_id)
            if domain is None or not domain.isActive():
                raise LookupError(f"no guest of allocation {allocation_id} runs")
            return devices_of(domain.XMLDesc())

        return await self._call(devices)

    async def owners(self) -> list[Owner]:
        """The owner of every domain of this directory, running or not. Raises HypervisorError."""

        def owners(connection: Any) -> list[Owner]:
            found = [owner for domain in connection.listAllDomains() if (owner := _owner(domain)) is not None]
            return [owner for owner in found if owner.directory == self._directory]

        return await self._call(owners)

    async def _call(self, work: Callable[[Any], Result]) -> Result:
        return await in_thread(partial(self._called, work))

    def _called(self, work: Callable[[Any], Result]) -> Result:
        try:
            try:
                return work(self._connected())
            except libvirt.libvirtError as error:
                # A connection to a libvirtd that has restarted looks alive until it is used.
                if error.get_error_domain() != libvirt.VIR_FROM_RPC:
                    raise
                self._connection = None
                return work(self._connected())
        except libvirt.libvirtError as error:
            raise HypervisorError(f"libvirt: {error}") from error

    def _domain(self, connection: Any, allocation_id: UUID) -> Any:
        """The allocation's domain if it is of this directory, or None."""
        domain = _lookup(connection, allocation_id)
        owner = None if domain is None else _owner(domain)
        return domain if owner is not None and owner.directory == self._directory else None

    def _connected(self) -> Any:
        with self._lock:
            if self._connection is None or not _is_alive(self._connection):
                self._connection = libvirt.open(self._uri)
            return self._connection


class _absent_ignored(suppress):  # noqa: N801 - reads as a function
    """Passes over libvirt's word that the object is not there, and over the given codes."""

    def __init__(self, *codes: int) -> None:
        super().__init__(libvirt.libvirtError)
        self._codes = (*_ABSENT, *codes)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        return isinstance(error, libvirt.libvirtError) and error.get_error_code() in self._codes


def _is_alive(connection: Any) -> bool:
    try:
        return bool(connection.isAlive())
    except libvirt.libvirtError:
        return False


def _lookup(connection: Any, allocation_id: UUID) -> Any:
    """The domain with the allocation's UUID, or None."""
    with _absent_ignored():
        return connection.lookupByUUIDString(str(allocation_id))
    return None


def _is_paused(domain: Any) -> bool:
    with _absent_ignored():
        state, reason = domain.state()
        return (state, reason) in _PAUSED
    return False


def _owner(domain: Any) -> Owner | None:
    # Of a running domain the live metadata count: a later definition changes the stored ones alone.
    with _absent_ignored():
        return owner_of(domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, NAMESPACE))
    return None


def processes_of(path: Path, program: bytes = b"qemu") -> list[int]:
    """Living processes of QEMU's programs whose arguments name `path` or a file below it."""
    sought = os.fsencode(path)
    return [pid for pid in _pids() if program in (shown := _arguments(pid)).split(b"\0", 1)[0] and sought in shown]


def kill_all(path: Path, program: bytes = b"qemu") -> bool:
    """Kill the processes of `processes_of`; whether there were any."""
    pids = processes_of(path, program)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def _pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
