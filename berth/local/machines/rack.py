"""Emulated machines that are off, each with an empty disk and a BMC, for as long as a block runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from berth.cli.known_stack import StackProblem
from berth.local.machines import domains
from berth.local.machines.bmcs import emulated
from berth.local.machines.networks import port_arguments, reachable
from berth.local.machines.plan import DISK_BYTES, GPU_DEVICE, PlannedMachine
from node_agent.redfish.contract import BmcAccess

MARK = "berth-machines"


@dataclass(frozen=True)
class Machine:
    """A machine, how its BMC is reached, its UUID as its firmware has it, and its files."""

    planned: PlannedMachine
    access: BmcAccess
    uuid: str
    directory: Path

    @property
    def name(self) -> str:
        """The name of its node."""
        return self.planned.name

    @property
    def disk(self) -> Path:
        """The file that is its raw disk."""
        return self.directory / domains.DISK

    def is_on(self) -> bool:
        """Whether its processor runs, as the hypervisor says."""
        connection = domains.connect()
        try:
            return bool(connection.lookupByUUIDString(self.uuid).isActive())
        finally:
            connection.close()


@contextmanager
def own_directory(directory: Path) -> Iterator[Path]:
    """An empty directory that the user of QEMU may enter; removed at the end. What an earlier run left in it is removed first.

    Raises `StackProblem` for a directory with other files.
    """
    if directory.exists() and any(directory.iterdir()) and not (directory / MARK).exists():
        raise StackProblem(f"{directory} is neither empty nor of an earlier run; name another --machine-dir")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    (directory / MARK).touch()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def racked(
    planned: Sequence[PlannedMachine], directory: Path, tools: Path, logs: Path,
    started: Callable[[str, int], None] = lambda _name, _pid: None,
) -> Iterator[list[Machine]]:  # fmt: skip
    """The machines. At the end their domains, pools, disks and BMCs are gone, and their consoles are in `logs`.

    `started` receives name and process id of each BMC.
    """
    with ExitStack() as held:
        held.enter_context(reachable([machine.address for machine in planned]))
        machines = []
        for machine in planned:
            place = directory / machine.name
            held.callback(_keep_console, place, logs / f"console-{machine.name}.log")
            arguments = [*port_arguments(machine.mac, machine.address), "-device", f"{GPU_DEVICE},romfile=,addr=0x1d"]
            system, devices = domains.uefi_system(place), domains.console_devices(place)
            uuid = held.enter_context(domains.defined(place, system, devices, DISK_BYTES, arguments))
            bmc = place / "bmc"
            bmc.mkdir()
            name = f"bmc {machine.name}"
            access = held.enter_context(emulated(bmc, uuid, tools, lambda pid, name=name: started(name, pid)))  # type: ignore[misc]
            machines.append(Machine(machine, access, uuid, place))
        yield machines


def _keep_console(place: Path, log: Path) -> None:
    if (place / domains.CONSOLE).exists():
        shutil.copyfile(place / domains.CONSOLE, log)
