"""A switch in memory whose faults are scripted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from node_agent.switches.contract import PortState, Switch, SwitchRefused, SwitchUnanswered
from node_agent.wire.switches import Isolation, Segment, SegmentKind


class Fault(StrEnum):
    """What the next write does. `lost`: it has its effect, and no answer; `silent`: neither; `lie`: an answer, and no effect."""

    NONE = "none"
    LOST = "lost"
    SILENT = "silent"
    LIE = "lie"
    REFUSE = "refuse"


@dataclass
class ScriptedSwitch(Switch):
    """Ports begin in VLAN 1. Faults are used up, one for each write; `unread`: so many reads have no answer."""

    faults: list[Fault] = field(default_factory=list)
    unread: int = 0
    ports: dict[str, PortState] = field(default_factory=dict)
    writes: list[tuple[str, int | None, int]] = field(default_factory=list)
    reads: int = 0

    driver: ClassVar[str] = "scripted"
    isolation: ClassVar[Isolation] = "vlan"
    kinds: ClassVar[frozenset[SegmentKind]] = frozenset({SegmentKind.VLAN})

    def put(self, port: str, vlan: int | None) -> None:
        """Another system has the port carry this VLAN; the fence stays."""
        carried = frozenset() if vlan is None else frozenset({vlan})
        self.ports[port] = PortState(carried, vlan, vlan is None, self._of(port).fence)

    def vlan(self, port: str) -> int | None:
        """What the port carries."""
        return self._of(port).untagged

    def _of(self, port: str) -> PortState:
        return self.ports.get(port, PortState(frozenset({1}), 1, False))

    async def read(self, port: str) -> PortState:
        self.reads += 1
        if self.unread > 0:
            self.unread -= 1
            raise SwitchUnanswered("scripted: no answer to a read")
        return self._of(port)

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        fault = self.faults.pop(0) if self.faults else Fault.NONE
        vlan = None if segment is None else segment.number
        self.writes.append((port, vlan, fence))
        if fault is Fault.REFUSE:
            raise SwitchRefused("scripted: refused")
        if fault in (Fault.NONE, Fault.LOST):
            carried = frozenset() if vlan is None else frozenset({vlan})
            self.ports[port] = PortState(carried, vlan, segment is None, fence)
        if fault in (Fault.LOST, Fault.SILENT):
            raise SwitchUnanswered("scripted: no answer to a write")
