"""Ends the guests of a host that goes down: `python -m node_agent --end-guests`, run by deploy/berth-guests.service.

An agent never ends guests by stopping, as it is also stopped to be upgraded. systemd stops the agent first, so that it starts
no guest again that this ends.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from node_agent.drivers.contract import Driver
from node_agent.durable_files import DirectoryOwnership, make_private_directory
from node_agent.settings import Settings

log = structlog.get_logger("node_agent")


async def end_guests(settings: Settings, choose_driver: Callable[[Settings], Driver]) -> None:
    """Ask every guest to shut down, and kill after `agent_stop_seconds` what is left. The next agent starts them again.

    Raises CannotStart while an agent runs on the state directory, OSError.
    """
    make_private_directory(settings.agent_state_dir)
    ownership = DirectoryOwnership(settings.agent_state_dir)
    try:
        log.info("ending_guests", driver=settings.agent_driver, grace_seconds=settings.agent_stop_seconds)
        await choose_driver(settings).stop(settings.agent_stop_seconds)
        log.info("guests_ended")
    finally:
        ownership.close()
