"""Resets a BMC, and compares what it says of its machine afterwards with what it said before."""

from __future__ import annotations

import asyncio
from typing import Final

from node_agent.redfish.contract import Bmc, PowerState, SystemDescription
from node_agent.redfish.problems import CredentialsRefused, NotBack
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.problems import NotDone

DESCRIPTIONS_MAX: Final = 10
"""A manager that is back may not know its machine yet."""
PAUSE_SECONDS = 3.0
"""Between two of these descriptions."""
_STEADY: Final = (PowerState.ON, PowerState.OFF)


async def reset_bmc(bmc: Bmc) -> SystemDescription:
    """Restart the BMC once; the machine as it is described afterwards.

    Raises BmcProblem, and NotDone if the BMC answers for another machine than before, or the machine has another power state.
    """
    before = await bmc.describe()
    await bmc.reset_bmc()
    pass_point(CrashPoint.RESET_AFTER_BACK)
    after = await _described(bmc, before)
    if before.uuid and after.uuid != before.uuid:
        raise NotDone("other_machine", f"the BMC answers for the machine {after.uuid}, and answered for {before.uuid}")
    if before.power_state in _STEADY and after.power_state is not before.power_state:
        found = f"{before.power_state} before the reset of its BMC, and is {after.power_state}"
        raise NotDone("power_changed", f"the machine was {found}")
    return after


async def _described(bmc: Bmc, before: SystemDescription) -> SystemDescription:
    """What the BMC says once it knows its machine. Raises NotBack if it does not, or refuses the credentials.

    A refusal must not be taken for that of another password, with which the whole reset would begin anew.
    """
    for _ in range(DESCRIPTIONS_MAX):
        try:
            found = await bmc.describe()
        except CredentialsRefused as error:
            raise NotBack(f"after its reset the BMC refuses the credentials of before: {error.detail}") from error
        if (found.uuid or not before.uuid) and (found.power_state in _STEADY or before.power_state not in _STEADY):
            return found
        await asyncio.sleep(PAUSE_SECONDS)
    raise NotBack("after its reset the BMC does not say which machine it has, or whether it is on")
