"""A machine of a site in a maintenance window that updates its firmware, and a server that has the image."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node_agent.wire.firmware import FirmwareOrder
from orchestrator.maintenance.states import TaskKind, WindowTaskState
from orchestrator.maintenance.window_tasks import WantedTask
from orchestrator.nodes.maintenance_tasks.queries import find_open_tasks
from orchestrator.sites.commands.firmware_updates import advance_firmware_update
from orchestrator.sites.queries import find_open_updates
from tests.media.media_files import common_medium
from tests.nodes.maintenance_tasks.running import TASK, begun_window
from tests.sites.rotations import Agent, Machine, Rotations, rotations

IMAGE = b"firmware" * 1000
SHA256 = hashlib.sha256(IMAGE).hexdigest()
SECONDS = 1_200


@dataclass
class ImageServer:
    """Answers every request with `answer`; lists the paths."""

    answer: bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + IMAGE
    paths: list[str] = field(default_factory=list)
    port: int = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[ImageServer]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            self.paths.append(head.split(b" ", 2)[1].decode())
            writer.write(self.answer)
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


@dataclass
class Update:
    """One machine, its window and its image."""

    stage: Rotations
    machine: Machine
    images: ImageServer
    window: uuid.UUID = field(default_factory=uuid.uuid4)

    @property
    def node(self) -> uuid.UUID:
        return self.machine.node_id

    def order(self, **changes: Any) -> FirmwareOrder:
        made = {
            "image_url": f"http://127.0.0.1:{self.images.port}/vendor/bmc-2.00.bin", "sha256": SHA256, "targets": ["BMC"],
            "version": "2.00", **changes,
        }  # fmt: skip
        return FirmwareOrder.model_validate(made)

    def task(self, seconds: int = SECONDS, **changes: Any) -> WantedTask:
        return WantedTask(TaskKind.FIRMWARE, None, seconds, self.order(**changes))

    async def begin(self, **changes: Any) -> None:
        """The window begins, and the worker requests the task of the BMC."""
        self.window = await begun_window(self.stage.api, self.node, self.task(**changes))
        assert await find_open_updates(self.stage.worker, 10) == [(self.window, self.node)]
        assert await find_open_tasks(self.stage.worker, 10) == [], "no node's agent performs it"
        assert await self.advance() is WindowTaskState.RUNNING
        assert await find_open_updates(self.stage.worker, 10) == []
        self.machine.task_id = self.row("select task_id from maintenance_tasks where window_id = %s", self.window)[0]

    async def advance(self) -> WindowTaskState | None:
        return await advance_firmware_update(self.stage.worker, self.window, self.node)

    async def perform(self, agent: Agent | None = None) -> None:
        agent = agent or self.stage.first
        answer = await self.stage.perform(agent, self.machine, await self.stage.take(agent, self.machine), nothing)
        assert answer.applied

    async def whole(self, **changes: Any) -> WindowTaskState | None:
        """From the window to the verdict."""
        await self.begin(**changes)
        await self.perform()
        assert await find_open_updates(self.stage.worker, 10) == [(self.window, self.node)]
        return await self.advance()

    def row(self, statement: str, *values: Any) -> Any:
        return self.stage.fleet.connection.execute(statement, values).fetchone()

    def ended(self) -> tuple[str, str | None, str | None]:
        """State, code and evidence of the task of the window."""
        row = self.row(f"select state, failure, evidence from ({TASK}) m", self.window)
        return row[0], row[1] and row[1].partition(":")[0], row[2]

    def quarantined(self) -> int:
        return int(
            self.row("select count(*) from slot_quarantines where node_id = %s and returned_at is null", self.node)[0]
        )

    def sent(self) -> int:
        """How often the BMC received the command."""
        return sum(line.endswith("UpdateService.SimpleUpdate") for line in self.machine.service.requests)

    def served(self) -> int:
        return sum(len(agent.media._publications) for agent in (self.stage.first, self.stage.second))


async def nothing() -> None:
    """A step of an agent that goes on."""


Scene = Callable[[Update], Coroutine[Any, Any, None]]


async def another(stage: Rotations, images: ImageServer) -> Update:
    """One more machine of the site, which is on, and whose BMC has tasks."""
    machine = await stage.machine()
    machine.service.machine.power = "On"
    machine.service.machine.options.tasks = True
    return Update(stage, machine, images)


def play(url: str, directory: Path, scene: Scene) -> None:
    """Play a scene with a machine of a site whose agents serve media."""

    async def whole() -> None:
        medium = directory / "deploy.iso"
        common_medium(medium)
        async with ImageServer().serving() as images, rotations(url, medium) as stage:
            await scene(await another(stage, images))

    asyncio.run(whole())
