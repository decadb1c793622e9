"""Takes the GPUs of a slice from the host for a guest, and gives them back reset. Every step can be repeated.

What is written down (`taken`) comes before the first binding, so an agent that was killed anywhere finds what it has to undo.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from berth.process.json_objects import JsonObject
from node_agent.discovery.children import NoAnswer, ask_report
from node_agent.discovery.discover import without_secrets
from node_agent.drivers.libvirt.vfio.binding import Change
from node_agent.drivers.libvirt.vfio.fabric import Fabric, NoFabric
from node_agent.drivers.libvirt.vfio.judging import (
    DRIVER,
    HOST_DRIVERS,
    Lack,
    Objection,
    Seen,
    VfioNotReady,
    beside,
    has_module,
    node_objection,
    objections,
    see,
)
from node_agent.drivers.libvirt.vfio.taken import State, Taken, TakenDevices, TakenFunction
from node_agent.drivers.threads import in_thread
from node_agent.gpu_reset.functions import Reset
from node_agent.wiping.devices import DeviceWipe, WipeLevel

log = structlog.get_logger("node_agent.libvirt")

BIND_SECONDS_MAX = 60.0
RESET_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class PassedGpus:
    """The GPUs of one host that guests get. `are_returned`: whether the host's driver gets them back between guests."""

    taken: TakenDevices
    addresses: tuple[str, ...]
    are_returned: bool = True
    fabric: Fabric = field(default_factory=NoFabric)
    root: Path = Path("/")
    host_drivers: Collection[str] = HOST_DRIVERS
    environment: Mapping[str, str] = field(default_factory=without_secrets)

    def of_slots(self, slots: Sequence[int]) -> list[str]:
        """The addresses of the GPUs of these slots. Raises VfioNotReady for a slot without one."""
        absent = [slot for slot in slots if slot >= len(self.addresses)]
        if absent:
            found = f"slot {absent[0]} has no GPU: the host has {len(self.addresses)}"
            raise VfioNotReady([Objection(Lack.DEVICE_MISSING, found)])
        return [self.addresses[slot] for slot in sorted(slots)]

    async def require_ready(
        self, allocation_id: UUID, addresses: Sequence[str], *, may_run: bool = False
    ) -> list[Seen]:
        """The functions, if all of them can be given to this allocation's guest. Changes nothing. Raises VfioNotReady, OSError.

        `may_run`: what the allocation has been given may be open, because its guest has not been ended yet.
        """
        found = await in_thread(lambda: [see(self.root, one) for one in addresses])
        known = self.taken.load(allocation_id) if may_run else None
        own = known[1].passed() if known is not None and known[0] == "passed" else []
        idle = [replace(one, users=0) if one.address in own and one.driver == DRIVER else one for one in found]
        why = objections(idle, module=has_module(self.root), host_drivers=self.host_drivers)
        # Last, and with nothing awaited until `take` writes it down: of two guests that start at once, one finds them free.
        why += self._held_by_others(allocation_id, found)
        if why:
            raise VfioNotReady(why)
        return found

    def _held_by_others(self, allocation_id: UUID, found: Sequence[Seen]) -> list[Objection]:
        """By what is written down: a guest that is stopped keeps its GPUs, and no process has them open."""
        held = self.taken.of_others(allocation_id)
        wanted = {address for one in found for address in (one.address, *beside(one))}
        return [
            Objection(Lack.DEVICE_TAKEN, f"allocation {held[address]} has {address}")
            for address in sorted(wanted & held.keys())
        ]

    async def take(self, allocation_id: UUID, addresses: Sequence[str]) -> None:
        """Bind them, and what is beside them, to vfio-pci; then a guest may start. Raises VfioNotReady, OSError."""
        known, found = self.taken.load(allocation_id), await self.require_ready(allocation_id, addresses)
        if known is None or known[0] == "reset":
            self.taken.begin(allocation_id, _taken_of(found))
            known = self.taken.load(allocation_id)
        assert known is not None
        state, taken = known
        if taken.passed() != list(addresses):
            raise OSError(f"allocation {allocation_id} has taken {taken.passed()}, not {list(addresses)}")
        for one in taken.functions:
            change = await self._bound(one.address, "take")
            if change.driver != DRIVER:
                raise VfioNotReady([_not_bound(one.address, change)])
        for group in sorted({one.group for one in found if one.group is not None}):
            if (closed := await in_thread(partial(node_objection, self.root, group))) is not None:
                raise VfioNotReady([closed])
        await self.fabric.activate(addresses)
        if state == "taking":
            self.taken.advance(allocation_id, "taking", "passed")
        log.info("gpus_taken", allocation_id=str(allocation_id), gpus=list(addresses))

    async def give_back(self, allocation_id: UUID) -> list[DeviceWipe]:
        """Reset what a guest may have had, and return everything; the proof of each. Raises OSError: they stay taken."""
        known = self.taken.load(allocation_id)
        if known is None:
            return []
        state, taken = known
        proofs = await self._reset_all(taken, state)
        if state == "passed":
            self.taken.advance(allocation_id, "passed", "reset")
        held = self.taken.of_others(allocation_id)
        if held.keys().isdisjoint(taken.passed()):
            await self.fabric.deactivate(taken.passed())
        drivers = {one.address: await self._returned(one, held.get(one.address), state) for one in taken.functions}
        log.info("gpus_given_back", allocation_id=str(allocation_id), drivers=drivers)
        return [
            proof.model_copy(update={"checked": {**proof.checked, "driver": drivers[proof.device]}}) for proof in proofs
        ]

    async def _reset_all(self, taken: Taken, state: State) -> list[DeviceWipe]:
        """The proofs; none of functions that no guest has had."""
        if state == "taking":
            return []
        return [
            _proof(one, "before", {"reset_before": True}) if state == "reset" else await self._reset(one)
            for one in taken.passed()
        ]

    async def _reset(self, address: str) -> DeviceWipe:
        """Reset one, and look again: it answers with the same identity, vfio-pci holds it, and no process has it open."""
        before = await in_thread(partial(see, self.root, address))
        if before.driver != DRIVER:
            # A person has unbound it meanwhile. Reset where no driver of the host can use what is in it.
            change = await self._bound(address, "take")
            if change.driver != DRIVER:
                raise OSError(f"the GPU {address} is not reset: {_not_bound(address, change)}")
        if before.users is None or before.users:
            raise OSError(f"the GPU {address} is not reset: {before.users} processes have it open")
        arguments = ("reset", str(self.root), address, str(os.getpid()))
        module = "node_agent.gpu_reset.functions"
        try:
            said = await ask_report(Reset, module, arguments, self.environment, RESET_SECONDS_MAX)
        except NoAnswer as error:
            raise OSError(f"the GPU {address} is not reset: {error}") from error
        if said.error is not None:
            raise OSError(f"the GPU {address} is not reset: {said.error}")
        after = await in_thread(partial(see, self.root, address))
        if after.pci_id is None or after.pci_id != (before.pci_id or after.pci_id) or after.driver != DRIVER:
            raise OSError(f"the GPU {address} is {after.pci_id} of driver {after.driver} after its reset")
        return _proof(address, before.methods[0] if before.methods else "kernel", {
            "pci_id_before": before.pci_id, "pci_id_after": after.pci_id, "driver_after_reset": after.driver,
        })  # fmt: skip

    async def _returned(self, one: TakenFunction, holder: UUID | None, state: State) -> str | None:
        """Give one back to the host, if that is set; the driver that it has then. Raises OSError if vfio-pci keeps it.

        One that was reset before may have another guest by now (`holder`, or its open file): it stays as it is.
        """
        now = await in_thread(partial(see, self.root, one.address))
        if holder is not None or (state == "reset" and now.users != 0):
            log.warning(
                "gpu_not_given_back", address=one.address, holder=str(holder) if holder else None, users=now.users
            )  # fmt: skip
            return now.driver
        if not self.are_returned:
            return now.driver
        change = await self._bound(one.address, "give")
        if change.driver == DRIVER:
            raise OSError(f"{one.address} is not unbound from {DRIVER}: {change.error}")
        if change.driver != one.driver_before:
            log.warning(
                "gpu_not_at_its_driver", address=one.address, driver=change.driver, before=one.driver_before,
                why=change.error,
            )  # fmt: skip
        return change.driver

    async def _bound(self, address: str, verb: str) -> Change:
        module = "node_agent.drivers.libvirt.vfio.binding"
        arguments = (verb, str(self.root), address, str(os.getpid()))
        try:
            return await ask_report(Change, module, arguments, self.environment, BIND_SECONDS_MAX)
        except NoAnswer as error:
            raise OSError(f"{address}: {error}") from error


def _taken_of(found: Sequence[Seen]) -> Taken:
    functions: dict[str, TakenFunction] = {}
    for one in found:
        drivers = {member.address: member.driver for member in one.members}
        functions[one.address] = TakenFunction(address=one.address, driver_before=one.driver, is_passed=True)
        for other in beside(one):
            functions.setdefault(other, TakenFunction(address=other, driver_before=drivers[other], is_passed=False))
    return Taken(functions=list(functions.values()))


def _not_bound(address: str, change: Change) -> Objection:
    if change.is_closed:
        return Objection(Lack.SYSFS_CLOSED, f"{address} cannot be bound: {change.error}")
    held = f"the driver {change.driver} holds {address}" if change.driver else f"no driver takes {address}"
    return Objection(Lack.DRIVER_HOLDS, f"{held}: {change.error or f'the kernel did not bind it to {DRIVER}'}")


def _proof(address: str, method: str, checked: JsonObject) -> DeviceWipe:
    # A reset is proven; that the memory of the GPU is overwritten by it is not.
    return DeviceWipe(
        device=address, kind="gpu", method=f"reset: {method}", level=WipeLevel.NONE, proven=True, checked=checked
    )  # fmt: skip
