"""An operator who takes nodes out of service for a moment: what is to start there has to go elsewhere, or fail with a reason."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID

from berth.client import AsyncClient, BerthError, OperationInProgress
from tests.campaign.history import History
from tests.campaign.windows import next_step

EVERY_SECONDS = (1.0, 6.0)
OUT_SECONDS = (1.0, 5.0)
BEFORE_SECONDS = 0.3
"""Half of the time a node goes so long before windows begin on it."""
AGAIN_SECONDS = 0.5


class Operator:
    """Cordons one node after the other, and leaves none cordoned."""

    def __init__(self, admins: Sequence[AsyncClient], nodes: Sequence[UUID], history: History) -> None:
        self._admins = admins
        self._nodes = nodes
        self._history = history
        self._chance = random.Random(f"operating:{history.seed}")

    def give_up_at(self, at: float) -> None:
        """A node is put back however long that takes, so this changes nothing."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Return when told to stop and every node is back."""
        for number in range(1_000_000):
            await _pause(stopping, self._chance.uniform(*EVERY_SECONDS))
            if self._chance.random() < 0.5:
                now = datetime.now(UTC)
                await _pause(stopping, (next_step(now, 0) - now).total_seconds() - BEFORE_SECONDS)
            if stopping.is_set():
                return
            node, key = self._chance.choice(self._nodes), f"{self._history.seed}.cordon.{number}"
            if await self._cordon(node, key):
                await _pause(stopping, self._chance.uniform(*OUT_SECONDS))
            await self._put_back(node)

    async def _cordon(self, node: UUID, key: str) -> bool:
        """Whether it was done at once; if not, what is still on its way is fenced off, or done before this returns."""
        try:
            await self._chance.choice(self._admins).cordon_node(node, idempotency_key=key)
        except BerthError as error:
            self._history.count_read(f"cordon {error.code}")
            await self._surely("operation", lambda client: self._ask(client, key))
            return False
        self._history.count_read("cordon ok")
        return True

    async def _put_back(self, node: UUID) -> None:
        await self._surely("uncordon", lambda client: client.uncordon_node(node))

    @staticmethod
    async def _ask(client: AsyncClient, key: str) -> None:
        told = await client.get_operation(key)
        if told.state == "pending":
            raise OperationInProgress("it is being cordoned", code="operation_in_progress")

    async def _surely(self, what: str, act: Callable[[AsyncClient], Awaitable[object]]) -> None:
        """However long it takes: servers come back."""
        while True:
            try:
                await act(self._chance.choice(self._admins))
            except BerthError as error:
                self._history.count_read(f"{what} {error.code}")
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                return


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), max(0.0, seconds))
