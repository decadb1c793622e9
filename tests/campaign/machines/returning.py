"""What an operator does with a machine that is not in service: reads why, decides, wipes it, and returns it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from uuid import UUID

from berth.client import AsyncClient, BerthError, InvalidState, Node
from tests.campaign.machines.place import CERTIFICATES, Place
from tests.support.waiting import pause

AGAIN_SECONDS = 1.0
CHANGED = "bmc_certificate_changed"
NOTE = "campaign: the finding was read, and the machine wiped since"


async def repin(admin: AsyncClient, place: Place, node_id: UUID) -> bool:
    """Pin the certificate that the BMC has now, if an agent found another one than was pinned; whether that was so.

    The operator compares it with what the maker of the machine has stated: here with the files of the rack.
    """
    bmc = await admin.get_bmc(node_id)
    said = [bmc.silent_because or "", (bmc.task.failure or "") if bmc.task is not None else ""]
    number = 2 if place.read("faults").get("switch") == "certificate_changed" else 1
    if bmc.certificate_sha256 == place.pin(number) or not any(CHANGED in one for one in said):
        return False
    assert place.pin(number) in {place.pin(one) for one in CERTIFICATES}
    await admin.put_bmc(
        node_id, site_id=bmc.site_id, url=bmc.url, certificate_sha256=place.pin(number), username=bmc.username
    )
    return True


async def return_machine(admin: AsyncClient, place: Place, node: Node) -> str | None:
    """One step of an operator towards service; None: the machine is in service, with all its slots free or used.

    Raises BerthError, as servers fail.
    """
    await repin(admin, place, node.id)
    out = [one async for one in admin.iterate_quarantines(node.id)]
    for one in out:
        await admin.return_slot(node.id, one.slot_index, note=NOTE, without_burn_in=True)
    if node.state == "cordoned" and not out:
        await admin.uncordon_node(node.id)
        return "uncordoned"
    if out:
        return f"{len(out)} slots returned: {out[0].reason}"
    if node.state == "active" and node.online:
        return None
    return f"is {node.state}, online {node.online}"


async def settle_machines(admin: AsyncClient, places: Sequence[Place], seconds: float) -> list[str]:
    """Return every machine into service, off and idle; a sentence for each that is not in time."""
    until = time.monotonic() + seconds
    while True:
        left = [sentence for place in places if (sentence := await _is_missing(admin, place)) is not None]
        if not left or time.monotonic() > until:
            return left
        await pause(AGAIN_SECONDS)


async def _is_missing(admin: AsyncClient, place: Place) -> str | None:
    try:
        node = await admin.get_node(place.name)
        run = await admin.get_deploy_run(node.id)
        if run.outcome is None:
            return f"{place.name}: its {run.kind} is at {run.step}"
        step = await return_machine(admin, place, node)
        if step is None and (place.read("bmc")["power"], place.read("bmc")["image"]) != ("Off", None):
            step = await _switch_off(admin, node.id)
    except BerthError as error:
        return f"{place.name}: {error.code}: {error.detail}"
    return None if step is None else f"{place.name}: {step}"


async def _switch_off(admin: AsyncClient, node_id: UUID) -> str:
    """A machine that a failed end has left on, which its quarantine has told: cordon it and end what runs there."""
    try:
        await admin.cordon_node(node_id)
        await admin.run_deploy_system(node_id, kind="inspect")
    except InvalidState as refused:
        return f"is on, and cannot be inspected: {refused.detail}"
    return "is on: inspected once more"
