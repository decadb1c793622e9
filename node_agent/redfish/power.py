"""Power of one machine: a state is believed only when no command that was sent before can still change it.

A BMC may queue a command and carry it out after the client gave up on it: an On without an answer arrived 10 s after a later
ForceOff was seen to work. So each command makes the state uncertain for `queue_seconds`, or until its effect was seen if it was
answered and no other command may be queued.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from node_agent.redfish.contract import PowerAction, PowerOutcome, PowerReading, PowerState
from node_agent.redfish.machine import Machine, action_path, allowed_values, check_allowed
from node_agent.redfish.problems import BmcProblem, Busy, NotSettled, NotSupported, OutcomeUnknown, Unreachable
from node_agent.redfish.quirks import RESET_TYPES_UNLISTED

RESET: Final = "ComputerSystem.Reset"
# Restart is never one command: an emulator answers 204 to ForceRestart of a machine that is off, and does not start it.
STEPS: Final[dict[PowerAction, tuple[tuple[PowerState, tuple[str, ...]], ...]]] = {
    PowerAction.ON: ((PowerState.ON, ("On", "ForceOn")),),
    PowerAction.GRACEFUL_OFF: ((PowerState.OFF, ("GracefulShutdown",)),),
    PowerAction.FORCE_OFF: ((PowerState.OFF, ("ForceOff",)),),
    PowerAction.RESTART: ((PowerState.OFF, ("ForceOff",)), (PowerState.ON, ("On", "ForceOn"))),
}
_STEADY: Final = (PowerState.ON, PowerState.OFF, PowerState.PAUSED)


@dataclass
class _Step:
    """One step under way: what was sent and seen."""

    sent: str = ""
    answered: bool = False
    certain_once_seen: float = math.inf


class Power:
    """Reads and commands of PowerState. `quiet`: the caller knows that no earlier process left a command unanswered."""

    def __init__(self, machine: Machine, quiet: bool) -> None:
        self._machine, self._clock = machine, machine.session.wire.clock
        self._deadlines = machine.session.wire.deadlines
        self._certain_from = self._clock.now() + (0 if quiet else self._deadlines.queue_seconds)

    async def read(self) -> PowerReading:
        """One read of PowerState."""
        began = self._clock.now()
        state = power_state_of((await self._machine.system()).text("PowerState"))
        return PowerReading(state, began >= self._certain_from)

    async def settle(self, expected: PowerState, unchanged_for_seconds: float | None = None) -> None:
        """Return once the state was `expected` at each read for so long, and is certain. Raises NotSettled."""
        window = self._deadlines.queue_seconds if unchanged_for_seconds is None else unchanged_for_seconds
        until, since, last = self._clock.now() + self._deadlines.settle_seconds, None, PowerState.UNKNOWN
        while True:
            began = self._clock.now()
            try:
                reading = await self.read()
            except (Unreachable, Busy):
                since = None  # unseen for a while: the window starts again
            else:
                last = reading.state
                since = (since if since is not None else began) if last is expected else None
                if since is not None and reading.certain and began - since >= window:
                    return
            if self._clock.now() >= until:
                raise NotSettled(f"the power state was not {expected} for {window:g} s; last seen: {last}", last)
            await self._clock.sleep(self._deadlines.poll_seconds)

    async def set(self, action: PowerAction) -> PowerOutcome:
        """Reach the state of `action` in its steps; see `Bmc.set_power`."""
        sent, answered, state = [], True, PowerState.UNKNOWN
        for state, names in STEPS[action]:
            step = await self._reach(state, names)
            if step.sent:
                sent.append(step.sent)
                answered = answered and step.answered
        return PowerOutcome(state, tuple(sent), answered)

    async def _reach(self, wanted: PowerState, names: tuple[str, ...]) -> _Step:
        """Look; send one command if the state is another one; look until it is reached and certain."""
        step, until = _Step(), self._clock.now() + self._deadlines.settle_seconds
        reached, last = False, PowerState.UNKNOWN
        while True:
            began = self._clock.now()
            try:
                reading = await self.read()
            except (Unreachable, Busy):
                if not step.sent:
                    raise
            else:
                last = reading.state
                if last is wanted:
                    if step.answered and not reached:
                        self._certain_from = min(self._certain_from, step.certain_once_seen)
                    reached = True
                    if began >= self._certain_from:
                        return step
                elif reached and step.sent:
                    raise NotSettled(f"the power state was {wanted} and is {last} without a command", last)
                elif last in _STEADY and not step.sent:
                    await self._send(step, names)
                    until = self._clock.now() + self._deadlines.settle_seconds
            if self._clock.now() >= until:
                raise self._overdue(step, wanted, last)
            await self._clock.sleep(self._deadlines.poll_seconds)

    async def _send(self, step: _Step, names: tuple[str, ...]) -> None:
        """Send one reset. The state is uncertain from before it was sent."""
        session = self._machine.session
        system = await self._machine.system()
        path = action_path(session, system, RESET)
        if path is None:
            raise NotSupported("the system offers no reset")
        allowed = await allowed_values(session, system, RESET, "ResetType")
        if not allowed:
            session.wire.met(RESET_TYPES_UNLISTED)
        name = next((name for name in names if name in allowed), names[0])
        check_allowed(name, allowed, "the reset type")
        before, now = self._certain_from, self._clock.now()
        # Beside another command that may be queued, a state that is seen may be the effect of either.
        step.certain_once_seen = before if now >= before else math.inf
        self._certain_from = math.inf
        refused = False
        try:
            await session.post(path, {"ResetType": name})
            step.sent, step.answered = name, True
        except OutcomeUnknown:
            step.sent = name
        except BmcProblem:
            refused = True
            raise
        finally:  # also when cancelled: the command may be at the BMC
            held_until = self._clock.now() + self._deadlines.queue_seconds
            self._certain_from = before if refused else max(before, held_until)

    @staticmethod
    def _overdue(step: _Step, wanted: PowerState, last: PowerState) -> NotSettled | OutcomeUnknown:
        if step.sent and not step.answered:
            return OutcomeUnknown(f"{step.sent} had no answer, and the power state is {last}, not {wanted}")
        after = step.sent or "no command"
        if last is wanted:
            return NotSettled(
                f"the power state is {last} after {after}, and an earlier command may still be queued", last
            )
        return NotSettled(f"the power state is {last}, not {wanted}, after {after}", last)


def power_state_of(text: str) -> PowerState:
    """The power state of Redfish's text."""
    try:
        return PowerState(text)
    except ValueError:
        return PowerState.UNKNOWN
