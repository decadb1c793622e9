"""The interface of a driver of switches, and its problems. docs/how-to/metal/write-a-switch-driver.md explains both.

A driver reads and writes one port. When it is asked, what is compared, and how long is waited is `placing`'s, the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from node_agent.wire.switches import Isolation, Segment, SegmentKind


class SwitchProblem(Exception):
    """The port is not as it should be, or is not known to be; `code` is stable."""

    code: ClassVar[str] = "switch_problem"
    next_step: ClassVar[str] = ""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class SwitchUnknown(SwitchProblem):
    """The agent's list of switches has no such name."""

    code = "switch_unknown"
    next_step = "Add the switch to the file of each agent of the site, and restart them."


class PortUnknown(SwitchProblem):
    """The switch has no such port, or the port is not one that its driver manages."""

    code = "port_unknown"
    next_step = "Compare the port with the switch and with `berth node port show`; set the right one."


class SegmentUnknown(SwitchProblem):
    """The switch has no such segment."""

    code = "segment_unknown"
    next_step = "Make the segment on the switch, on every link that it must cross."


class NotBuilt(SwitchProblem):
    """The driver has no segments of this kind."""

    code = "not_built"
    next_step = "Use VLANs, or write a driver that has this kind."


class NotIsolating(SwitchProblem):
    """The switch is configured so that its segments are not separate."""

    code = "switch_not_isolating"
    next_step = "Switch VLAN filtering on, then run again."


class SwitchUnanswered(SwitchProblem):
    """The switch did not answer in time, or not in a form that can be read. What was sent may have an effect."""

    code = "switch_unanswered"
    next_step = "Check the path from the agent to the switch, then run again."


class SwitchRefused(SwitchProblem):
    """The switch refuses the command."""

    code = "switch_refused"
    next_step = "Read what it says; check the account of the agent at the switch."


class FenceOlder(SwitchProblem):
    """A newer task has moved the port: this one counts no more."""

    code = "port_fence_older"
    next_step = "None: the newer task goes on."


class PortNotMoved(SwitchProblem):
    """The switch reported success, and the port read back is not as ordered."""

    code = "port_not_moved"
    next_step = "Read the port on the switch; another system may configure it."


class PortMoved(SwitchProblem):
    """The port is not where the last task has left it, and this task relies on that."""

    code = "port_moved"
    next_step = "Find what has moved the port; then run again, or `berth node port move`."


class NotReadBack(SwitchProblem):
    """A driver that moves ports has put this one into a VLAN, and the present driver of its switch does not read it."""

    code = "not_read_back"
    next_step = "List the switch with the driver that moves its ports, in the file of each agent of the site."


PROBLEMS: tuple[type[SwitchProblem], ...] = (
    SwitchUnknown,
    PortUnknown,
    SegmentUnknown,
    NotBuilt,
    NotIsolating,
    SwitchUnanswered,
    SwitchRefused,
    FenceOlder,
    PortNotMoved,
    PortMoved,
    NotReadBack,
)


@dataclass(frozen=True)
class PortState:
    """A port as the switch reports it. `segments`: every one that it carries, in either direction, tagged or not.

    `untagged`: the segment of frames without a tag; `fence`: of the newest task that has written the port, where the switch can
    keep it.
    """

    segments: frozenset[int]
    untagged: int | None
    is_shut: bool
    fence: int | None = None

    def carries(self, segment: Segment | None) -> bool:
        """Whether the port carries this segment untagged and nothing else; None: nothing at all."""
        if segment is None:
            return self.is_shut and not self.segments
        return not self.is_shut and self.segments == {segment.number} and self.untagged == segment.number


class Switch(Protocol):
    """One switch. Every method is bounded in time by the driver, and may be repeated."""

    driver: ClassVar[str]
    """Its name in the agent's list of switches."""
    isolation: ClassVar[Isolation]
    """`none`: it moves nothing, which every result says."""
    kinds: ClassVar[frozenset[SegmentKind]]
    """Kinds of segments that it has; others are refused by `not_built`."""

    async def read(self, port: str) -> PortState:
        """The port as it is now, never from a cache. Raises SwitchProblem; PortUnknown for what it does not manage."""
        ...

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        """Have the port carry this segment untagged and nothing else, or shut it without one.

        The fence is stored first, where the switch can store it, and alone if the port is so already: a machine that runs
        keeps its link. Raises SwitchProblem; SwitchUnanswered if the effect is not
        known. A return is no proof: the caller reads the port.
        """
        ...
