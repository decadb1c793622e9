"""Updates firmware through a BMC: sent once by one agent, followed by any, and completed only by the version read back.

What is stored in the control plane before the command decides which process sends it. An agent that goes on never sends, and
restarts nothing unless the BMC's own task says that the update has ended: a restart in the middle can destroy a machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final
from uuid import uuid4

import structlog

from node_agent.redfish.contract import (
    Bmc,
    FirmwareItem,
    PowerAction,
    PowerState,
    ResetNeed,
    SystemDescription,
)
from node_agent.redfish.problems import (
    BmcProblem,
    CredentialsRefused,
    NotBack,
    OutcomeUnknown,
    TaskFailed,
    WithoutEffect,
)
from node_agent.site import boots, power
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.problems import NotDone
from node_agent.wire.firmware import FirmwareEntry, FirmwareOrder, FirmwareProgress, FirmwareReading, FirmwareResult

log = structlog.get_logger("node_agent.site.updates")

VERIFY_SECONDS: Final = 600.0
"""How long the versions are read after the update has ended: a BMC that restarts does not answer for minutes."""
MARGIN_SECONDS: Final = 60.0
"""Before the deadline of the task, so that what was found is reported."""
SENDING_SECONDS_MIN: Final = VERIFY_SECONDS + 2 * MARGIN_SECONDS
"""With less time left nothing is sent: its end would not be seen."""
TEXT_MAX: Final = 200

Keep = Callable[[FirmwareProgress | None], Awaitable[FirmwareProgress | None]]
"""Stores how far the update is, unless an agent has done so before; returns what is stored. None only reads it."""
Serve = Callable[[], AbstractAsyncContextManager[str]]
"""Fetches the image and serves it; yields its URL. Raises NotDone."""


class FirmwareUpdate:
    """One update by one agent. `result` is what is known of it, also after `run` has raised."""

    def __init__(self, order: FirmwareOrder, keep: Keep, serve: Serve, seconds_left: Callable[[], float]) -> None:
        self._order = order
        self._keep = keep
        self._serve = serve
        self._seconds_left = seconds_left
        self._sender = uuid4()
        self._sent = False
        self.result = FirmwareResult(sent=False)

    async def run(self, bmc: Bmc) -> SystemDescription | None:
        """Update, or go on with an update that an agent has begun; what the BMC says of the machine afterwards, if it does.

        Raises BmcProblem and NotDone. `result.sent` says whether the BMC may have taken the update.
        """
        try:
            stored = await self._keep(None)
            if stored is None or self._is_mine(stored):
                return await self._from_start(bmc)
            return await self._go_on(bmc, stored)
        except CredentialsRefused as error:
            if not self._sent:
                raise
            raise NotBack(f"during the update the BMC refuses the credentials of before: {error.detail}") from error
        except (TaskFailed, OutcomeUnknown):
            await self._read_after(bmc)
            raise

    def _is_mine(self, stored: FirmwareProgress) -> bool:
        return stored.sender == self._sender and not self._sent

    def _note(self, **found: object) -> None:
        self.result = self.result.model_copy(update=found)

    async def _from_start(self, bmc: Bmc) -> SystemDescription | None:
        found = await bmc.describe()
        targets = await self._targets(bmc)
        before = _reading(targets, found)
        self._note(before=before)
        if all(target.version == self._order.version for target in targets):
            self._note(already=True, after=before)
            return found
        known = await bmc.update_tasks()
        async with self._serve() as url:
            pass_point(CrashPoint.FIRMWARE_AFTER_FETCHED)
            if self._seconds_left() < SENDING_SECONDS_MIN:
                raise NotDone(
                    "too_little_time", f"less than {SENDING_SECONDS_MIN:g} s are left of the task; nothing was sent"
                )
            made = FirmwareProgress(
                sender=self._sender, before=before, power_state=found.power_state.value, tasks=list(known)
            )
            stored = await self._keep(made)
            pass_point(CrashPoint.FIRMWARE_BEFORE_SENT)
            assert stored is not None, "what was stored is returned"
            if not self._is_mine(stored):
                return await self._go_on(bmc, stored)
            self._note(sender=self._sender)
            task, unknown = await self._send(bmc, url, targets, stored)
            return await self._finish(bmc, stored, task, unknown)

    async def _targets(self, bmc: Bmc) -> tuple[FirmwareItem, ...]:
        found = {item.id: item for item in await bmc.firmware()}
        missing = [name for name in self._order.targets if name not in found]
        if missing:
            has = ", ".join(sorted(found)[:20]) or "nothing"
            raise NotDone("firmware_target_unknown", f"the BMC's inventory has no {missing[0]}; it has {has}")
        return tuple(found[name] for name in self._order.targets)

    async def _send(
        self, bmc: Bmc, url: str, targets: tuple[FirmwareItem, ...], stored: FirmwareProgress
    ) -> tuple[str | None, OutcomeUnknown | None]:
        """Send the update once; its task, and why its answer is missing."""
        self._sent = True
        self._note(sent=True)
        try:
            begun = await bmc.begin_update(url, targets)
        except OutcomeUnknown as unknown:
            return None, unknown
        except TaskFailed:
            raise
        except BmcProblem:
            self._sent = False
            self._note(sent=False)  # refused, or never sent
            raise
        pass_point(CrashPoint.FIRMWARE_AFTER_SENT)
        log.info("firmware_sent", task=begun.task, targets=self._order.targets, version=self._order.version)
        if begun.task is not None:
            await self._keep(stored.model_copy(update={"task": begun.task}))
        pass_point(CrashPoint.FIRMWARE_AFTER_TASK)
        return begun.task, None

    async def _go_on(self, bmc: Bmc, stored: FirmwareProgress) -> SystemDescription | None:
        """Go on with what another process has sent, or was about to send."""
        self._sent = True
        self._note(sent=True, before=stored.before)
        log.info("firmware_update_resumed", task=stored.task)
        unknown = OutcomeUnknown("the agent that began the update ended, and the BMC names no task of it")
        return await self._finish(bmc, stored, stored.task, unknown)

    async def _finish(
        self, bmc: Bmc, stored: FirmwareProgress, task: str | None, unknown: OutcomeUnknown | None
    ) -> SystemDescription | None:
        if task is None and unknown is not None:
            task = await self._found_task(bmc, stored)
        needs: frozenset[ResetNeed] = frozenset()
        if task is not None:
            try:
                needs = await bmc.await_update(task, max(1.0, self._seconds_left() - VERIFY_SECONDS - MARGIN_SECONDS))
                unknown = None
            except OutcomeUnknown as error:
                unknown = error
            pass_point(CrashPoint.FIRMWARE_AFTER_ENDED)
        if unknown is None:
            await self._restart(bmc, needs, stored)
        return await self._verify(bmc, stored, unknown)

    @staticmethod
    async def _found_task(bmc: Bmc, stored: FirmwareProgress) -> str | None:
        """The only task that the BMC has now and had not before; None: it cannot be determined for certain."""
        try:
            added = [path for path in await bmc.update_tasks() if path not in stored.tasks]
        except BmcProblem:
            return None
        return added[0] if len(added) == 1 else None

    async def _restart(self, bmc: Bmc, needs: frozenset[ResetNeed], stored: FirmwareProgress) -> None:
        """Restart what the task of the BMC names, and what the order names."""
        if self._order.restart != "auto":
            needs = needs | {ResetNeed(self._order.restart)}
        if ResetNeed.BMC in needs:
            await bmc.reset_bmc()
        if ResetNeed.HOST in needs:
            if stored.power_state != PowerState.OFF:
                await power.switch_off(bmc)
            await power.switch_on(bmc)
        self._note(restarted=[need.value for need in ResetNeed if need in needs])
        pass_point(CrashPoint.FIRMWARE_AFTER_RESTARTED)

    async def _verify(
        self, bmc: Bmc, stored: FirmwareProgress, unknown: OutcomeUnknown | None
    ) -> SystemDescription | None:
        """Return once each target has the version. Raises what keeps the update from being proven."""
        seconds = max(0.0, self._seconds_left() - MARGIN_SECONDS)
        ids = tuple(self._order.targets)
        items = await bmc.read_versions(ids, self._order.version, seconds if unknown else min(VERIFY_SECONDS, seconds))
        self._note(after=_reading(items, None))
        if {item.id for item in items if item.version == self._order.version} != set(ids):
            was = {entry.id: entry.version for entry in stored.before.targets}
            if unknown is not None:
                raise unknown
            if {item.id: item.version for item in items} == was:
                raise WithoutEffect("the BMC reported success, and the versions are as before")
            raise NotDone(
                "firmware_other_version", f"the versions are neither those of before nor {self._order.version}"
            )
        if stored.power_state == PowerState.OFF and "host" in self.result.restarted:
            await bmc.set_power(PowerAction.FORCE_OFF)  # as it was found: it has no system to shut down
        described = await boots.described(bmc)
        self._note(after=_reading(items, described))
        return described

    async def _read_after(self, bmc: Bmc) -> None:
        if self._sent and self.result.after is None:
            with suppress(BmcProblem):
                items = await bmc.read_versions(tuple(self._order.targets), self._order.version, 0)
                self._note(after=_reading(items, None))


def _reading(items: tuple[FirmwareItem, ...], found: SystemDescription | None) -> FirmwareReading:
    entries = [FirmwareEntry(id=item.id, name=item.name[:TEXT_MAX], version=item.version[:TEXT_MAX]) for item in items]
    if found is None:
        return FirmwareReading(targets=entries)
    manager = "" if found.manager is None else found.manager.firmware_version
    return FirmwareReading(targets=entries, bios=found.bios_version[:TEXT_MAX], bmc=manager[:TEXT_MAX])
