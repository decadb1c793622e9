"""Firmware inventory and SimpleUpdate."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from berth.process.json_objects import JsonObject
from node_agent.redfish.contract import FirmwareItem, UpdateOutcome
from node_agent.redfish.machine import action_path, allowed_values, check_allowed
from node_agent.redfish.problems import NotSupported, ValueNotAllowed
from node_agent.redfish.session import Session
from node_agent.redfish.tasks import finished
from node_agent.redfish.wire import Answer

ITEMS_MAX: Final = 500
TARGETS_MAX: Final = 64
UPDATE: Final = "UpdateService.SimpleUpdate"


async def inventory(session: Session) -> tuple[FirmwareItem, ...]:
    """The firmware inventory. Raises NotSupported if there is none."""
    service = await session.get((await session.root()).link("UpdateService"), "the update service")
    members, _ = await session.members(service.link("FirmwareInventory"), "the firmware inventory", ITEMS_MAX)
    return tuple(
        FirmwareItem(
            item.text("Id"), item.text("Name"), item.text("Version"), item.flag("Updateable") is True, item.path
        )
        for item in members
    )


async def update(session: Session, image_url: str, targets: tuple[str, ...]) -> UpdateOutcome:
    """See `Bmc.update_firmware`."""
    answer = await send_update(session, image_url, targets)
    ended = await finished(session, answer, session.wire.deadlines.task_seconds)
    return UpdateOutcome(ended.state, ended.messages)


async def send_update(session: Session, image_url: str, targets: tuple[str, ...]) -> Answer:
    """Send SimpleUpdate once; its answer. Raises NotSupported, ValueNotAllowed, and what a command raises."""
    scheme = urlsplit(image_url).scheme
    if scheme not in ("http", "https") or not image_url.isascii() or len(targets) > TARGETS_MAX:
        raise ValueNotAllowed(f"the image must be an http:// or https:// URL, with at most {TARGETS_MAX} targets")
    service = await session.get((await session.root()).link("UpdateService"), "the update service")
    path = action_path(session, service, UPDATE)
    if path is None:
        raise NotSupported("the update service offers no SimpleUpdate")
    body: JsonObject = {"ImageURI": image_url}
    if protocols := await allowed_values(session, service, UPDATE, "TransferProtocol"):
        check_allowed(scheme.upper(), protocols, "the transfer protocol")
        body["TransferProtocol"] = scheme.upper()
    if targets:
        body["Targets"] = [session.wire.path_of(target, "a target of the update") for target in targets]
    return await session.post(path, body, session.wire.deadlines.insert_seconds)
