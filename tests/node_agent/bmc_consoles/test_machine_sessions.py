"""A session that is handed out while a task holds its machine asks nothing of the BMC."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from node_agent.bmc_consoles.sessions import SESSIONS_MAX, MachineSessions
from node_agent.clock import ServerClock
from node_agent.metrics import AgentMetrics
from node_agent.protocol import TaskType
from node_agent.site.effects import BmcEffects, Order
from node_agent.site.lease import Lease
from node_agent.site.metrics import SiteMetrics
from node_agent.site.problems import NotDone
from node_agent.wire.console import ConsoleParameters, MachineConsole

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGJnb3VnaA=="


class Effects:
    """Counts how often the BMC is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def with_password(self, *_: Any) -> Any:
        self.asked += 1
        raise NotDone("unreachable", "none is there")


def order(node_id: Any, now: datetime) -> Order:
    """A session whose process does not answer."""
    attach = ConsoleParameters(
        session_id=uuid4(), allocation_id=uuid4(), mode="attach", host="127.0.0.1", port=1, secret_sha256="0" * 64,
        dial_until=now + timedelta(seconds=6),
    )  # fmt: skip
    parameters = SimpleNamespace(
        console=MachineConsole(attach=attach, host_key=KEY), passwords=(), url="https://127.0.0.1", username="berth"
    )
    body = SimpleNamespace(node_id=node_id, task_id=uuid4(), fence=1, expires_at=now + timedelta(hours=1))
    return Order(cast(Any, body), cast(Any, parameters), 1)


@pytest.mark.parametrize(("task", "asked"), [(TaskType.METAL_POWER_RESET, 0), (TaskType.METAL_LOOK, 1)])
def test_a_session_beside_a_task_asks_the_bmc_only_if_the_task_may_run_beside_it(task: TaskType, asked: int) -> None:
    async def scene() -> int:
        clock, now, metrics, effects = ServerClock(), datetime.now(UTC), AgentMetrics(), Effects()
        clock.observe(now)
        tls = ssl.create_default_context
        sessions = MachineSessions(Lease(), clock, metrics, SiteMetrics(metrics.registry), tls)
        node_id = uuid4()
        async with sessions.ended(node_id, task), asyncio.TaskGroup() as group:
            sessions.begin(group, order(node_id, now), cast(BmcEffects, effects))
        assert sessions.free == SESSIONS_MAX
        return effects.asked

    assert asyncio.run(scene()) == asked
