"""Phases reach the control plane in order; a long phase says how far it is, rarely; an unproven device is no release."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from pathlib import Path
from typing import Any

import pytest

from node_agent import effects
from node_agent.burn_in.bounds import Bounds
from node_agent.burn_in.burn_in import BurnIn
from node_agent.clock import ServerClock
from node_agent.consoles.consoles import Consoles
from node_agent.drivers.contract import Phase, Plan, Progress, ReleaseOrder
from node_agent.drivers.noop import NoopDriver
from node_agent.drivers.restarting import RestartLimits, Restarts
from node_agent.effects import PROGRESS_REPORTS_MAX, Effects, TimedPhases
from node_agent.gpu_reset.gpu_reset import GpuReset
from node_agent.identity import IdentityStore
from node_agent.journal import Journal
from node_agent.maintenance.plugins import MaintenancePlugins
from node_agent.metrics import AgentMetrics
from node_agent.probes.probe import Prober
from node_agent.protocol import FailureCode, ReleaseResult, ResultReport, TaskBody, TaskType
from node_agent.wiping.devices import DeviceWipe, WipeLevel
from node_agent.wiping.proofs import WipeProofs
from node_agent.wiping.signing import StatementSigner
from tests.node_agent.agents import release


class Clock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which phases are measured."""
    clock = Clock()
    monkeypatch.setattr(effects, "time", clock)
    return clock


def test_a_long_phase_reports_its_share_after_ten_seconds_and_then_ever_more_rarely(clock: Clock) -> None:
    sent: list[tuple[str, str]] = []
    phases = TimedPhases(AgentMetrics(), lambda phase, detail: sent.append((phase, detail)))
    times = []
    for second in range(400):
        before = len(sent)
        phases.advanced("image", second / 400, "some bytes")
        times += [second] * (len(sent) - before)
        clock.seconds += 1
    phases.completed("image", "done")
    assert times == [10, 30, 70, 150, 310]
    assert sent[0] == ("image.progress", "2%: some bytes")
    assert sent[-1] == ("image", "done")


def test_the_shares_of_a_task_are_bounded(clock: Clock) -> None:
    sent: list[str] = []
    phases = TimedPhases(AgentMetrics(), lambda phase, _: sent.append(phase))
    for _ in range(100):
        clock.seconds *= 3
        phases.advanced("image", 0.5, "")
    assert len(sent) == PROGRESS_REPORTS_MAX


class Claims(NoopDriver):
    """Claims a release with a proof that proves nothing."""

    def __init__(self, proven: bool) -> None:
        super().__init__("127.0.0.1")
        self._proof = DeviceWipe(
            device="nvme0", kind="disk", method="discard", level=WipeLevel.CLEAR, proven=proven,
            checked={"samples": 64},
        )  # fmt: skip

    def release(self, order: ReleaseOrder) -> Plan[ReleaseResult]:
        async def wiped(progress: Progress) -> str:
            progress(0.5, "half")
            return "nvme0"

        evidence: dict[str, Any] = {"devices": [self._proof.model_dump(mode="json")]}
        result = ReleaseResult(released=True, hard_stopped=False, wiped=True, leases_released=True, evidence=evidence)
        return Plan((Phase("wiped", wiped),), lambda: result)


def released(proven: bool, tmp_path: Path) -> ResultReport:
    body = TaskBody.model_validate(
        {
            "task_id": uuid.uuid4(), "type": TaskType.VM_RELEASE, "node_id": uuid.uuid4(), "node_epoch": 1,
            "allocation_id": uuid.uuid4(), "fence": 3, "parameters": release([0]), "key_id": "k",
            "not_before": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z",
        }
    )  # fmt: skip

    async def scene() -> ResultReport:
        driver, metrics = Claims(proven), AgentMetrics()
        proofs = WipeProofs(Journal(tmp_path / f"journal-{proven}", metrics))
        statements = StatementSigner(IdentityStore(tmp_path), ServerClock(), "noop")
        consoles = Consoles(driver, ServerClock(), metrics, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        effects = Effects(
            driver, metrics, Restarts(driver, metrics, RestartLimits()), proofs, statements, Prober("noop"),
            BurnIn("noop", Bounds(tmp_path)), GpuReset("noop"), ServerClock(), consoles,
            MaintenancePlugins(None, tmp_path),
        )  # fmt: skip
        return await effects.carry_out(body, asyncio.Event(), lambda *_: None)

    return asyncio.run(scene())


def test_a_release_with_a_device_that_is_not_proven_wiped_fails(tmp_path: Path) -> None:
    assert released(True, tmp_path).outcome == "completed"
    failure = released(False, tmp_path).failure
    assert failure is not None
    assert failure.code is FailureCode.CLEANUP_FAILED
