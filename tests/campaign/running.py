"""A whole campaign: stage, load, faults, healing, judgement."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import psycopg

from berth.client import AsyncClient, Client
from berth.verification.all_checks import run_checks
from berth.verification.stream import StreamUnreachable, check_stream
from tests.campaign.history import History
from tests.campaign.holding import SEATS, HoldingClient
from tests.campaign.injuring import Injurer
from tests.campaign.judging_clients import Violation, judge_clients
from tests.campaign.judging_events import judge_events
from tests.campaign.judging_nodes import NodeWatch
from tests.campaign.judging_reservations import judge_reservations
from tests.campaign.judging_workflows import judge_workflows
from tests.campaign.load import Renter, RentingClient
from tests.campaign.report import Report, make_report
from tests.campaign.schedule import Targets, plan_faults
from tests.campaign.settling import Settler, catch_up, heal
from tests.campaign.stage import Stage
from tests.campaign.subscriber import Subscriber
from tests.model.log import read_log, sequence
from tests.model.replaying import replay
from tests.model.tables import beginning, differences, read_tables

AnyClient = RentingClient | HoldingClient
RENTERS = 3
CALM_SECONDS = 4.0
"""Load goes on for so long after the last fault, so that its recovery is seen."""
NODE_LOOK_SECONDS = 0.5
WORKER_SECONDS_MAX = 15.0


@dataclass(frozen=True)
class CampaignOptions:
    """What to run. `directory` must not exist or be an earlier campaign's."""

    directory: Path
    seconds: float
    seed: int
    plant: str | None = None
    agents: int = 6
    clients: int = 6
    fault_every_seconds: float = 2.5
    settle_seconds: float = 150.0
    holders: int = 3


def run_campaign(options: CampaignOptions) -> tuple[Report, History]:
    """Play a campaign and judge it. Raises what keeps the stage from starting."""
    began = time.monotonic()
    with Stage(options.directory, options.agents, options.plant) as stage:
        history = History(options.seed)
        timings = {"start": time.monotonic() - began}
        return asyncio.run(_play(options, stage, history, timings)), history


async def _play(options: CampaignOptions, stage: Stage, history: History, timings: dict[str, float]) -> Report:
    watch = NodeWatch(stage.agent_directories)
    violations: list[Violation] = []
    async with _clients(stage, options, history) as (clients, admin):
        history.began = time.monotonic()
        subscriber = Subscriber(stage.endpoints.nats_url, history)
        background = [asyncio.create_task(subscriber.run()), asyncio.create_task(_look_at_nodes(watch))]
        try:
            await _storm(options, stage, history, clients)
            timings["load"] = time.monotonic() - history.began
            healed = time.monotonic()
            stuck = await Settler(admin, history).settle(options.settle_seconds)
            violations += [Violation("comes to an end", sentence) for sentence in stuck]
            behind = await catch_up(stage.endpoints.database_url, subscriber)
            violations += [Violation("told", behind)] if behind else []
            violations += await _judge_workflows(stage, history)
            timings["settle"] = time.monotonic() - healed
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
    judging = time.monotonic()
    watch.look()
    violations += [*judge_clients(history), *judge_reservations(history), *judge_events(history)]
    violations += watch.judge(history)
    violations += await asyncio.to_thread(_judge_servers, stage)
    timings["judge"] = time.monotonic() - judging
    report = make_report(history, options.seconds, options.plant)
    report.violations, report.timings = violations, timings
    return report


