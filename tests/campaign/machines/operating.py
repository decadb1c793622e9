"""The operator of the rack: rotates passwords, re-inspects, drains and returns machines, and decides about certificates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from berth.client import AsyncClient, BerthError
from tests.campaign.clients.fleet import changes
from tests.campaign.clients.fleet.operator import FleetOperator
from tests.campaign.history import History
from tests.campaign.machines.place import Place
from tests.campaign.machines.returning import repin, return_slots

EMPTY_SECONDS_MAX = 40.0
INSPECT_SECONDS_MAX = 60.0
LOOK_SECONDS = 1.0


class RackOperator(FleetOperator):
    """One machine after the other."""

    def __init__(self, admins: Sequence[AsyncClient], places: Sequence[Place], history: History) -> None:
        super().__init__("rack operator", admins, history)
        self._places = places

    async def _change(self) -> None:
        await self.pause(self._chance.uniform(0.5, 3.0))
        for place in self._places:
            await self._try("repin", lambda client, place=place: repin(client, place, self._node_id(place)))  # type: ignore[misc]
        place = self._chance.choice(self._places)
        act = self._chance.choice((self._rotate, self._describe, self._inspect_again, self._drain, self._return))
        await act(place)

    def _node_id(self, place: Place) -> UUID:
        return self._history.nodes[place.name]

    async def _try(self, what: str, act: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """Ask once, and note how that ended: refused while something works on the machine, mostly."""
        await self.read_once(what, act)

    async def _rotate(self, place: Place) -> None:
        await self._try("rotate", lambda client: client.rotate_bmc_password(self._node_id(place)))

    async def _describe(self, place: Place) -> None:
        await self._try("describe", lambda client: client.describe_bmc(self._node_id(place)))

    async def _return(self, place: Place) -> None:
        await self._try("return", lambda client: return_slots(client, self._node_id(place)))
        await self._uncordon(place)

    async def _inspect_again(self, place: Place) -> None:
        """Cordon the machine; inspect it if it is empty, and stop the run at times; uncordon it."""
        node_id = self._node_id(place)
        if not await self.done(lambda key: changes.cordon(key, node_id)):
            return
        await self._try("inspect", lambda client: client.run_deploy_system(node_id))
        if self._chance.random() < 0.25:
            await self.pause(self._chance.uniform(0.0, 8.0))
            await self._try("stop run", lambda client: client.stop_deploy_run(node_id))
        await self._until(lambda client: _has_no_run(client, node_id), INSPECT_SECONDS_MAX)
        await self._uncordon(place)

    async def _drain(self, place: Place) -> None:
        """Empty the machine by a deadline, and put it into service again."""
        node_id, deadline = self._node_id(place), datetime.now(UTC) + timedelta(seconds=10)
        at_deadline = self._chance.choice(("stay", "release"))
        if await self.done(lambda key: changes.drain(key, node_id, deadline, at_deadline)):  # type: ignore[arg-type]
            await self._until(lambda client: _is_empty(client, node_id), EMPTY_SECONDS_MAX)
        await self._uncordon(place)

    async def _uncordon(self, place: Place) -> None:
        await self.act(lambda key: changes.uncordon(key, self._node_id(place)))

    async def _until(self, is_so: Callable[[AsyncClient], Awaitable[bool]], seconds: float) -> None:
        """Wait until it is so, or the time is up, or the campaign ends."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            try:
                if await self._read("rack", is_so) or self._stopping.is_set():
                    return
            except (BerthError, TimeoutError):
                pass
            await self.pause(LOOK_SECONDS)

    async def _finish(self) -> None:
        for place in self._places:
            await self._uncordon(place)


async def _has_no_run(client: AsyncClient, node_id: UUID) -> bool:
    return (await client.get_deploy_run(node_id)).outcome is not None


async def _is_empty(client: AsyncClient, node_id: UUID) -> bool:
    node = await client.get_node(node_id)
    return node.state != "draining" or node.free_slots == node.slot_count
