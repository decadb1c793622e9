"""Start and end of a machine's deploy system through its BMC: medium, boot once, power, each read back.

Only the signed hello of the deploy system proves its boot; a start proves that the machine was switched on with the medium.
Both can be repeated from their start by any agent of the site.
"""

from __future__ import annotations

import asyncio
from typing import Final

from node_agent.redfish.contract import Bmc, BootTarget, PowerAction, PowerOutcome, PowerState, SystemDescription
from node_agent.redfish.problems import BmcProblem
from node_agent.site.crash_points import CrashPoint, pass_point
from node_agent.site.media import SiteMedia, is_medium_of
from node_agent.site.problems import NotDone
from node_agent.wire.deploy_medium import DeployMedium

DESCRIBE_SECONDS_MAX: Final = 180.0
"""The machine is off and without its medium by then: a slow BMC must not make that end unknown."""


async def start_deploy_system(bmc: Bmc, media: SiteMedia, medium: DeployMedium, lease_fence: int) -> PowerOutcome:
    """Serve and insert the medium while the machine is off, boot once from it, and switch the machine on.

    A machine that is on with this medium was switched on by an agent before: its medium is served again. Raises BmcProblem,
    and NotDone for a machine that is on with another medium, or if no medium can be served.
    """
    url = await media.publish(medium, lease_fence)
    pass_point(CrashPoint.START_AFTER_PUBLISHED)
    if (await bmc.power_state()).state is not PowerState.OFF:
        found = await bmc.read_medium(BootTarget.CD)
        if not (found.inserted and is_medium_of(found.image, medium.token)):
            raise NotDone("machine_on", "the machine is on without the medium of this start; switch it off first")
        return await bmc.set_power(PowerAction.ON)
    await bmc.settle(PowerState.OFF, 0)
    await bmc.insert_medium(url, BootTarget.CD)
    pass_point(CrashPoint.START_AFTER_INSERTED)
    await bmc.boot_once(BootTarget.CD)
    pass_point(CrashPoint.START_AFTER_BOOT_ONCE)
    outcome = await bmc.set_power(PowerAction.ON)
    pass_point(CrashPoint.START_AFTER_ON)
    return outcome


async def end_deploy_system(bmc: Bmc) -> PowerOutcome:
    """Off by force, as a deploy system keeps nothing; the medium ejected, and no boot from it set any more. Raises BmcProblem."""
    outcome = await bmc.set_power(PowerAction.FORCE_OFF)
    pass_point(CrashPoint.END_AFTER_OFF)
    await bmc.eject_medium(BootTarget.CD)
    pass_point(CrashPoint.END_AFTER_EJECTED)
    await _boot_from_disk(bmc)
    pass_point(CrashPoint.END_AFTER_DISK)
    return outcome


async def eject_medium(bmc: Bmc) -> None:
    """The medium ejected under the running deploy system, and no boot from it set any more. The power is left as it is.

    Raises BmcProblem.
    """
    await bmc.eject_medium(BootTarget.CD)
    pass_point(CrashPoint.EJECT_AFTER_EJECTED)
    await _boot_from_disk(bmc)
    pass_point(CrashPoint.EJECT_AFTER_DISK)


async def _boot_from_disk(bmc: Bmc) -> None:
    override = await bmc.read_boot()
    if override.enabled != "Disabled" and override.target != BootTarget.DISK:
        await bmc.set_boot_disk()


async def described(bmc: Bmc) -> SystemDescription | None:
    """What the BMC says of the machine; None if it does not in time: nothing else depends on it."""
    try:
        async with asyncio.timeout(DESCRIBE_SECONDS_MAX):
            return await bmc.describe()
    except (BmcProblem, TimeoutError):
        return None
