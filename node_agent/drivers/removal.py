"""Taking an allocation down and proving it: what the drivers that keep directories and leases have in common.

Every step can be repeated and none needs space on the disk: a release that was interrupted anywhere runs again from its
start. Leases are dropped after the wipe, so that a slot is never free while something may still be there (P6). The empty
directory is removed last: as long as it is there, a repetition proves the same wipe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import UUID

import structlog

from berth.process.json_objects import JsonObject
from node_agent.drivers.contract import DriverFailure, Phase, Plan, Progress
from node_agent.drivers.leases import Leases, listed
from node_agent.drivers.performing import why_not_proven
from node_agent.protocol import FailureCode, ReleaseResult

log = structlog.get_logger("node_agent.drivers")


END_SECONDS_MAX = 30.0
"""How long a guest that is killed may take to be gone."""


class StillThere(Exception):
    """Something that was to be ended or removed is still there."""


class Removal(ABC):
    """One attempt to remove one allocation, or a part of it. A driver says how it stops a guest and wipes it."""

    def __init__(self, allocation_id: UUID, leases: Leases, grace_seconds: float, was_there: bool) -> None:
        self._allocation_id = allocation_id
        self._leases = leases
        self._grace_seconds = grace_seconds
        self._was_there = was_there
        self._evidence: JsonObject = {"was_there": was_there, "devices": []}
        self._hard_stopped = self._wiped = self._leases_released = False

    def plan(self) -> Plan[ReleaseResult]:
        """All of it."""
        return Plan(
            (self.stop(), self.wipe(), Phase("leases_released", partial(self._proven, self._leave))), self.result
        )

    def stop(self) -> Phase:
        """End the guest and every process of the tenant; no agent starts it again."""
        return Phase("guest_stopped", partial(self._proven, self._stop))

    def wipe(self) -> Phase:
        """Wipe the disk; the directory is empty afterwards."""
        return Phase("wiped", partial(self._proven, self._wipe))

    def result(self) -> ReleaseResult:
        """What is proven so far; nothing after a failure is claimed."""
        return ReleaseResult(
            released=self._wiped and self._leases_released,
            hard_stopped=self._hard_stopped,
            wiped=self._wiped,
            leases_released=self._leases_released,
            evidence=self._evidence,
        )

    @abstractmethod
    async def _stop(self) -> str:
        """End the guest; what was done, for people. Raises OSError, StillThere."""

    @abstractmethod
    async def _wipe(self) -> str:
        """Wipe, leave only what says so in the directory, and name devices in the evidence. Raises OSError, StillThere."""

    @abstractmethod
    async def _remove(self) -> None:
        """Remove the empty directory. Raises OSError."""

    async def _proven(self, step: Callable[[], Awaitable[str]], _progress: Progress) -> str:
        try:
            return await step()
        except (OSError, StillThere) as error:
            log.error("release_not_proven", allocation_id=str(self._allocation_id), why=str(error))
            self._evidence["problem"] = str(error)
            raise DriverFailure(FailureCode.CLEANUP_FAILED, why_not_proven(self.result())) from error

    async def _forget(self) -> None:  # noqa: B027 - a driver need not have anything of the kind
        """Remove what else says that something of a slot is still there; before a slot is free. Raises OSError."""

    async def _leave(self) -> str:
        await self._forget()
        dropped = sorted(self._leases.drop(self._allocation_id))
        left = [slot for slot, lease in self._leases.held().items() if lease.allocation_id == self._allocation_id]
        if left:
            raise OSError(f"leases of slots {listed(left)} are still there")
        await self._remove()
        self._evidence.setdefault("leases", {"dropped": dropped, "left": left})
        self._leases_released = True
        return f"of slots {listed(dropped)}" if dropped else "there were none"
