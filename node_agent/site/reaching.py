"""Proves that the system of a machine answers: by SSH, with the host key that its deploy system has made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from node_agent.drivers.ssh import NotReady, check_ssh
from node_agent.site.problems import NotDone
from node_agent.wire.sites import SshServer

ATTEMPT_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 2.0
MARGIN_SECONDS: Final = 15.0
"""Before the deadline of the task, so that the reason is reported."""

Check = Callable[[str, int, str, float], Awaitable[str]]


async def reach(server: SshServer, seconds_max: float, guard: Callable[[], None], check: Check = check_ssh) -> None:
    """Return once the server has proven that it holds the host key. Raises NotDone at the deadline, and what `guard` raises.

    A server with another host key is asked again: it may be the system that the machine had before.
    """
    why = "no attempt was made"
    try:
        async with asyncio.timeout(max(0.0, seconds_max - MARGIN_SECONDS)):
            while True:
                guard()
                try:
                    await check(str(server.host), server.port, server.host_key, ATTEMPT_SECONDS)
                    return
                except NotReady as error:
                    why = str(error)
                await asyncio.sleep(PAUSE_SECONDS)
    except TimeoutError:
        raise NotDone("not_reached", f"no SSH server with the expected host key answered in time; {why}") from None
