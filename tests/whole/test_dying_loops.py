"""A background loop that dies takes its process with it, and says why; the next process goes on (TRAPS, failure 20)."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from berth.client import BerthError
from berth.local.processes import ChildProcess
from tests.sites.stage import LOOPS as LOOPS_OF_SITES
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole

ROOT = Path(__file__).parents[2]

LOOPS = [
    ("api", "orchestrator.edge.batching:Batcher._run", "self._run"),
    ("api", "orchestrator.http.oidc.issuer_keys:IssuerKeys._renew", "self._renew"),
    ("api", "orchestrator.http.audited.recorder:_first_of", "self._serve"),
    ("api", "orchestrator.http.audited.recorder:_first_of", "self._serve_counts"),
    ("api", "orchestrator.http.audited.key_uses:_set_or_after", "self._serve"),
    ("api", "orchestrator.consoles.hub:ConsoleHub._keep", "self._keep"),
    ("api", "orchestrator.heap:FullCollections.is_due", "collect_when_due"),
    ("node-api", "orchestrator.tasks.dispatcher:Dispatcher._tick", "self._serve"),
    ("node-api", "orchestrator.heap:FullCollections.is_due", "collect_when_due"),
    ("relay", "outbox_relay.sequencing:Sequencer._advance", "sequencer.run"),
    ("relay", "outbox_relay.publishing:Session._enter_stream", "self._publish"),
    ("relay", "outbox_relay.sequencing:Sequencer.abandon_if_silent", "_watch"),
    ("worker", "worker.consumers.pulling:Puller._pull", "consumer.run"),
    ("worker", "worker.consumers.durable:DurableConsumer.save_position", "_save_positions"),
    ("worker", "worker.sweepers.runner:SweepRunner.run_due", "runner.run"),
    ("worker", "worker.sweepers.runner:SweepRunner.run_due", "prompt.run"),
    ("worker", "worker.app:LogSource", "_meter"),
    ("worker", "worker.reconnecting:TemporalReconnection.run", "reconnection.run"),
    ("worker", "worker.health:_answers", "examine_for_ever"),
    ("webhooks", "worker.webhooks.app:Dispatcher", "_deliver"),
    ("webhooks", "worker.webhooks.resealing:reseal_all", "reseal_for_ever"),
    ("webhooks", "worker.sweepers.runner:SweepRunner.run_due", "runner.run"),
    ("webhooks", "worker.health:_answers", "examine_for_ever"),
    ("worker", "temporalio.worker._workflow:_WorkflowWorker.run", "make_worker"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._take_tasks", "self._take_tasks"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._send_heartbeats", "self._send_heartbeats"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._keep_identity", "self._keep_identity"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._measure", "self._measure"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._watch_guests", "self._watch_guests"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._watch_reachability", "self._watch_reachability"),
    ("agent eu-1-slice-1", "node_agent.agent:Agent._tend_leases", "self._tend_leases"),
]
"""The process, the function that fails in it, and the loop that dies of it, as it is written where it is started."""

NEVER_ALONE = {
    "orchestrator/__main__.py": {"stop.run", "listener.serve", "consoles.serve", "stop"},
    "orchestrator/edge/console_listener.py": {"self._accept", "self._stopped.wait", "self._serve"},
    "node_agent/consoles/consoles.py": {"session.ended", "_to_tenant", "_to_guest"},
    "node_agent/consoles/holding.py": {"self._hold"},
    "node_agent/bmc_consoles/machine_console.py": {"self._open"},
    "node_agent/bmc_consoles/ssh.py": {"self._from_bmc", "self._to_bmc"},
    "orchestrator/edge/batching.py": {"self._run_alone"},
    "orchestrator/edge/handshakes.py": {"self._give"},
    "orchestrator/edge/accepting.py": {"self._accept"},
    "orchestrator/edge/ending/orderly_stop.py": {"_cut_closing"},
    "orchestrator/http/oidc/issuer_keys.py": {"self._fetch_once"},
    "orchestrator/http/audited/recorder.py": {"event.wait"},
    "orchestrator/notifications/acknowledgements.py": {"self._write_after"},
    "orchestrator/log/feed/feed.py": {"self._follow"},
    "orchestrator/log/head.py": {"self._read_after"},
    "orchestrator/notifications/sockets.py": {
        "self._receive",
        "self._store_position",
        "self._watch_credential",
    },
    "orchestrator/log/feed/streams.py": {"_watch"},
    "orchestrator/http/single_flight.py": {"self._put"},
    "outbox_relay/feed.py": {"self._read"},
    "outbox_relay/link.py": {"link._fail_when"},
    "outbox_relay/publishing.py": {"self._link.publish"},
    "outbox_relay/relay.py": {"stopping.wait", "self._work", "body"},
    "worker/supervision.py": {"self._end_the_rest", "stop.wait"},
    "worker/audit_stream/app.py": {"Streamer(context, target, settings.pace()).run"},
    "worker/consumers/consumer.py": {"self._handle", "self._keep", "self._read_ahead"},
    "berth/process/health_server.py": {"server.serve_forever"},
    "worker/webhooks/dispatching.py": {"self._deliver"},
    "node_agent/agent.py": {"self._live", "self._stopping.wait"},
    "node_agent/site/agent.py": {"self._live", "self._stopping.wait", "self._wait_for_change"},
    "node_agent/effects.py": {"perform", "interrupted.wait"},
    "node_agent/executor.py": {"self._run", "self._delivered"},
    "node_agent/journal.py": {"self._flush_once"},
    "node_agent/progress.py": {"self._send_waiting"},
}
"""Not a loop that must survive: its starter or a task group awaits its end, or it only observes. The feed's tail lasts
as long as it has subscribers: when it dies their streams end, and the next subscriber starts it anew. A socket ends
with any of its tasks."""

NODE = "eu-1-slice-1"
"""The only one whose GPUs these tests ask for."""
OIDC = {"BERTH_OIDC_ISSUER": "https://issuer.invalid", "BERTH_OIDC_AUDIENCE": "berth"}
AT_ONCE = {"BERTH_SWEEP_SECONDS": "0.1", "BERTH_WORKER_POSITION_SECONDS": "0.1"}


def _started(path: Path) -> Iterator[str]:
    """What a module starts beside itself, as it is written there: tasks, and threads."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called.endswith("create_task") and isinstance(node.args[0], ast.Call):
            yield ast.unparse(node.args[0].func)
        elif called.endswith("Thread"):
            yield from (ast.unparse(given.value) for given in node.keywords if given.arg == "target")
        elif called == "_in_thread":
            yield ast.unparse(node.args[0])


