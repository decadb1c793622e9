"""The sandbox's fault switches (docs/reference/sandbox-driver.md): how tests and demos make each failure happen on purpose."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping

from node_agent.drivers.contract import DriverFailure
from node_agent.protocol import FailureCode

OFF = frozenset({"", "0", "false", "no", "off"})
DEFAULT_WAIT_SECONDS = 1.0


class Faults:
    """A task's `faults`, read by meaning. Unknown switches are ignored: they may be another driver's."""

    def __init__(self, switches: Mapping[str, str]) -> None:
        self._switches = switches

    def on(self, name: str) -> bool:
        """Whether the switch is thrown."""
        return self._switches.get(name, "").strip().lower() not in OFF

    def fail(self, name: str, code: FailureCode, detail: str) -> None:
        """Raise `DriverFailure` if the switch is thrown."""
        if self.on(name):
            raise DriverFailure(code, f"{detail} (fault switch {name})")

    def seconds(self, name: str, otherwise: float) -> float:
        """The switch's value as seconds; 1 if it is thrown without a number; `otherwise` if it is not thrown."""
        if not self.on(name):
            return otherwise
        try:
            return max(0.0, float(self._switches[name]))
        except ValueError:
            return DEFAULT_WAIT_SECONDS

    async def silent(self) -> None:
        """Say and do nothing for the seconds that `agent_silent` names."""
        await asyncio.sleep(self.seconds("agent_silent", 0.0))

    def die(self) -> None:
        """Kill the agent's own process, as the kernel would, if `agent_dies` is thrown."""
        if self.on("agent_dies"):
            os.kill(os.getpid(), signal.SIGKILL)

    async def slow(self, phase: str) -> None:
        """Sleep `slow_phase_seconds` at the start of `phase`; of every phase, unless `slow_phase` names one."""
        if self.on("slow_phase_seconds") and self._switches.get("slow_phase", phase) == phase:
            await asyncio.sleep(self.seconds("slow_phase_seconds", 0.0))
