"""A background loop that dies takes its process with it, and says why; the next process goes on (TRAPS, failure 20)."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from berth.client import BerthError
from berth.local.processes import ChildProcess
from tests.whole.conftest import Tenant, Whole, eventually

LOOPS = [
    ("api", "orchestrator.api.gathering:CreateGatherer._run"),
    ("node-api", "orchestrator.api.dispatching:Dispatcher._tick"),
    ("relay", "outbox_relay.sequencing:Sequencer._advance"),
    ("relay", "outbox_relay.publishing:Session._enter_stream"),
    ("worker", "worker.consumers.pulling:Puller._pull"),
    ("worker", "worker.consumers.durable:DurableConsumer.save_position"),
    ("worker", "worker.app:sweep_overdue"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._take_tasks"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._send_heartbeats"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._keep_identity"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._measure"),
]


@pytest.mark.parametrize(("name", "loop"), LOOPS, ids=[loop.rpartition(":")[2] for _, loop in LOOPS])
def test_a_loop_that_dies_ends_its_process_with_a_message(
    whole: Whole, tenant: Tenant, tmp_path: Path, name: str, loop: str
) -> None:
    other = whole.tenant()
    (child,) = [child for child in whole.stack._children if child.name == name]
    plan = replace(child.plan, launcher="tests.dying", environment={**child.plan.environment, "BERTH_DIES_IN": loop})
    dying = ChildProcess(plan, tmp_path / "dying.log")
    whole.kill(name)
    dying.spawn()
    try:
        if name == "api":
            eventually(dying.is_ready, "the API to be ready")
            with contextlib.suppress(BerthError, httpx.TransportError):
                tenant.client.exchange.retry_seconds = 0.0
                tenant.create()
        eventually(lambda: not dying.runs(), "the process to end")
        assert dying.process is not None
        assert dying.process.returncode == 1
        lines = [line for line in dying.log.read_text().splitlines() if "planted" in line]
        assert lines, dying.log.read_text()
    finally:
        dying.kill()
        whole.start(name)
    made = other.create()
    assert other.wait(made, "active").status == "active"
    other.client.release_allocation(made.allocation_id)
    other.wait(made, "released")
