"""The driver `noop`: it moves nothing, and says so. For switches that an operator has configured by hand."""

from __future__ import annotations

from typing import ClassVar

from node_agent.switches.contract import PortState, Switch
from node_agent.wire.switches import Isolation, Segment, SegmentKind


class NoopSwitch(Switch):
    """A switch that is left as it is. Its ports read as carrying nothing that is known."""

    driver: ClassVar[str] = "noop"
    isolation: ClassVar[Isolation] = "none"
    kinds: ClassVar[frozenset[SegmentKind]] = frozenset()

    async def read(self, port: str) -> PortState:
        """Nothing is known of the port."""
        return PortState(frozenset(), None, False)

    async def write(self, port: str, segment: Segment | None, fence: int) -> None:
        """Nothing is written."""
