"""Resets a BMC, and compares what it says of its machine afterwards with what it said before."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import Bmc, PowerState, SystemDescription
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.problems import NotDone

_STEADY: Final = (PowerState.ON, PowerState.OFF)


async def reset_bmc(bmc: Bmc) -> SystemDescription:
    """Restart the BMC once; the machine as it is described afterwards.

    Raises BmcProblem, and NotDone if the BMC answers for another machine than before, or the machine has another power state.
    """
    before = await bmc.describe()
    await bmc.reset_bmc()
    pass_point(CrashPoint.RESET_AFTER_BACK)
    after = await bmc.describe()
    if before.uuid and after.uuid != before.uuid:
        named = after.uuid or "without a UUID"
        raise NotDone("other_machine", f"the BMC answers for the machine {named}, and answered for {before.uuid}")
    if before.power_state in _STEADY and after.power_state is not before.power_state:
        found = f"{before.power_state} before the reset of its BMC, and is {after.power_state}"
        raise NotDone("power_changed", f"the machine was {found}")
    return after
