"""The answers to an enrolment and a renewal never move the agent's clock back, however long they were held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from node_agent.clock import ServerClock
from node_agent.connection import NodeConnection
from node_agent.durable_files import make_private_directory
from node_agent.enrolment import Enrolment
from node_agent.identity import IdentityStore
from node_agent.key_sets import KeySets
from node_agent.metrics import AgentMetrics
from node_agent.settings import Settings
from tests.node_agent.control_plane import ControlPlane

HELD_SECONDS = 30.0


class Node:
    """The enrolment of an agent whose monotonic clock the test moves."""

    def __init__(self, plane: ControlPlane, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.plane, self.seconds = plane, 0.0
        self.held_seconds = 0.0
        for module in ("connection", "enrolment"):
            patch.setattr(f"node_agent.{module}.boot_seconds", lambda: self.seconds)
        make_private_directory(directory)
        self.settings = Settings(
            api_url=plane.api_url, root_keys_file=plane.root_keys_file, agent_state_dir=directory,
            enrolment_http_allowed=True, enrolment_token=SecretStr(plane.new_token()),
        )  # fmt: skip
        metrics, store = AgentMetrics(), IdentityStore(directory)
        self.clock = ServerClock(lambda: self.seconds)
        self.connection = NodeConnection(store, self.clock, metrics, f"https://127.0.0.1:{plane.node_port}")
        key_sets = KeySets(directory, plane.root_keys_file, metrics)
        self.enrolment = Enrolment(self.settings, store, key_sets, self.clock, self.connection, None)
        credentials = plane._credentials

        def held(csr_pem: str) -> Any:
            stamped = credentials(csr_pem)
            self.seconds += self.held_seconds
            return stamped

        patch.setattr(plane, "_credentials", held)

    @asynccontextmanager
    async def enrolled(self) -> AsyncIterator[None]:
        """The node has a certificate, and knows the server's time."""
        async with self.plane.running():
            await self.enrolment.establish()
            # So much has the server's clock counted, too, although the scripted one did not.
            self.seconds += 600
            try:
                yield
            finally:
                await self.connection.close()


@pytest.mark.parametrize("again", [False, True], ids=["renewal", "enrolment again"])
def test_an_answer_that_was_held_does_not_move_the_clock_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    async def scene() -> None:
        node = Node(ControlPlane(tmp_path), tmp_path / "agent", monkeypatch)
        async with node.enrolled():
            node.settings.enrolment_token = SecretStr(node.plane.new_token())
            before, node.held_seconds = node.clock.now(), HELD_SECONDS
            await (node.enrolment.enrol_again("a test") if again else node.enrolment.renew())
            assert node.clock.now() >= before + timedelta(seconds=HELD_SECONDS)

    asyncio.run(scene())


@pytest.mark.parametrize("again", [False, True], ids=["renewal", "enrolment again"])
def test_an_answer_that_came_at_once_sets_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    async def scene() -> None:
        node = Node(ControlPlane(tmp_path), tmp_path / "agent", monkeypatch)
        async with node.enrolled():
            node.settings.enrolment_token = SecretStr(node.plane.new_token())
            node.plane.clock_offset = timedelta(hours=2)
            await (node.enrolment.enrol_again("a test") if again else node.enrolment.renew())
            assert abs(node.clock.now() - node.plane.now()) < timedelta(minutes=1)

    asyncio.run(scene())
