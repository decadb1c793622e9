"""Has a port carry one segment, by any driver, and proves it by reading the port back.

Guarantees: a port that is as ordered is not written, but for the fence of a newer task; a task with an older fence than the
port's writes nothing; what a switch answers to a command is no proof; the end of a wait without an answer is `switch_unanswered`,
whose effect is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from node_agent.switches.contract import (
    FenceOlder,
    NotBuilt,
    PortMoved,
    PortNotMoved,
    PortState,
    Switch,
    SwitchUnanswered,
)
from node_agent.wire.switches import Segment


@dataclass(frozen=True)
class PlacingTimes:
    """How long a port may take until it reads as ordered, and how often it is read meanwhile."""

    settle_seconds: float = 60.0
    poll_seconds: float = 1.0


async def place(
    switch: Switch, port: str, segment: Segment | None, fence: int, guard: Callable[[], None], times: PlacingTimes
) -> PortState:
    """Have the port carry this segment and nothing else, or nothing without one; the port as it was read last.

    Raises SwitchProblem, and what `guard` raises, which is asked before each request to the switch.
    """
    _require_kind(switch, segment)
    if switch.isolation == "none":
        guard()
        await switch.write(port, segment, fence)
        return await switch.read(port)
    guard()
    found = await switch.read(port)
    _require_fence(port, found, fence)
    if _is_placed(found, segment, fence):
        return found
    guard()
    unanswered: SwitchUnanswered | None = None
    try:
        await switch.write(port, segment, fence)
    except SwitchUnanswered as error:
        unanswered = error
    return await _settled(switch, port, segment, fence, guard, times, unanswered)


async def require_placed(switch: Switch, port: str, segment: Segment | None, guard: Callable[[], None]) -> PortState:
    """The port, which carries this segment and nothing else. Raises PortMoved, and other problems of the switch."""
    _require_kind(switch, segment)
    guard()
    found = await switch.read(port)
    if switch.isolation != "none" and not found.carries(segment):
        raise PortMoved(f"port {port} {_said(found)}, and must carry {_wanted(segment)}")
    return found


def _is_placed(found: PortState, segment: Segment | None, fence: int) -> bool:
    """Whether the port is as ordered, and older tasks are refused from now on where the switch keeps a fence."""
    return found.carries(segment) and found.fence in (None, fence)


def _require_kind(switch: Switch, segment: Segment | None) -> None:
    if switch.isolation != "none" and segment is not None and segment.kind not in switch.kinds:
        raise NotBuilt(f"the driver {switch.driver} has no segments of the kind {segment.kind.value}")


def _require_fence(port: str, found: PortState, fence: int) -> None:
    if found.fence is not None and found.fence > fence:
        raise FenceOlder(f"port {port} was written under fence {found.fence}, and this task has {fence}")


async def _settled(
    switch: Switch, port: str, segment: Segment | None, fence: int, guard: Callable[[], None], times: PlacingTimes,
    unanswered: SwitchUnanswered | None,
) -> PortState:  # fmt: skip
    clock = asyncio.get_running_loop().time
    until, found, problem = clock() + times.settle_seconds, None, unanswered
    while True:
        guard()
        try:
            found = await switch.read(port)
        except SwitchUnanswered as error:
            problem = error
        else:
            _require_fence(port, found, fence)
            if _is_placed(found, segment, fence):
                return found
        if clock() >= until:
            break
        await asyncio.sleep(times.poll_seconds)
    if problem is not None:
        raise problem
    assert found is not None, "a read without a problem has found the port"
    raise PortNotMoved(f"port {port} {_said(found)} after the switch was ordered to carry {_wanted(segment)}")


def _said(found: PortState) -> str:
    if found.is_shut:
        return "is shut"
    return f"carries {', '.join(str(one) for one in sorted(found.segments)) or 'nothing'} (untagged {found.untagged})"


def _wanted(segment: Segment | None) -> str:
    return "nothing" if segment is None else f"{segment.kind.value} {segment.number} alone"
