"""What an operator does with a machine that is not in service: reads why, decides, wipes it, and returns it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from uuid import UUID

from berth.client import AsyncClient, BerthError, Node
from tests.campaign.clients.fleet import changes
from tests.campaign.clients.writes import Write
from tests.campaign.clients.writing import Writer
from tests.campaign.history import History
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


async def return_slots(admin: AsyncClient, node_id: UUID) -> list[str]:
    """Return what is in quarantine on a machine, and the reasons for which it was. Raises BerthError, as servers fail."""
    out = [one async for one in admin.iterate_quarantines(node_id)]
    for one in out:
        await admin.return_slot(node_id, one.slot_index, note=NOTE, without_burn_in=True)
    return [one.reason for one in out]


class MachineSettler:
    """Returns every machine into service at the end of a campaign."""

    def __init__(self, admin: AsyncClient, places: Sequence[Place], history: History) -> None:
        self._admin = admin
        self._places = places
        self._writer = Writer("machine settler", [admin], history, random.Random("machines"))
        self._numbers = iter(range(1_000_000))

    async def settle(self, seconds: float) -> list[str]:
        """Wait until each is in service, off and idle; a sentence for each that is not in time."""
        until = self._writer.give_up_at = time.monotonic() + seconds
        while True:
            left = [sentence for place in self._places if (sentence := await self._step(place)) is not None]
            if not left or time.monotonic() > until:
                return left
            await pause(AGAIN_SECONDS)

    async def _step(self, place: Place) -> str | None:
        """One step towards service, and what is missing; None: nothing."""
        try:
            step = await self._towards_service(place)
        except BerthError as error:
            step = f"{error.code}: {error.detail}"
        return None if step is None else f"{place.name}: {step}"

    async def _towards_service(self, place: Place) -> str | None:
        node = await self._admin.get_node(place.name)
        run = await self._admin.get_deploy_run(node.id)
        if run.outcome is None:
            return f"its {run.kind} is at {run.step}"
        if await repin(self._admin, place, node.id):
            return "its certificate was changed"
        if reasons := await return_slots(self._admin, node.id):
            return f"slots were returned: {reasons[0]}"
        bmc = place.read("bmc")
        if (bmc["power"], bmc["image"]) != ("Off", None):
            return await self._inspect(node)
        if node.state in ("cordoned", "draining"):
            await self._write(changes.uncordon, node.id)
            return f"was {node.state}"
        return None if node.online else "is offline"

    async def _inspect(self, node: Node) -> str:
        """A run ends what a failed end has left on the machine."""
        if node.state == "active":
            await self._write(changes.cordon, node.id)
        await self._admin.run_deploy_system(node.id, kind="inspect")
        return "is on, or has a medium: inspected once more"

    async def _write(self, make: Callable[[str, UUID], Write], node_id: UUID) -> None:
        await self._writer.write(make(f"settle.machine.{next(self._numbers)}", node_id))