def test_every_loop_of_every_process_is_among_these() -> None:
    dying = {loop for _, _, loop in LOOPS} | set(LOOPS_OF_SITES)
    unknown = []
    for package in ("orchestrator", "worker", "outbox_relay", "node_agent"):
        for file in sorted((ROOT / package).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            if "drivers" not in path:  # a guest's own processes, which end with the guest
                known = dying | NEVER_ALONE.get(path, set())
                unknown += [f"{path}: {started}" for started in _started(file) if started not in known]
    assert unknown == []


PROCESSES = list(dict.fromkeys(name for name, _, _ in LOOPS))


@pytest.mark.quick("worker-1")
@pytest.mark.parametrize(
    ("name", "loops_max"),
    [
        *((name, 1) for name in PROCESSES),
        # Each death takes one to three seconds, and a process's loops die by one rule, tested by its first loop.
        *(pytest.param(name, len(LOOPS), marks=pytest.mark.full) for name in PROCESSES),
    ],
)
def test_a_loop_that_dies_ends_its_process_with_a_message(
    whole: Whole, tenant: Tenant, tmp_path: Path, name: str, loops_max: int
) -> None:
    """Of each loop of the process, one death after the other; then the next process goes on."""
    other = whole.tenant()
    whole.kill(name)
    try:
        for planted in [planted for process, planted, _ in LOOPS if process == name][:loops_max]:
            _require_death(whole, tenant, name, planted, tmp_path / f"{planted}.log")
    finally:
        whole.start(name)
    # On a busy machine the deaths take as long as a node may be silent.
    wait_for(lambda: whole.admin.get_node(NODE).online, "the node is online")
    made = other.create()
    assert other.wait(made, "active").status == "active"
    other.client.release_allocation(made.allocation_id)
    other.wait(made, "released")


def _require_death(whole: Whole, tenant: Tenant, name: str, planted: str, log: Path) -> None:
    """The process ends by itself when the function fails, and its last words name the failure."""
    (child,) = [child for child in whole.stack._children if child.name == name]
    environment = {**child.plan.environment, **OIDC, **AT_ONCE, "BERTH_DIES_IN": planted}
    dying = ChildProcess(replace(child.plan, launcher="tests.dying", environment=environment), log)
    dying.spawn()
    try:
        if planted.endswith("Batcher._run"):
            wait_for(dying.is_ready, "the API to be ready")
            with contextlib.suppress(BerthError, httpx.TransportError):
                tenant.client.exchange.retry_seconds = 0.0
                tenant.create()
        wait_for(lambda: not dying.runs(), f"the process to end when {planted} fails")
        assert dying.process is not None
        assert dying.process.returncode == 1, planted
        assert [line for line in log.read_text().splitlines() if "planted" in line], log.read_text()
    finally:
        dying.kill()
