"""Switches a machine through its BMC: each state is read back, and believed as the Redfish client believes it."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from node_agent.redfish.contract import Bmc, PowerAction, PowerOutcome
from node_agent.redfish.problems import NotSettled, NotSupported, OutcomeUnknown, ValueNotAllowed
from node_agent.site.crash_points import CrashPoint, pass_point

log = structlog.get_logger("node_agent.site.power")

GRACEFUL_SECONDS: Final = 180.0
"""How long the system of a machine may take to shut down before the machine is forced off."""


async def switch_on(bmc: Bmc) -> PowerOutcome:
    """On, read back. Raises BmcProblem."""
    outcome = await bmc.set_power(PowerAction.ON)
    pass_point(CrashPoint.POWER_AFTER_REACHED)
    return outcome


async def switch_off(bmc: Bmc, graceful_seconds: float = GRACEFUL_SECONDS) -> PowerOutcome:
    """Off, read back: by a graceful shutdown, or by force where that is refused or ignored. Raises BmcProblem."""
    try:
        async with asyncio.timeout(graceful_seconds):
            outcome = await bmc.set_power(PowerAction.GRACEFUL_OFF)
    except (TimeoutError, NotSettled, NotSupported, ValueNotAllowed, OutcomeUnknown) as why:
        log.info("forcing_off", why=type(why).__name__)
        pass_point(CrashPoint.POWER_BEFORE_FORCED)
        outcome = await bmc.set_power(PowerAction.FORCE_OFF)
    pass_point(CrashPoint.POWER_AFTER_REACHED)
    return outcome


async def reset(bmc: Bmc) -> PowerOutcome:
    """Forced off, then on, both read back. Repeated after a crash it may restart the machine once more. Raises BmcProblem."""
    await bmc.set_power(PowerAction.FORCE_OFF)
    pass_point(CrashPoint.POWER_AFTER_OFF)
    return await switch_on(bmc)
