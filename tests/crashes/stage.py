"""A whole stack of the test build: a process is armed with a crash point, dies there, comes back, and all must be well."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import nats
import psycopg
from temporalio.client import Client as TemporalClient

from berth.cli.deployment.stream_check import check_stream
from berth.local.fleet import PlannedNode, plan_fleet
from berth.local.options import StackOptions
from berth.local.processes import ChildProcess
from berth.local.secret_files import write_secret
from berth.local.stack import Stack
from berth.local.state import write_whole
from tests.support.waiting import WAIT_SECONDS_MAX, wait_for
from tests.support.whole_stack import NODE_API, Tenant, Whole
from tests.testbuild.killing import REACHED

AGENTS = 2
FIRST_AGENT, SECOND_AGENT = (f"agent {node.name}" for node in plan_fleet(AGENTS))
LOG_VERSIONS_MIN = 300
"""More than any play leaves."""
IN_A_HURRY = {
    "node-api": NODE_API,
    # What a lost worker left is taken up by the next one after these; in production they are longer.
    "worker": {
        "BERTH_WORKER_ACK_WAIT_SECONDS": "2",
        "BERTH_WORKER_STEP_SECONDS": "2",
        "BERTH_WORKER_STICKY_SECONDS": "1",
        "BERTH_WORKER_POSITION_SECONDS": "0.2",
        "BERTH_REQUESTED_SECONDS_MAX": "3",
        "BERTH_SWEEP_SECONDS": "0.2",
        "BERTH_RECONCILE_SECONDS": "0.5",
        "BERTH_RESCUE_SECONDS": "0.5",
        "BERTH_RESCUE_PATIENCE_SECONDS": "3",
        "BERTH_SWEEP_GRACE_SECONDS": "1",
        "BERTH_LOG_TRUNCATION_SECONDS": "0.2",
        "BERTH_LOG_AGE_SECONDS_MIN": "0",
        "BERTH_LOG_VERSIONS_MIN": str(LOG_VERSIONS_MIN),
    },
}
HEARTBEATS = {"BERTH_AGENT_HEARTBEAT_SECONDS": "0.5"}

_NOT_RECORDED_ONCE = """
select o.scope, o.key, o.code from operations o
where o.status is not null and 1 <> (
    select count(*) from audit a
    where a.operation_key = o.key and a.status = o.status and a.code = coalesce(o.code, 'ok'))
