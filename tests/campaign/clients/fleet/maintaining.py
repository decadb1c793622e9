"""Operators that plan maintenance over units that tenants hold, and that take single slots of nodes in use out of service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from berth.client import AsyncClient
from tests.campaign.clients.fleet import changes
from tests.campaign.clients.fleet.operator import AGAIN_SECONDS, FleetOperator
from tests.campaign.history import History, Outcome
from tests.support.waiting import pause

AHEAD_SECONDS = (0.0, 1.0, 2.0, 4.0)
LONG_SECONDS = (2.0, 4.0, 6.0)
EVERY_SECONDS = (0.5, 3.0)
OUT_SECONDS = (0.5, 4.0)


class MaintenanceOperator(FleetOperator):
    """Plans, commits, cancels and ends windows, one after the other, on nodes and on slots."""

    def __init__(self, admins: Sequence[AsyncClient], nodes: Sequence[UUID], history: History) -> None:
        super().__init__("maintenance", admins, history)
        self._nodes = nodes
        self._open: list[UUID] = []

    async def _change(self) -> None:
        await self.pause(self._chance.uniform(*EVERY_SECONDS))
        if self._stopping.is_set():
            return
        window_id = await self._commit()
        if window_id is None:
            return
        self._open.append(window_id)
        fate = self._chance.random()
        if fate < 0.6:
            # Close to its start, or to its end: whichever is first decides which of the two is refused.
            await self.pause(self._chance.uniform(0.0, 4.0))
            await self._close(window_id)
        elif fate < 0.8:
            await self.pause(max(LONG_SECONDS))

    async def _commit(self) -> UUID | None:
        resources = self._resources()
        starts_at = datetime.now(UTC) + timedelta(seconds=self._chance.choice(AHEAD_SECONDS))
        ends_at = starts_at + timedelta(seconds=self._chance.choice(LONG_SECONDS))
        if self._chance.random() < 0.5:
            await self.read_once(
                "plan", lambda c: c.plan_maintenance(resources=resources, starts_at=starts_at, ends_at=ends_at)
            )
        allocations = "refuse" if self._chance.random() < 0.2 else "notify"
        reservations = "refuse" if self._chance.random() < 0.2 else "move"
        made = await self.write(
            changes.commit_window(self.key(), resources, starts_at, ends_at, allocations, reservations)  # type: ignore[arg-type]
        )
        return UUID(str(json.loads(made.answer)["window_id"])) if made.outcome is Outcome.DONE else None

    async def _close(self, window_id: UUID) -> None:
        """Cancel it before its start, or end it before its end; each may be refused."""
        verbs = [changes.cancel_window, changes.end_window]
        for verb in verbs if self._chance.random() < 0.5 else verbs[::-1]:
            if await self.done(partial(verb, window_id=window_id)):
                return

    async def _finish(self) -> None:
        """What has not ended is ended: in the end every unit is free."""
        for window_id in self._open:
            await self._close(window_id)

    def _resources(self) -> list[str]:
        node = self._chance.choice(self._nodes)
        if self._chance.random() < 0.4:
            return [f"node:{node}"]
        slots = self._chance.sample(range(changes.SLOTS), self._chance.choice((1, 2, 3)))
        return [f"slot:{node}:{slot}" for slot in sorted(slots)]


class SlotOperator(FleetOperator):
    """Takes single slots of nodes in use into quarantine, and returns them."""

    def __init__(self, admins: Sequence[AsyncClient], nodes: Sequence[UUID], history: History) -> None:
        super().__init__("slots", admins, history)
        self._nodes = nodes
        self._out: set[tuple[UUID, int]] = set()

    async def _change(self) -> None:
        await self.pause(self._chance.uniform(*EVERY_SECONDS))
        node, slot = self._chance.choice(self._nodes), self._chance.randrange(changes.SLOTS)
        other = changes.quarantine("", UUID(int=self._chance.getrandbits(128)), slot)
        self._out.add((node, slot))
        await self.done(partial(changes.quarantine, node_id=node, slot=slot), other)
        await self.pause(self._chance.uniform(*OUT_SECONDS))
        await self._return()

    async def _return(self) -> None:
        for node, slot in sorted(self._out):
            told = await self.act(partial(changes.return_slot, node_id=node, slot=slot))
            if told.outcome is Outcome.DONE or told.code == "invalid_state":
                self._out.discard((node, slot))

    async def _finish(self) -> None:
        while self._out and self.has_time:
            await self._return()
            await pause(AGAIN_SECONDS)
