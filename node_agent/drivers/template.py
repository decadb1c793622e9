"""A complete small driver, to copy: an allocation is a directory, and a process that answers on a port with a secret.

Every choice that keeps it correct after SIGKILL at any instruction is marked `Why:`. docs/how-to/drivers/write-a-driver.md goes
through it; tests/drivers runs the whole suite against it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from berth.process.durable_directories import sync_directory
from node_agent.discovery.discover import discover
from node_agent.drivers.contract import (
    ConsoleText,
    DriverFailure,
    GuestState,
    Held,
    Inventory,
    Phase,
    Plan,
    Progress,
    ProvisionOrder,
    ReleaseOrder,
    Verb,
    VerbOrder,
)
from node_agent.drivers.performing import Unheard, perform
from node_agent.drivers.wipe import wipe_content
from node_agent.durable_files import make_private_directory, write_durably
from node_agent.protocol import Connection, FailureCode, ProvisionResult, ReleaseResult, VerbResult
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wire.topology import Topology

GUEST = """
import os, socket, sys
directory = sys.argv[1]
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
with open(f"{directory}/port.new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(f"{directory}/port.new", f"{directory}/port")
while True:
    caller, _ = listener.accept()
    with caller, open(f"{directory}/secret") as file:
        caller.sendall(file.read().encode() + b"\\n")
"""
READY_SECONDS_MAX = 20.0
END_SECONDS_MAX = 10.0


class Allocation:
    """The files of one allocation. `record.json` is written last: an allocation that has it was up once."""

    def __init__(self, directory: Path, allocation_id: UUID) -> None:
        self.id = allocation_id
        self.path = directory / "allocations" / str(allocation_id)
        self.record = self.path / "record.json"
        self.secret = self.path / "secret"
        self.port = self.path / "port"

    def processes(self) -> list[int]:
        """Everything that runs for it. Why: a stored pid is lost if the agent dies before it stores it; arguments are not."""
        sought = os.fsencode(self.path)
        return [pid for pid in _processes() if sought in _arguments(pid)]

    def end(self) -> bool:
        """Kill what runs for it; whether anything did."""
        pids = self.processes()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)


class TemplateDriver:
    """See `node_agent.drivers.contract`."""

    name = "template"
    verbs: frozenset[Verb] = frozenset()

    def __init__(self, directory: Path) -> None:
        """Make the directories. Raises OSError."""
        self._directory = directory
        self._leases = directory / "leases"
        self._guests: dict[UUID, asyncio.subprocess.Process] = {}
        for folder in (directory, directory / "allocations", self._leases):
            make_private_directory(folder)

    async def start(self) -> None:
        """Remove what an earlier process left half-made. Why: it has a name that no other code looks for."""
        for aside in self._leases.glob(".*"):
            aside.unlink(missing_ok=True)

    async def resume(self) -> list[UUID]:
        """Start again what should run and does not, on its old port."""
        running = []
        for held in (await self.inventory()).held:
            allocation = self._allocation(held.allocation_id)
            if held.state is GuestState.DOWN:
                await self._boot(allocation, json.loads(allocation.record.read_text())["port"])
                await self._answering(allocation)
            if held.state in (GuestState.DOWN, GuestState.RUNNING):
                running.append(held.allocation_id)
        return running

    async def restart(self, allocation_id: UUID) -> bool:
        """Start the guest again on its old port."""
        allocation = self._allocation(allocation_id)
        if self._state(allocation) is not GuestState.DOWN:
            return False
        await self._boot(allocation, json.loads(allocation.record.read_text())["port"])
        await self._answering(allocation)
        return True

    def provision(self, order: ProvisionOrder) -> Plan[ProvisionResult]:
        """Lease, disk, boot, ready."""
        allocation = self._allocation(order.allocation_id)

        async def lease(_progress: Progress) -> str:
            if allocation.path.exists():
                await self.cleanup(order.allocation_id)
            self._drop_leases(order.allocation_id)
            taken: list[int] = []
            try:
                for slot in order.parameters.slots:
                    self._take_lease(slot, order)
                    taken.append(slot)
            except BaseException:
                for slot in taken:
                    self._lease(slot).unlink()
                raise
            return f"slots {order.parameters.slots}"

        async def disk(_progress: Progress) -> str:
            allocation.path.mkdir(mode=0o700, exist_ok=True)
            if not allocation.secret.exists():
                write_durably(allocation.secret, secrets.token_hex(16).encode())
            write_durably(allocation.path / "user-data", (order.parameters.user_data or "").encode())
            return "made"

        async def boot(_progress: Progress) -> str:
            # Why: what runs already is kept, so that the phase can be repeated.
            return "runs" if allocation.processes() else await self._boot(allocation, 0)

        async def ready(_progress: Progress) -> str:
            port = await self._answering(allocation)
            record = {"fence": order.fence, "slots": order.parameters.slots, "port": port}
            write_durably(allocation.record, json.dumps(record).encode())
            return f"answers on port {port}"

        phases = [Phase("lease", _stable(lease)), Phase("disk", _stable(disk)), Phase("boot", _stable(boot))]
        return Plan([*phases, Phase("ready", _stable(ready))], lambda: _up(allocation, order))

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        """Stop, wipe, drop the leases: in this order, each proven before the next."""
        return self._removal(order.allocation_id)

    async def cleanup(self, allocation_id: UUID) -> None:
        """The same without a result."""
        await perform(self._removal(allocation_id), Unheard())

    def verb(self, order: VerbOrder) -> Plan[VerbResult]:
        """There are none."""
        raise DriverFailure(FailureCode.TASK_REFUSED, f"the driver {self.name} has no verb {order.verb}")

    async def inventory(self) -> Inventory:
        """What directories and leases name, also when no record says why they are there."""
        leases = {slot: json.loads(self._lease(slot).read_text()) for slot in self._leased()}
        leased = {slot: UUID(lease["allocation_id"]) for slot, lease in leases.items()}
        named = {UUID(path.name) for path in (self._directory / "allocations").iterdir()}
        held = []
        for allocation_id in sorted(named | set(leased.values())):
            slots = [slot for slot, holder in leased.items() if holder == allocation_id]
            fence = leases[slots[0]]["fence"] if slots else None
            held.append(Held(allocation_id, slots, fence, self._state(self._allocation(allocation_id))))
        return Inventory(held, leased)

    async def tend_leases(self) -> list[int]:
        """Leases of this driver do not expire: a release drops them."""
        return []

    async def topology(self) -> Topology:
        """See `node_agent.discovery`."""
        return await discover(self.name)

    async def console(self, allocation_id: UUID, offset: int, bytes_max: int) -> ConsoleText:
        """Its guests write nothing."""
        if not self._allocation(allocation_id).path.exists():
            raise LookupError(f"no guest runs for allocation {allocation_id}")
        return ConsoleText(offset, b"")

    async def stop(self, grace_seconds: float) -> None:
        """End every guest; the record stays, so that the next agent starts it again."""
        for held in (await self.inventory()).held:
            self._allocation(held.allocation_id).end()

    async def close(self) -> None:
        """Nothing is held: each guest has a separate session."""

    def _removal(self, allocation_id: UUID) -> Plan[ReleaseResult]:
        allocation = self._allocation(allocation_id)
        was_there, ran = allocation.path.exists(), bool(allocation.processes())
        proven = {"stopped": False, "wiped": False, "leases_released": False}

        async def stopped(_progress: Progress) -> str:
            # Why: without its record no agent starts it again. Removing needs no space on a full disk.
            allocation.record.unlink(missing_ok=True)
            guest = self._guests.pop(allocation_id, None)
            if guest is not None and guest.returncode is None:
                guest.kill()
                await guest.wait()
            async with asyncio.timeout(END_SECONDS_MAX):
                while allocation.end():
                    await asyncio.sleep(0.01)
            proven["stopped"] = True
            return "stopped"

        async def wiped(_progress: Progress) -> str:
            # Why the directory stays: as long as it is there, a repetition proves the same wipe.
            wipe_content(allocation.path)
            proven["wiped"] = True
            return "removed"

        async def leases_released(_progress: Progress) -> str:
            # Why after the wipe: a slot is never free while something may still be there.
            self._drop_leases(allocation_id)
            with suppress(FileNotFoundError):
                allocation.path.rmdir()
            proven["leases_released"] = True
            return "dropped"

        def result() -> ReleaseResult:
            proof = DeviceWipe(
                device=allocation.path.name, kind="disk", method="removed", level=WipeLevel.NONE,
                proven=proven["wiped"], checked={"directory_empty": proven["wiped"]},
            )  # fmt: skip
            devices = [proof.model_dump(mode="json")] if was_there else []
            return ReleaseResult(
                released=all(proven.values()), hard_stopped=ran, wiped=proven["wiped"],
                leases_released=proven["leases_released"], evidence={"was_there": was_there, "devices": devices},
            )  # fmt: skip

        code = FailureCode.CLEANUP_FAILED
        phases = [(phase.__name__, _stable(phase, code)) for phase in (stopped, wiped, leases_released)]
        return Plan([Phase(name, run) for name, run in phases], result)

    async def _boot(self, allocation: Allocation, port: int) -> str:
        allocation.port.unlink(missing_ok=True)
        environment = {"BERTH_ALLOCATION_ID": str(allocation.id)}
        command = [sys.executable, "-I", "-S", "-c", GUEST, str(allocation.path), str(port)]
        guest = await asyncio.create_subprocess_exec(*command, env=environment, start_new_session=True)
        # Why: for a moment after exec(2) a process shows no arguments; this process need not look for its own children.
        self._guests[allocation.id] = guest
        return "started"

    async def _answering(self, allocation: Allocation) -> int:
        """The port on which the guest has answered with the secret made for it. Raises DriverFailure."""
        secret = allocation.secret.read_text()
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS_MAX):
                while not self._has_ended(allocation):
                    if allocation.port.exists() and await _said(int(allocation.port.read_text())) == secret:
                        return int(allocation.port.read_text())
                    await asyncio.sleep(0.02)
        raise DriverFailure(FailureCode.SSH_READINESS_TIMEOUT, f"the guest does not answer: {_why_silent(allocation)}")

    def _has_ended(self, allocation: Allocation) -> bool:
        guest = self._guests.get(allocation.id)
        return guest.returncode is not None if guest is not None else not allocation.processes()

    def _state(self, allocation: Allocation) -> GuestState:
        if allocation.record.exists():
            return GuestState.RUNNING if allocation.processes() else GuestState.DOWN
        return GuestState.UNKNOWN

    def _allocation(self, allocation_id: UUID) -> Allocation:
        return Allocation(self._directory, allocation_id)

    def _lease(self, slot: int) -> Path:
        return self._leases / str(slot)

    def _leased(self) -> list[int]:
        return sorted(int(path.name) for path in self._leases.glob("[0-9]*"))

    def _take_lease(self, slot: int, order: ProvisionOrder) -> None:
        """Why a link: it appears whole or not at all, and not where one is."""
        aside = self._leases / f".{slot}"
        try:
            write_durably(aside, json.dumps({"allocation_id": str(order.allocation_id), "fence": order.fence}).encode())
            self._lease(slot).hardlink_to(aside)
        except FileExistsError as error:
            detail = f"slot {slot} is leased: {self._lease(slot).read_text()}"
            raise DriverFailure(FailureCode.LEASE_CONFLICT, detail) from error
        finally:
            aside.unlink(missing_ok=True)
        sync_directory(self._leases)

    def _drop_leases(self, allocation_id: UUID) -> None:
        for slot in self._leased():
            if json.loads(self._lease(slot).read_text())["allocation_id"] == str(allocation_id):
                self._lease(slot).unlink()
        sync_directory(self._leases)


def _stable(
    step: Callable[[Progress], Awaitable[str]], code: FailureCode = FailureCode.GUEST_DEFINITION_FAILED
) -> Callable[[Progress], Awaitable[str]]:
    """The step, whose OSError is a failure with a stable code. Why: a full disk is no defect of the agent."""

    async def run(progress: Progress) -> str:
        try:
            return await step(progress)
        except OSError as error:
            raise DriverFailure(code, str(error) or type(error).__name__) from error

    return run


def _why_silent(allocation: Allocation) -> str:
    if shutil.disk_usage(allocation.path).free == 0:
        return "No space left on device"
    return "it runs" if allocation.processes() else "it has ended"


def _up(allocation: Allocation, order: ProvisionOrder) -> ProvisionResult:
    secret = base64.b64encode(allocation.secret.read_bytes()).decode()
    port = int(allocation.port.read_text())
    connection = Connection(host="127.0.0.1", port=port, user="tenant", host_key=f"template {secret}")
    evidence = {"driver": "template", "devices": [allocation.path.name]}
    return ProvisionResult(connection=connection, image_sha256=order.parameters.image.sha256, evidence=evidence)


async def _said(port: int) -> str | None:
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return (await reader.readline()).decode().strip()
        finally:
            writer.close()
    return None


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
