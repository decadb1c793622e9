"""What a task of a site does at the switches of a machine's ports: one after another, each read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.problems import NotDone
from node_agent.switches.contract import PortState, Switch, SwitchProblem
from node_agent.switches.listed import find_switch
from node_agent.switches.placing import PlacingTimes, place, require_placed
from node_agent.wire.switches import SEGMENTS_FOUND_MAX, PortFound, PortOrder, SwitchPort

log = structlog.get_logger("node_agent.site.ports")

Guard = Callable[[], None]


class SitePorts:
    """The switches that this agent knows, by name."""

    def __init__(self, switches: Mapping[str, Switch], times: PlacingTimes | None = None) -> None:
        self._switches = switches
        self._times = times or PlacingTimes()

    async def carry_out(self, order: PortOrder | None, fence: int, guard: Guard) -> list[PortFound]:
        """Move each port, or compare it, as ordered; the ports as they were read. Raises SwitchProblem, NotDone.

        The first port that cannot be proven ends it: those after it are left as they are.
        """
        if order is None:
            raise NotDone("no_ports", "the task names no port")
        pass_point(CrashPoint.PORTS_BEFORE_MOVED)
        found = []
        for port in order.ports:
            switch = find_switch(self._switches, port.switch)
            if order.move:
                state = await place(switch, port.port, order.segment, fence, guard, self._times)
            else:
                state = await require_placed(switch, port.port, order.segment, guard)
            found.append(_found(port, switch, state))
            pass_point(CrashPoint.PORTS_AFTER_ONE)
        log.info("ports_placed", fence=fence, moved=order.move, ports=[one.model_dump() for one in found])
        return found

    async def require(self, order: PortOrder | None, guard: Guard) -> None:
        """Return if each port is as ordered, or none is named. Raises NotDone: nothing was commanded."""
        if order is None:
            return
        try:
            for port in order.ports:
                await require_placed(find_switch(self._switches, port.switch), port.port, order.segment, guard)
        except SwitchProblem as problem:
            raise NotDone(problem.code, problem.detail) from problem


def _found(port: SwitchPort, switch: Switch, state: PortState) -> PortFound:
    return PortFound(
        switch=port.switch, port=port.port, driver=switch.driver, isolation=switch.isolation,
        segments=sorted(state.segments)[:SEGMENTS_FOUND_MAX], is_shut=state.is_shut,
    )  # fmt: skip
