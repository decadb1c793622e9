"""What a task of a site does at the switches of a machine's ports: one after another, each read back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog

from node_agent.redfish.contract import PowerState
from node_agent.redfish.problems import BmcProblem
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.problems import NotDone
from node_agent.switches.contract import NotReadBack, PortState, Switch, SwitchProblem
from node_agent.switches.listed import find_switch
from node_agent.switches.placing import PlacingTimes, place, require_placed
from node_agent.wire.switches import SEGMENTS_FOUND_MAX, PortFound, PortOrder, SwitchPort

log = structlog.get_logger("node_agent.site.ports")

Guard = Callable[[], None]
Power = Callable[[], Awaitable[PowerState]]
"""Reads the power of the machine from its BMC. Raises BmcProblem, NotDone."""


class SitePorts:
    """The switches that this agent knows, by name."""

    def __init__(self, switches: Mapping[str, Switch], times: PlacingTimes | None = None) -> None:
        self._switches = switches
        self._times = times or PlacingTimes()

    async def carry_out(self, order: PortOrder | None, fence: int, guard: Guard, power: Power) -> list[PortFound]:
        """Move each port, or compare it, as ordered; the ports as they were read. Raises SwitchProblem, BmcProblem, NotDone.

        The first port that cannot be proven ends it: those after it are left as they are. A move that must be `while_off` ends
        with every port shut unless the machine reads as off before it and after it: a tenant's system may have an alarm set.
        """
        if order is None:
            raise NotDone("no_ports", "the task names no port")
        pass_point(CrashPoint.PORTS_BEFORE_MOVED)
        if not order.while_off:
            return await self._each(order, fence, guard)
        await self._require_off(order, fence, guard, power)
        try:
            found = await self._each(order, fence, guard)
        except SwitchProblem:
            await self._require_off(order, fence, guard, power)
            raise
        await self._require_off(order, fence, guard, power)
        return found

    async def shut(self, order: PortOrder | None, fence: int, guard: Guard) -> str:
        """Shut each port, those after one that fails too; what came of it, in words. Raises what `guard` raises."""
        left = []
        for port in [] if order is None else order.ports:
            try:
                await place(find_switch(self._switches, port.switch), port.port, None, fence, guard, self._times)
            except SwitchProblem as problem:
                left.append(f"{port.switch} {port.port} ({problem.code})")
        log.warning("ports_shut", fence=fence, left=left)
        return "its ports were shut" if not left else f"NOT SHUT: {', '.join(left)}"

    async def _require_off(self, order: PortOrder, fence: int, guard: Guard, power: Power) -> None:
        try:
            found = await power()
        except (BmcProblem, NotDone):
            await self.shut(order, fence, guard)
            raise
        if found is not PowerState.OFF:
            raise NotDone("machine_on", f"the machine reads as {found.value}; {await self.shut(order, fence, guard)}")

    async def _each(self, order: PortOrder, fence: int, guard: Guard) -> list[PortFound]:
        found = []
        for port in order.ports:
            switch = self._switch_of(port)
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
                await require_placed(self._switch_of(port), port.port, order.segment, guard)
        except SwitchProblem as problem:
            raise NotDone(problem.code, problem.detail) from problem

    def _switch_of(self, port: SwitchPort) -> Switch:
        """Raises SwitchUnknown, and NotReadBack for a driver that does not move ports where one has."""
        switch = find_switch(self._switches, port.switch)
        if port.isolation != "none" and switch.isolation == "none":
            what = f"port {port.port} of {port.switch} was put into a VLAN, and the driver {switch.driver} does not read it"
            raise NotReadBack(what)
        return switch


def _found(port: SwitchPort, switch: Switch, state: PortState) -> PortFound:
    return PortFound(
        switch=port.switch, port=port.port, driver=switch.driver, isolation=switch.isolation,
        segments=sorted(state.segments)[:SEGMENTS_FOUND_MAX], is_shut=state.is_shut,
    )  # fmt: skip
