"""Scenes that need real processes: an agent before a scripted control plane, relays on NATS, workers on Temporal."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import nats
import psycopg

from berth.local.servers import LocalNats, free_port
from migrations.roles import Role
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.protocol import TaskType
from tests.allocations.seeding import create_allocation, seed
from tests.campaign.directed.scene import deliveries_of_log
from tests.campaign.history import History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import check_order
from tests.campaign.judging.judging_nodes import NodeStory, NodeWatch
from tests.campaign.judging.judging_workflows import judge_workflows
from tests.campaign.subscriber import Subscriber
from tests.databases import as_role
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.control_plane import ControlPlane
from tests.outbox_relay.relays import leave_events
from tests.support.waiting import async_wait_for, read_until, wait_for
from tests.support.worker_processes import Processes, play_nodes, release_all
from worker.supervision import end_all

SECONDS_MAX = 90.0
STREAM, CONSUMER = "BERTH_LOG", "berth-worker"


def command_of(module: str) -> list[str]:
    """How a process of the test build is started."""
    return [sys.executable, "-m", "tests.testbuild", module]


def planting(bug: str | None) -> dict[str, str]:
    """The environment that plants a bug."""
    return {} if bug is None else {"BERTH_PLANTED_BUG": bug}


class TestbuildAgent(AgentProcess):
    """An agent of the test build."""

    __test__ = False

    def start(self, **environment: str) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command_of("node_agent"), env={**self._environment, **environment},
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip


class TestbuildProcesses(Processes):
    """Relay and workers of the test build."""

    __test__ = False
    bug: str | None = None

    def _start(self, module: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        environment = {**self.environment(), **settings, **planting(self.bug)}
        with (self.directory / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(command_of(module), env=environment, stdout=log, stderr=log)
        self._started.append(process)
        return process


async def an_older_task_for_the_same_slot(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> list[Violation]:
    """A node gets a task with a newer fence, and then an older one that was long under way."""
    older = plane.body(TaskType.VM_RELEASE, release([0]), uuid.uuid4())
    newer = plane.body(TaskType.VM_RELEASE, release([0]), uuid.uuid4())
    for body in (newer, older):
        await plane.result_of(await plane.hand_out(body))
    return _judge_node(agent)


async def a_look_while_a_guest_is_made(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> list[Violation]:
    """Check disk and journal in the middle of a provision; a crash at that moment would leave the same."""
    allocation_id = uuid.uuid4()
    slow = {"slow_phase_seconds": "60", "slow_phase": "boot"}
    await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0], faults=slow), allocation_id))
    record = AllocationDirectory(agent.guest_directory(allocation_id)).record_file
    await asyncio.to_thread(wait_for, record.exists, "the guest has a record on the disk")
    story = NodeStory()
    story.look(agent.state_dir)
    return _judged(story)


def _judge_node(agent: AgentProcess) -> list[Violation]:
    story = NodeStory()
    story.look(agent.state_dir)
    return _judged(story)


def _judged(story: NodeStory) -> list[Violation]:
    watch = NodeWatch({})
    watch.stories["node"] = story
    return watch.judge(History(seed=0))


async def play_agent(directory: Path, bug: str | None, play: Callable[..., object], tenant: Tenant) -> list[Violation]:
    """Play a scene with one agent; it is killed in the end, with all that it started."""
    plane = ControlPlane(directory)
    agent = TestbuildAgent(plane, directory)
    async with plane.running():
        agent.start(BERTH_ENROLMENT_TOKEN=plane.new_token(), **planting(bug))
        try:
            await plane.until(lambda: plane.waits > 0)
            found: list[Violation] = await play(plane, agent, tenant)  # type: ignore[misc]
            return found
        finally:
            agent.kill()


def two_relays(database_url: str, nats: LocalNats, directory: Path, bug: str | None) -> list[Violation]:
    """Two relays, each of them elected publisher, while events come."""
    history = History(seed=0)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("BERTH_")},
        "BERTH_DATABASE_URL": as_role(database_url, Role.RELAY), "BERTH_NATS_URL": nats.url,
        "BERTH_RELAY_STEP_BACK_SECONDS": "0.2", **planting(bug),
    }  # fmt: skip
    relays = []
    with (directory / "relays.log").open("wb") as log:
        for _ in range(2):
            port = {"BERTH_METRICS_PORT": str(free_port())}
            relays.append(
                subprocess.Popen(command_of("outbox_relay"), env={**environment, **port}, stdout=log, stderr=log)
            )
    try:
        with psycopg.connect(database_url, autocommit=True) as database:
            return asyncio.run(_read_while_events_come(database, nats.url, history))
    finally:
        for relay in relays:
            relay.kill()
            relay.wait()


EVENTS_EACH_TIME, TIMES = 20, 30


async def _read_while_events_come(database: psycopg.Connection, nats_url: str, history: History) -> list[Violation]:
    subscriber = Subscriber(nats_url, history)
    reading = asyncio.create_task(subscriber.run())
    try:
        for time_ in range(1, TIMES + 1):
            leave_events(database, [{"number": number} for number in range(EVENTS_EACH_TIME)])
            expected = time_ * EVENTS_EACH_TIME
            await async_wait_for(
                lambda expected=expected: subscriber.cursor >= expected or list(check_order(history)),  # type: ignore[misc]
                "the relays publish",
            )
    finally:
        await end_all({reading})
    return list(check_order(history))


def events_that_come_again(processes: TestbuildProcesses) -> list[Violation]:
    """Every event is consumed twice, because the consumer and its position are lost after the first time."""
    url = processes.url
    seeded = seed(url)
    processes.start_relay()
    worker = processes.start_worker()
    allocation_id = create_allocation(url, seeded)
    play_nodes(url, {allocation_id: "active"})
    release_all(url, seeded, [allocation_id])
    play_nodes(url, {allocation_id: "released"})
    worker.terminate()
    worker.wait(SECONDS_MAX)

    async def forget() -> None:
        connection = await nats.connect(processes.nats.url)
        await connection.jetstream().delete_consumer(STREAM, CONSUMER)
        await connection.close()

    asyncio.run(forget())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("delete from consumer_positions")
    processes.start_worker()
    wait_for(lambda: _taken(processes.nats), "every event has been taken again")
    return _judge_processes(processes)


def a_worker_that_dies_with_an_event(processes: TestbuildProcesses) -> list[Violation]:
    """A worker is killed when it has an event in its hands and has done nothing with it yet; another one follows."""
    seeded = seed(processes.url)
    create_allocation(processes.url, seeded)
    processes.start_relay()
    wait_for(lambda: _stream_holds_events(processes.nats), "the event is in the stream")
    worker = processes._start(
        "worker", {"BERTH_METRICS_PORT": str(free_port()), "BERTH_CRASH_AT": "event.before_dispatch:1"}
    )
    worker.wait(SECONDS_MAX)
    processes.start_worker()
    wait_for(lambda: _taken(processes.nats), "every event has been taken")
    return _judge_processes(processes)


SETTLE_SECONDS = 5.0


def _judge_processes(processes: Processes) -> list[Violation]:
    """What Temporal says; runs that were just started get a few seconds to come to their end."""
    history = History(seed=0, deliveries=deliveries_of_log(processes.url))
    # A violation must be absent for the whole time.
    return asyncio.run(read_until(lambda: judge_workflows(processes.temporal_address, history), bool, SETTLE_SECONDS))


def _stream_holds_events(server: LocalNats) -> bool:
    async def ask() -> bool:
        connection = await nats.connect(server.url)
        try:
            return bool((await connection.jetstream().stream_info(STREAM)).state.last_seq)
        except nats.js.errors.NotFoundError:
            return False
        finally:
            await connection.close()

    return asyncio.run(ask())


def _taken(server: LocalNats) -> bool:
    """Whether the worker's consumer has acknowledged all there is."""

    async def ask() -> bool:
        connection = await nats.connect(server.url)
        try:
            info = await connection.jetstream().consumer_info(STREAM, CONSUMER)
        except nats.js.errors.NotFoundError:
            return False
        finally:
            await connection.close()
        return not info.num_pending and not info.num_ack_pending and bool(info.ack_floor and info.ack_floor.stream_seq)

    return asyncio.run(ask())
