"""A driver that does not say what the node holds stops no reset for good: the task ends, and the next one can begin."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from node_agent import effects
from node_agent.burn_in.bounds import Bounds
from node_agent.burn_in.burn_in import BurnIn
from node_agent.clock import ServerClock
from node_agent.consoles.consoles import Consoles
from node_agent.drivers.contract import Inventory
from node_agent.drivers.looking import Look
from node_agent.drivers.noop import NoopDriver
from node_agent.drivers.restarting import RestartLimits, Restarts
from node_agent.effects import Effects
from node_agent.gpu_reset.gpu_reset import GpuReset
from node_agent.identity import IdentityStore
from node_agent.journal import Journal
from node_agent.maintenance.plugins import MaintenancePlugins
from node_agent.metrics import AgentMetrics
from node_agent.probes.probe import Prober
from node_agent.protocol import TaskBody, TaskType
from node_agent.wiping.proofs import WipeProofs
from node_agent.wiping.signing import StatementSigner
from node_agent.wire.gpu_reset import GpuResetReport
from tests.discovery.trees import GPU_ADDRESSES

UNKNOWN = ("gpu_in_use", "what the node holds cannot be read")
GUARD_SECONDS = 30.0
"""Ends a test whose promise is broken."""


class Hanging(NoopDriver):
    """Its inventory does not end."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1")

    async def inventory(self) -> Inventory:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")


def order() -> TaskBody:
    now = datetime.now(UTC)
    return TaskBody.model_validate(
        {
            "task_id": uuid.uuid4(), "type": TaskType.GPU_RESET, "node_id": uuid.uuid4(), "node_epoch": 1,
            "allocation_id": None, "fence": 3, "parameters": {"slots": [2], "gpus": [GPU_ADDRESSES[2]]}, "key_id": "k",
            "not_before": now, "expires_at": now + timedelta(hours=1),
        }
    )  # fmt: skip


def test_a_driver_that_hangs_ends_the_task_and_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effects, "Look", partial(Look, seconds_max=0.01))

    async def scene() -> list[tuple[str, str]]:
        driver, metrics, clock = Hanging(), AgentMetrics(), ServerClock()
        clock.observe(datetime.now(UTC))
        consoles = Consoles(driver, clock, metrics, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        carried = Effects(
            driver, metrics, Restarts(driver, metrics, RestartLimits()), WipeProofs(Journal(tmp_path / "journal", metrics)),
            StatementSigner(IdentityStore(tmp_path), clock, "noop"), Prober("noop"), BurnIn("noop", Bounds(tmp_path)),
            GpuReset("libvirt"), clock, consoles, MaintenancePlugins(None, tmp_path),
        )  # fmt: skip
        found: list[tuple[str, str]] = []
        for _ in range(2):
            result = await asyncio.wait_for(carried.carry_out(order(), asyncio.Event(), lambda *_: None), GUARD_SECONDS)
            (one,) = GpuResetReport.model_validate(result.result).gpus
            found.append((one.outcome, one.evidence))
        return found

    assert asyncio.run(scene()) == [UNKNOWN, UNKNOWN]