"""
"""Operations whose conclusion has no audit row, or more than one."""
_RECORDED_TWICE = """
select request_id, action from audit where request_id is not null and operation_key is null
group by request_id, action, subject having count(*) > 1
"""
"""Requests without an operation that have more than one audit row."""


def options(directory: Path, agents: int = AGENTS, of_agents: Mapping[str, str] | None = None) -> StackOptions:
    """The stack of a stage: every process of the test build, each with its own crash file. `of_agents`: their variables."""
    fleet = {f"agent {node.name}": {**HEARTBEATS, **(of_agents or {})} for node in plan_fleet(agents)}
    environment = {
        name: {
            "BERTH_CRASH_AT_FILE": str(crash_file(directory, name)),
            **IN_A_HURRY.get(name, {}),
            **fleet.get(name, {}),
        }
        for name in ["api", "node-api", "issuer", "relay", "worker", "webhooks", *fleet]
    }
    return StackOptions(directory, agents=agents, wished_port=None, launcher="tests.testbuild", environment=environment)


def crash_file(directory: Path, name: str) -> Path:
    """Where a process of the stack in `directory` reads where to die."""
    return directory / f"crash-at-{name.replace(' ', '-')}"


class Stage(Whole):
    """The stack, its processes by name, and what must hold after each crash."""

    victim = ""
    """The process that is killed."""
    forgotten_at: object = None
    """When an agent last lost its identity, by the database's clock."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self._starting = threading.Lock()

    def tenant(self) -> Tenant:
        """A new tenant whose client does not lose patience while a process comes back."""
        tenant = super().tenant()
        tenant.client.exchange.retry_seconds = self.admin.exchange.retry_seconds = WAIT_SECONDS_MAX
        return tenant

    def child(self, name: str) -> ChildProcess:
        """A process of ours."""
        (found,) = [child for child in self.stack._children if child.name == name]
        return found

    def node(self, agent: str) -> PlannedNode:
        """The node that an agent is for."""
        (found,) = [node for node in plan_fleet(self.stack.options.agents) if f"agent {node.name}" == agent]
        return found

    def start(self, *names: str) -> None:
        """`Whole.start` under a lock: the play's thread and the killing one both start processes."""
        with self._starting:
            super().start(*names)

    def require_all_running(self) -> None:
        """Start whatever an earlier scenario that failed has left dead."""
        for child in self.stack._children:
            if not child.runs():
                self.start(child.name)

    @contextmanager
    def armed(self, name: str, crash_at: str) -> Iterator[None]:
        """In the block the process dies at `<label>:<n>`; it is started if the play has left it dead."""
        file = crash_file(self.stack.state.path, name)
        write_whole(file, crash_at + "\n")
        self.victim = name
        if not self.child(name).runs():
            self.child(name).spawn()
        try:
            yield
        finally:
            file.unlink()

    def await_death(self, name: str, crash_at: str) -> None:
        """Return when the process has died at the armed place; fail if it did not, or died otherwise."""
        child = self.child(name)
        assert child.process is not None
        try:
            status = child.process.wait(WAIT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} never reached {crash_at}") from None
        assert status == -signal.SIGKILL, f"{name} {child.how_it_ended()}"
        last_line = child.log.read_text(errors="replace").splitlines()[-1]
        assert last_line.endswith(REACHED.format(crash_at)), last_line

    def execute(self, query: str, *parameters: object) -> list[tuple[object, ...]]:
        """Run one statement on the database, as only a test may."""
        with psycopg.connect(self.stack.endpoints.database_url, autocommit=True) as connection:
            cursor = connection.execute(query, parameters)
            return cursor.fetchall() if cursor.description else []

    def delete_stream(self) -> None:
        """As when NATS lost its disk."""

        async def delete() -> None:
            connection = await nats.connect(self.stack.endpoints.nats_url)
            try:
                await connection.jetstream().delete_stream("BERTH_LOG")
            finally:
                await connection.close()

        asyncio.run(delete())

    def terminate_workflow(self, workflow_id: str) -> None:
        """As when Temporal lost it."""

        async def terminate() -> None:
            client = await TemporalClient.connect(self.stack.endpoints.temporal_address)
            await client.get_workflow_handle(workflow_id).terminate("crash test")

        asyncio.run(terminate())

    def lose_node(self, agent: str) -> None:
        """The agent stops in order, guests included, and what its node held is removed by hand."""
        self.child(agent).terminate()
        self.child(agent).wait_ended()
        sandbox = self.stack.state.agent(self.node(agent).name) / "sandbox"
        for held in (*sandbox.glob("allocations/*"), *sandbox.glob("leases/slot-*")):
            shutil.rmtree(held) if held.is_dir() else held.unlink()

    def forget_identity(self, agent: str) -> None:
        """The agent ends; its node has no certificate any more, but a new token."""
        if self.child(agent).runs():
            self.kill(agent)
        self.forgotten_at = self.execute("select clock_timestamp()")[0][0]
        name = self.node(agent).name
        shutil.rmtree(self.stack.state.agent(name) / "identity", ignore_errors=True)
        token = self.admin.create_enrolment_token(self.admin.get_node(name).id)
        write_secret(self.stack.state.secrets / f"enrolment-{name}.token", token.token + "\n")

    def come_online(self, agent: str) -> None:
        """Start the agent, unless it is the one that is killed and started again; return when its node has been heard."""
        if agent != self.victim:
            self.start(agent)
        query = "select last_seen_at > enrolled_at and enrolled_at > %s from nodes where name = %s"
        heard = [(True,)]
        wait_for(lambda: self.execute(query, self.forgotten_at, self.node(agent).name) == heard, "the node is heard of")

    def certificate_seconds(self, agent: str) -> float:
        """How long the longest-lived certificate of the agent's node counts from now on."""
        query = """select max(extract(epoch from not_after - clock_timestamp()))::float8 from node_certificates c
                   join nodes n on n.id = c.node_id and n.epoch = c.node_epoch where n.name = %s and revoked_at is null"""
        return float(str(self.execute(query, self.node(agent).name)[0][0]))

    def certificates(self, agent: str) -> int:
        """How many certificates the agent's node has in its epoch."""
        query = """select count(*) from node_certificates c join nodes n on n.id = c.node_id and n.epoch = c.node_epoch
                   where n.name = %s"""
        return int(str(self.execute(query, self.node(agent).name)[0][0]))

    def certificates_beside_requests(self) -> list[tuple[object, ...]]:
        """Certificates that do not answer exactly one recorded request for their place in the chain and their key."""
        return list(
            self.execute(
                """select c.serial from node_certificates c where 1 <> (
                       select count(*) from certificate_requests r where r.serial = c.serial and r.node_id = c.node_id
                       and r.node_epoch = c.node_epoch and r.key_sha256 = c.key_sha256
                       and r.predecessor is not distinct from c.predecessor)"""
            )
        )

    def violations_at_rest(self) -> list[str]:
        """The broken promises, once everything has come to its end and nothing is left on any node."""
        wait_for(lambda: self.waiting_events() == 0, "every event has its place in the log")
        wait_for(self._fleet_is_free, "the fleet is free again")
        assert self._unfinished() == []
        verdict = check_stream(self.stack.endpoints.database_url, self.stack.endpoints.nats_url)
        assert verdict.kept, str(verdict)
        for directory in self.stack.state.path.glob("agents/*/sandbox"):
            assert list(directory.glob("allocations/*")) == []
            assert list(directory.glob("leases/slot-*")) == []
        assert self.execute(_NOT_RECORDED_ONCE) == []
        assert self.execute(_RECORDED_TWICE) == []
        return self.violations()

    def _fleet_is_free(self) -> bool:
        return all(node.free_slots == node.slot_count for node in self.admin.iterate_nodes())

    def _unfinished(self) -> list[tuple[object, ...]]:
        return self.execute("select id, state from allocations where state not in ('released', 'failed')")
