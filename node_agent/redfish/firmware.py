"""Firmware inventory, SimpleUpdate and restart of the BMC."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

from node_agent.redfish.contract import FirmwareItem, UpdateOutcome
from node_agent.redfish.machine import Machine, action_path, allowed_values, check_allowed
from node_agent.redfish.problems import (
    BmcProblem,
    Busy,
    NotSupported,
    OutcomeUnknown,
    Unreachable,
    ValueNotAllowed,
    WithoutEffect,
)
from node_agent.redfish.session import Session
from node_agent.redfish.tasks import finished

ITEMS_MAX: Final = 500
TARGETS_MAX: Final = 64
UPDATE: Final = "UpdateService.SimpleUpdate"
RESET: Final = "Manager.Reset"


async def inventory(session: Session) -> tuple[FirmwareItem, ...]:
    """The firmware inventory. Raises NotSupported if there is none."""
    service = await session.get((await session.root()).link("UpdateService"), "the update service")
    members, _ = await session.members(service.link("FirmwareInventory"), "the firmware inventory", ITEMS_MAX)
    return tuple(
        FirmwareItem(item.text("Id"), item.text("Name"), item.text("Version"), item.flag("Updateable") is True)
        for item in members
    )


async def update(session: Session, image_url: str, targets: tuple[str, ...]) -> UpdateOutcome:
    """See `Bmc.update_firmware`."""
    scheme = urlsplit(image_url).scheme
    if scheme not in ("http", "https") or not image_url.isascii() or len(targets) > TARGETS_MAX:
        raise ValueNotAllowed(f"the image must be an http:// or https:// URL, with at most {TARGETS_MAX} targets")
    service = await session.get((await session.root()).link("UpdateService"), "the update service")
    path = action_path(session, service, UPDATE)
    if path is None:
        raise NotSupported("the update service offers no SimpleUpdate")
    body: dict[str, Any] = {"ImageURI": image_url}
    if protocols := await allowed_values(session, service, UPDATE, "TransferProtocol"):
        check_allowed(scheme.upper(), protocols, "the transfer protocol")
        body["TransferProtocol"] = scheme.upper()
    if targets:
        body["Targets"] = [session.wire.path_of(target, "a target of the update") for target in targets]
    deadlines = session.wire.deadlines
    state, ids = await finished(
        session, await session.post(path, body, deadlines.insert_seconds), deadlines.task_seconds
    )
    return UpdateOutcome(state, ids)


async def reset_bmc(machine: Machine) -> None:
    """See `Bmc.reset_bmc`. A restart is proven by a time without answers, or by another LastResetTime."""
    session = machine.session
    manager = await machine.manager(await machine.system())
    path = action_path(session, manager, RESET)
    if path is None:
        raise NotSupported("the manager offers no reset")
    allowed = await allowed_values(session, manager, RESET, "ResetType")
    name = "GracefulRestart" if "GracefulRestart" in allowed else "ForceRestart"
    check_allowed(name, allowed, "the manager's reset type")
    unanswered: OutcomeUnknown | None = None
    try:
        await session.post(path, {"ResetType": name})
    except OutcomeUnknown as unknown:
        unanswered = unknown  # many BMCs end the connection with themselves
    clock, deadlines = session.wire.clock, session.wire.deadlines
    until, gone = clock.now() + deadlines.settle_seconds, False
    while clock.now() < until:
        await clock.sleep(deadlines.poll_seconds)
        try:
            now = await session.get(manager.path, "the manager", attempts=1)
        except (Unreachable, Busy):
            gone = True
            continue
        except BmcProblem:
            continue
        if gone or now.text("LastResetTime") != manager.text("LastResetTime"):
            return
    if gone:
        raise Unreachable("the BMC was reset and has not answered since")
    raise unanswered or WithoutEffect("the BMC reported success, and was not seen to restart")