async def _storm(options: CampaignOptions, stage: Stage, history: History, clients: list[AnyClient]) -> None:
    """Load and faults at once; then everything is healed while the load runs out."""
    targets = Targets(stage.process_names, stage.server_names, list(stage.links.by_name), sorted(stage.sandboxes))
    faults = plan_faults(options.seed, options.seconds - CALM_SECONDS, targets, options.fault_every_seconds)
    injurer = Injurer(stage, history)
    hurting = threading.Thread(target=injurer.run, args=(faults,), name="faults")
    stopping = asyncio.Event()
    hurting.start()
    running = [asyncio.create_task(client.run(stopping)) for client in clients]
    try:
        await asyncio.to_thread(hurting.join)
        await heal(stage)
        await asyncio.sleep(max(CALM_SECONDS, history.began + options.seconds - time.monotonic()))
        stopping.set()
        for client in clients:
            client.give_up_at(time.monotonic() + 60)
        await asyncio.gather(*running)
    finally:
        injurer.stop()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _look_at_nodes(watch: NodeWatch) -> None:
    while True:
        await asyncio.to_thread(watch.look)
        await asyncio.sleep(NODE_LOOK_SECONDS)


async def _judge_workflows(stage: Stage, history: History) -> list[Violation]:
    """The worker may still be taking the last events; what it has not taken after a while is lost."""
    until = time.monotonic() + WORKER_SECONDS_MAX
    while True:
        found = await judge_workflows(stage.endpoints.temporal_address, history)
        if not found or time.monotonic() > until:
            return found
        await asyncio.sleep(0.5)


def _judge_servers(stage: Stage) -> list[Violation]:
    """`berth verify`, on the database and on the stream."""
    verdicts = run_checks(stage.endpoints.database_url)
    with suppress(StreamUnreachable):
        verdicts.append(check_stream(stage.endpoints.database_url, stage.endpoints.nats_url))
    found = [Violation(f"verify {v.promise}", sentence) for v in verdicts for sentence in v.violations]
    found += [Violation("replay", sentence) for sentence in _replay(stage.endpoints.database_url)]
    if not any(verdict.promise == "P3 on NATS" for verdict in verdicts):
        found.append(Violation("verify P3 on NATS", "the stream could not be asked"))
    return found


def _replay(database_url: str) -> list[str]:
    """The reference model, driven by the whole log, must end where the tables are (tests/model)."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        sequence(connection)
        followed = replay(read_log(connection), beginning(connection))
        return [*followed.divergences, *differences(followed.state, read_tables(connection))]


@asynccontextmanager
async def _clients(
    stage: Stage, options: CampaignOptions, history: History
) -> AsyncIterator[tuple[list[AnyClient], AsyncClient]]:
    """The campaign's clients, each of which uses every API process, and an operator's."""
    async with AsyncExitStack() as opened:

        async def open_all(key: str) -> list[AsyncClient]:
            made = [AsyncClient(url, key, retry_seconds=0.0) for url in stage.api_urls]
            return [await opened.enter_async_context(client) for client in made]

        admins = await open_all(stage.admin_key)
        renters = [Renter(f"renter {n}", *await _renter(stage, open_all), admins) for n in range(RENTERS)]
        clients: list[AnyClient] = [RentingClient(n, renters[n % RENTERS], history) for n in range(options.clients)]
        _register_seats(stage)
        _, reserving = await _renter(stage, open_all)
        clients += [HoldingClient(n, reserving, history) for n in range(options.holders)]
        admin = await opened.enter_async_context(AsyncClient(stage.api_urls[0], stage.admin_key))
        yield clients, admin


def _register_seats(stage: Stage) -> None:
    with stage.admin() as admin:
        for seat in SEATS:
            admin.create_resource(seat)


async def _renter(stage: Stage, open_all: object) -> tuple[list[uuid.UUID], list[AsyncClient]]:
    assert callable(open_all)
    with stage.admin() as admin:
        tenant = admin.create_tenant(name=f"renter {uuid.uuid4()}")
        key = admin.create_api_key(name="campaign", role="tenant", tenant_id=tenant.id).key
    with Client(stage.endpoints.api_url, key) as client:
        public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
        ssh_key = client.add_ssh_key(name="campaign", public_key=public)
    return [ssh_key.id], await open_all(key)
