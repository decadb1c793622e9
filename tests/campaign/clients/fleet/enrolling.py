"""Operators of single nodes: one adds nodes and retires them again, one revokes the certificates of nodes in use."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal
from uuid import UUID

from berth.client import AsyncClient, BerthError
from berth.client.node_models import Node
from berth.local.fleet import PlannedNode
from berth.local.secret_files import write_secret
from tests.campaign.clients.fleet import changes
from tests.campaign.clients.fleet.certificates import StolenCertificate
from tests.campaign.clients.fleet.operator import FleetOperator
from tests.campaign.clients.load import REGIONS
from tests.campaign.clients.writes import Write
from tests.campaign.history import History, Outcome
from tests.campaign.stage import Stage
from tests.support.waiting import pause

ONLINE_SECONDS_MAX = 60.0
DRAINED_SECONDS_MAX = 30.0
SERVED_SECONDS = (0.5, 3.0)
DEADLINE_SECONDS = (3, 5)
LOOK_SECONDS = 0.3
REVOKED_EVERY_SECONDS = (4.0, 12.0)
LEFT_SECONDS = 2.0
"""A retired node's agent goes on for so long."""

AtDeadline = Literal["stay", "release"]


class _WithAgents(FleetOperator):
    def __init__(self, name: str, admins: Sequence[AsyncClient], stage: Stage, history: History) -> None:
        super().__init__(name, admins, history)
        self._stage = stage

    async def _token(self, node_id: UUID, name: str) -> None:
        """Write a token that the node's agent has not used into the file where it looks for one."""
        hardware_id = PlannedNode(name, "", "gpu_slice").hardware_id
        key = self.key()
        token = await self.read(
            "token", lambda client: client.create_enrolment_token(node_id, hardware_id=hardware_id, idempotency_key=key)
        )
        write_secret(self._stage.token_file(name), token.token + "\n")

    def _copy(self, node_id: UUID, name: str) -> StolenCertificate | None:
        directory = self._stage.agent_directories.get(name)
        if directory is None:
            return None
        authority, endpoints = self._stage.authority, self._stage.endpoints
        return StolenCertificate.copy(node_id, directory, authority.ca_certificate, endpoints.node_api_url)

    async def _until(self, node_id: UUID, seconds: float, epoch: int, state: str | None = None) -> Node | None:
        """The node once it is online in this epoch or a later one, or is in this state; None if that takes too long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stopping.is_set():
            node = await self.read("node", lambda client: client.get_node(node_id))
            if node.epoch >= epoch and (node.online if state is None else (node.drained or node.state == state)):
                return node
            await self.pause(LOOK_SECONDS)
        return None


class NodeOperator(_WithAgents):
    """Takes nodes through their states: registered, enrolled, cordoned, drained, retired; one after the other."""

    def __init__(self, admins: Sequence[AsyncClient], stage: Stage, history: History) -> None:
        super().__init__("nodes", admins, stage, history)
        self._made = 0
        self._present: UUID | None = None
        self._out: set[int] = set()

    async def _change(self) -> None:
        self._made += 1
        region = self._chance.choice(REGIONS)
        name = f"{region}-slice-{90 + self._made}"
        node = await self._register(name, region)
        if node is None:
            return
        self._present = node.id
        await self.pause(self._chance.uniform(0.0, 1.0))
        await self._token(node.id, name)
        await asyncio.to_thread(self._stage.add_agent, PlannedNode(name, region, "gpu_slice"))
        if await self._until(node.id, ONLINE_SECONDS_MAX, epoch=1) is not None:
            await self._serve(node.id)
            if self._made % 2 == 0:  # the first one is retired soon, so that a short campaign has that too
                await self._slots(node.id)
            if not self._stopping.is_set() and await self._drain(node.id):
                await self._retire(node.id, name)
        await self._finish()

    async def _register(self, name: str, region: str) -> Node | None:
        """Registered, and known to the history; placed on by nothing, since its agent has not enrolled."""
        made = await self.act(lambda key: changes.create_node(key, name, region))
        if made.outcome is not Outcome.DONE:
            return None
        id_ = UUID(str(json.loads(made.answer)["id"]))
        node = await self.read("node", lambda client: client.get_node(id_))
        self._history.nodes[name] = id_
        if node.slots:
            self._history.fleet.first_units[id_] = node.slots[0].unit
        return node

    async def _serve(self, node_id: UUID) -> None:
        """In service, out of it, and in it again."""
        await self.pause(self._chance.uniform(*SERVED_SECONDS))
        await self.done(lambda key: changes.cordon(key, node_id), changes.cordon("", self._nowhere()))
        await self.pause(self._chance.uniform(0.2, 2.0))
        await self.done(lambda key: changes.uncordon(key, node_id), changes.uncordon("", self._nowhere()))
        await self.pause(self._chance.uniform(*SERVED_SECONDS))

    async def _slots(self, node_id: UUID) -> None:
        """Some slots, or all, in quarantine for a moment."""
        slots = range(changes.SLOTS) if self._chance.random() < 0.3 else self._chance.sample(range(changes.SLOTS), 2)
        for slot in slots:
            self._out.add(slot)
            await self.done(partial(changes.quarantine, node_id=node_id, slot=slot))
        await self.pause(self._chance.uniform(0.5, 2.0))
        await self._return_slots(node_id)

    async def _return_slots(self, node_id: UUID) -> None:
        for slot in sorted(self._out):
            told = await self.act(partial(changes.return_slot, node_id=node_id, slot=slot))
            if told.outcome is Outcome.DONE or told.code == "invalid_state":
                self._out.discard(slot)

    async def _drain(self, node_id: UUID) -> bool:
        """Whether the node is empty in time; at the deadline allocations stay, and are released by another order."""
        seconds = self._chance.choice(DEADLINE_SECONDS)

        def order(key: str, at_deadline: AtDeadline) -> Write:
            """With another deadline for each key: one that has passed before the write was done is refused for ever."""
            return changes.drain(key, node_id, datetime.now(UTC) + timedelta(seconds=seconds), at_deadline)

        policy: AtDeadline = "stay" if self._chance.random() < 0.5 else "release"
        if not await self.done(partial(order, at_deadline=policy)):
            return False
        if self._chance.random() < 0.3:
            await self.done(lambda key: changes.cordon(key, node_id))  # a draining node stays draining
        if self._chance.random() < 0.3:
            await self.pause(1.0)
            await self.done(lambda key: changes.retire(key, self._nowhere()))  # refused: there is none
        if policy == "stay":
            await self.pause(seconds)
            await self.done(partial(order, at_deadline="release"))
        return await self._until(node_id, DRAINED_SECONDS_MAX, epoch=1, state="drained") is not None

    async def _retire(self, node_id: UUID, name: str) -> None:
        """Retire it, while its agent goes on for a while with a certificate that is refused."""
        stolen = self._copy(node_id, name)
        if stolen is not None:
            await stolen.use(self._history)
        self._stage.release_agent(name)
        if not await self.done(lambda key: changes.retire(key, node_id)):
            self._stage.take_agent_back(name)
            return
        self._present = None
        if stolen is not None:
            await stolen.use(self._history, to_renew=True)
        await self.pause(LEFT_SECONDS)

    async def _finish(self) -> None:
        """A node that is not retired serves in the end."""
        if self._present is None:
            return
        node_id = self._present
        while self._out and self.has_time:
            await self._return_slots(node_id)
        node = await self.read("node", lambda client: client.get_node(node_id))
        if node.state in ("cordoned", "draining"):
            while self.has_time and not await self.done(lambda key: changes.uncordon(key, node_id)):
                await pause(LOOK_SECONDS)
        self._present = None

    def _nowhere(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128))


class CertificateOperator(_WithAgents):
    """Revokes the certificates of one node after the other, which enrols again with a new token."""

    def __init__(
        self, admins: Sequence[AsyncClient], stage: Stage, nodes: Mapping[str, UUID], history: History
    ) -> None:
        super().__init__("certificates", admins, stage, history)
        self._nodes = sorted(nodes.items())

    async def _change(self) -> None:
        await self.pause(self._chance.uniform(*REVOKED_EVERY_SECONDS))
        name, node_id = self._chance.choice(self._nodes)
        stolen = self._copy(node_id, name)
        if stolen is None or self._stopping.is_set():
            return
        await stolen.use(self._history)
        try:
            before = await self.read("node", lambda client: client.get_node(node_id))
            await self._token(node_id, name)
        except (BerthError, TimeoutError):
            return
        if not await self.done(lambda key: changes.revoke(key, node_id)):
            return
        await stolen.use(self._history, to_renew=True)
        await self._until(node_id, ONLINE_SECONDS_MAX, epoch=before.epoch + 1)
        await stolen.use(self._history, to_renew=True)

    async def _finish(self) -> None:
        """A node that was to enrol does so by itself: it has its token."""
