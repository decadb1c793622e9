"""The boot override of one machine.

BootSourceOverrideMode is never sent: an emulator then gives the machine another variable store.
"""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import BootOverride, BootTarget
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine, check_allowed
from node_agent.redfish.problems import BmcProblem, OutcomeUnknown, WithoutEffect
from node_agent.redfish.tasks import finished

TARGET: Final = "BootSourceOverrideTarget"
ENABLED: Final = "BootSourceOverrideEnabled"


class Boot:
    """Sets and reads the boot override."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._session = machine, machine.session
        self._deadlines = machine.session.wire.deadlines

    async def read(self) -> BootOverride:
        """The boot override as it is now."""
        return _override(await self._machine.boot_resource())

    async def once(self, target: BootTarget) -> BootOverride:
        """See `Bmc.boot_once`."""
        resource = await self._machine.boot_resource()
        check_allowed(target, _allowed(resource, TARGET), "the boot target")
        kinds = _allowed(resource, ENABLED)
        return await self._write(resource, target, "Continuous" if kinds and "Once" not in kinds else "Once")

    async def disk(self) -> BootOverride:
        """See `Bmc.set_boot_disk`."""
        resource = await self._machine.boot_resource()
        targets = _allowed(resource, TARGET)
        if targets and BootTarget.DISK not in targets:
            return await self._write(resource, BootTarget.NONE, "Disabled")
        return await self._write(resource, BootTarget.DISK, "Continuous")

    async def _write(self, resource: Document, target: BootTarget, enabled: str) -> BootOverride:
        unanswered: OutcomeUnknown | None = None
        try:
            answer = await self._session.patch(resource.path, {"Boot": {TARGET: str(target), ENABLED: enabled}})
            await finished(self._session, answer, self._deadlines.command_seconds)
        except OutcomeUnknown as unknown:
            unanswered = unknown
        clock = self._session.wire.clock
        until = clock.now() + self._deadlines.queue_seconds
        seen: BootOverride | None = None
        while True:
            try:
                seen = await self.read()
            except BmcProblem:
                if unanswered is None and clock.now() >= until:
                    raise
            else:
                if seen.enabled == enabled == "Disabled":
                    return seen
                if seen.target == target and seen.enabled != "Disabled" != enabled:
                    return seen
            if clock.now() >= until:
                found = f"{seen.target}, {seen.enabled}" if seen else "nothing"
                raise unanswered or WithoutEffect(
                    f"the BMC reported success, and the boot override reads back as {found}"
                )
            await clock.sleep(self._deadlines.poll_seconds)


def _allowed(resource: Document, name: str) -> tuple[str, ...]:
    return resource.texts("Boot", f"{name}@Redfish.AllowableValues")


def _override(resource: Document) -> BootOverride:
    enabled = resource.text("Boot", ENABLED)
    return BootOverride(resource.text("Boot", TARGET), enabled == "Once", enabled)
