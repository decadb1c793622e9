"""An operator takes nodes and seats out of service for a moment: what is to start there has to go elsewhere, or fail with a
reason; what is held stays held.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from berth.client import AsyncClient, BerthError, OperationInProgress
from tests.campaign.clients.windows import next_step
from tests.campaign.history import History
from tests.support.waiting import pause

EVERY_SECONDS = (1.0, 6.0)
OUT_SECONDS = (1.0, 5.0)
SEATS_SHARE = 0.2
BEFORE_SECONDS = 0.3
"""Half of the time it goes so long before windows begin."""
AGAIN_SECONDS = 0.5


class Operator:
    """Takes one thing after the other out of service, and leaves none there."""

    def __init__(
        self, admins: Sequence[AsyncClient], nodes: Sequence[UUID], seats: Sequence[str], history: History
    ) -> None:
        self._admins = admins
        self._nodes = nodes
        self._seats = seats
        self._history = history
        self._chance = random.Random(f"operating:{history.seed}")

    def give_up_at(self, at: float) -> None:
        """What is out is put back however long that takes, so this changes nothing."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when stopped and everything is back in service."""
        for number in range(1_000_000):
            await pause(self._chance.uniform(*EVERY_SECONDS), stopping)
            if self._chance.random() < 0.5:
                now = datetime.now(UTC)
                await pause((next_step(now, 0) - now).total_seconds() - BEFORE_SECONDS, stopping)
            if stopping.is_set():
                return
            key = f"{self._history.seed}.out.{number}"
            if self._chance.random() < SEATS_SHARE:
                await self._seat(stopping, self._chance.choice(self._seats), key)
            else:
                await self._node(stopping, self._chance.choice(self._nodes), key)

    async def _node(self, stopping: asyncio.Event, node: UUID, key: str) -> None:
        if await self._take_out("cordon", key, lambda client: client.cordon_node(node, idempotency_key=key)):
            await pause(self._chance.uniform(*OUT_SECONDS), stopping)
        await self._surely("uncordon", lambda client: client.uncordon_node(node))

    async def _seat(self, stopping: asyncio.Event, seat: str, key: str) -> None:
        if await self._take_out(
            "seat out",
            key,
            lambda client: client.take_resource_out_of_service(seat, reason="campaign", idempotency_key=key),
        ):
            await pause(self._chance.uniform(*OUT_SECONDS), stopping)
        await self._surely("seat in", lambda client: client.put_resource_in_service(seat))

    async def _take_out(self, what: str, key: str, act: Callable[[AsyncClient], Awaitable[object]]) -> bool:
        """Whether it was done at once; if not, what is still on its way is fenced off, or done before this returns."""
        try:
            await act(self._chance.choice(self._admins))
        except BerthError as error:
            self._history.count_read(f"{what} {error.code}")
            await self._surely("operation", lambda client: _ask(client, key))
            return False
        self._history.count_read(f"{what} ok")
        return True

    async def _surely(self, what: str, act: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """However long it takes: servers come back."""
        while True:
            try:
                await act(self._chance.choice(self._admins))
            except BerthError as error:
                self._history.count_read(f"{what} {error.code}")
                await pause(AGAIN_SECONDS)
            else:
                return


async def _ask(client: AsyncClient, key: str) -> None:
    told = await client.get_operation(key)
    if told.state == "pending":
        raise OperationInProgress("it is still being done", code="operation_in_progress")
