"""Restart of the BMC: one command, and a restart that was seen.

Nothing is sent again after the command. What answers afterwards must show the pinned certificate before it gets credentials.
"""

from __future__ import annotations

from typing import Final

from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine, action_path, allowed_values, check_allowed
from node_agent.redfish.problems import (
    BmcProblem,
    Busy,
    CertificateChanged,
    CredentialsRefused,
    NotBack,
    NotSupported,
    OutcomeUnknown,
    Unreachable,
    WithoutEffect,
)

RESET: Final = "Manager.Reset"
KINDS: Final = ("GracefulRestart", "ForceRestart")
"""In this order; others are never sent. `ResetToDefaults` is another action."""
LOGINS_REFUSED_MAX: Final = 2
"""A BMC may refuse logins while it starts; more refused ones lock an account."""


async def reset_bmc(machine: Machine) -> None:
    """See `Bmc.reset_bmc`. Another `LastResetTime` proves a restart; of a BMC that states none, a time without answers does."""
    manager = await machine.manager(await machine.system())
    unanswered = await _send(machine, manager)
    session = machine.session
    clock, deadlines = session.wire.clock, session.wire.deadlines
    until, gone, refused = clock.now() + deadlines.restart_seconds, False, 0
    is_back = False
    while clock.now() < until:
        await clock.sleep(deadlines.poll_seconds if not refused else deadlines.queue_seconds)
        try:
            now = await session.get(manager.path, "the manager", attempts=1)
        except (Unreachable, Busy):
            gone, is_back = True, False
            continue
        except CertificateChanged:
            raise
        except CredentialsRefused as error:
            refused += 1
            if refused >= LOGINS_REFUSED_MAX:
                raise NotBack(f"after its reset the BMC refuses the credentials of before: {error.detail}") from error
            continue
        except BmcProblem:
            continue
        is_back = True
        if _is_restarted(manager, now, gone):
            return
    if gone and not is_back:
        raise NotBack(f"after its reset the BMC was not seen to be back within {deadlines.restart_seconds:g} s")
    raise unanswered or WithoutEffect("the BMC reported success, and was not seen to restart")


async def _send(machine: Machine, manager: Document) -> OutcomeUnknown | None:
    """Send the reset once; why its answer is missing. Raises NotSupported, ValueNotAllowed, and what a refusal raises."""
    session = machine.session
    path = action_path(session, manager, RESET)
    if path is None:
        raise NotSupported("the manager offers no reset")
    allowed = await allowed_values(session, manager, RESET, "ResetType")
    name = next((kind for kind in KINDS if kind in allowed), KINDS[-1])
    check_allowed(name, allowed, "the manager's reset type")
    try:
        await session.post(path, {"ResetType": name})
    except OutcomeUnknown as unknown:
        return unknown  # many BMCs end the connection with themselves
    return None


def _is_restarted(before: Document, now: Document, gone: bool) -> bool:
    was, is_now = before.text("LastResetTime"), now.text("LastResetTime")
    return was != is_now if was and is_now else gone
