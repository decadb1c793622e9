"""A whole campaign: stage, load, faults, healing, judgement."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import psycopg
from temporalio.service import RPCError

from berth.cli.deployment.stream_check import StreamUnreachable, check_stream
from orchestrator.verification.all_checks import run_checks
from tests.campaign.beside import beside, to_thread_whole
from tests.campaign.casting import AnyClient, CampaignOptions, open_cast
from tests.campaign.clients.accounts.settling import read_books, settle_hooks
from tests.campaign.clients.fleet.reading import read_fleet
from tests.campaign.clients.quiet import online
from tests.campaign.history import Delivery, History
from tests.campaign.injuring import Injurer
from tests.campaign.judging.judging import judge_history
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_crashes import judge_crashes
from tests.campaign.judging.judging_nodes import NodeWatch
from tests.campaign.judging.judging_tasks import check_refusals, ended_tasks
from tests.campaign.judging.judging_workflows import judge_workflows
from tests.campaign.listening.ending import read_to_the_end
from tests.campaign.machines.returning import MachineSettler
from tests.campaign.machines.stage import RackedStage
from tests.campaign.machines.stories import stories_of
from tests.campaign.machines.watching import MachineWatch
from tests.campaign.report import Report, make_report
from tests.campaign.schedule import plan_faults
from tests.campaign.settling import Settler, catch_up, heal
from tests.campaign.stage import Stage
from tests.campaign.stage_settings import LOG_AGE_SECONDS_MIN
from tests.campaign.subscriber import Subscriber
from tests.model.log import Event, read_log, sequence
from tests.model.replaying import replay
from tests.model.tables import beginning, differences, read_tables
from tests.support.waiting import pause, read_until

CALM_SECONDS = 4.0
"""Load goes on for so long after the last fault, so that its recovery is seen."""
CLIENT_END_SECONDS_MAX = 300.0
"""A client that goes on for longer after the end of the load would never end, and the campaign with it."""
NODE_LOOK_SECONDS = 0.5
WORKER_SECONDS_MAX = 40.0


class Disturbance(Protocol):
    """What is done to the stage while the load goes on."""

    def run(self) -> None:
        """Return when all of it was done, or soon after `stop`."""

    def stop(self) -> None:
        """Begin nothing more."""


def run_campaign(options: CampaignOptions) -> tuple[Report, History]:
    """Play a campaign and judge it. Raises what keeps the stage from starting."""
    return run_on(options, stage_of(options), _faults_of(options))


def stage_of(options: CampaignOptions) -> Stage:
    """The stage of these options, not started."""
    if options.machines:
        return RackedStage(
            options.directory, options.agents, options.plant, machines=options.machines, truncates=True, ha=options.ha
        )
    return Stage(options.directory, options.agents, options.plant, truncates=True, ha=options.ha)


def run_on(
    options: CampaignOptions, unstarted: Stage, disturb: Callable[[Stage, History], Disturbance]
) -> tuple[Report, History]:
    """The same on a given stage with another disturbance than the schedule of the options."""
    began = time.monotonic()
    with unstarted as stage:
        history = History(options.seed, attempt_seconds_max=options.attempt_seconds_max)
        timings = {"start": time.monotonic() - began}
        return asyncio.run(_play(options, stage, history, timings, disturb)), history


def _faults_of(options: CampaignOptions) -> Callable[[Stage, History], Disturbance]:
    def disturb(stage: Stage, history: History) -> Disturbance:
        faults = plan_faults(options.seed, options.seconds - CALM_SECONDS, stage.targets, options.fault_every_seconds)
        return Injurer(stage, history, faults)

    return disturb


async def _play(
    options: CampaignOptions,
    stage: Stage,
    history: History,
    timings: dict[str, float],
    disturb: Callable[[Stage, History], Disturbance],
) -> Report:
    watch = NodeWatch(stage.agent_directories, stage.agent_logs)
    violations: list[Violation] = []
    async with open_cast(stage, options, history) as cast:
        history.began = time.monotonic()
        history.log_age_seconds_min = LOG_AGE_SECONDS_MIN if stage.truncates else None
        subscriber = Subscriber(stage.endpoints.nats_url, history)
        listening = {one.name: one.run for one in cast.subscribers}
        rack = MachineWatch(stage, history) if isinstance(stage, RackedStage) else None
        watching = {} if rack is None else {"machine_watch": rack.run}
        nodes = {"node_watch": lambda: _look_at_nodes(watch, stage)}
        async with beside(subscriber=subscriber.run, **nodes, **watching, **listening):
            await _storm(options, stage, history, cast.clients, disturb(stage, history))
            timings["load"] = time.monotonic() - history.began
            healed = time.monotonic()
            stuck = await Settler(cast.admin, cast.tenants, history).settle(options.settle_seconds)
            stuck += await settle_hooks(
                cast.hook_owners, history, lambda: subscriber.cursor, stage.endpoints.database_url
            )
            if isinstance(stage, RackedStage):
                stuck += await MachineSettler(cast.admin, stage.places, history).settle(options.settle_seconds)
            stuck += await online(cast.admin)
            stuck += await read_fleet(cast.admin, history)
            violations += [Violation("reaches its end", sentence) for sentence in stuck]
            violations += [] if stuck else await cast.quiet.judge()
            behind = await catch_up(stage.endpoints.database_url, subscriber)
            violations += [Violation("event published", behind)] if behind else []
            violations += await read_to_the_end(cast.keepers, cast.subscribers, history)
            keeps = options.keeps_accounts
            unread = await read_books(cast.admin, stage.endpoints.database_url, history) if keeps else []
            violations += [Violation("books read", sentence) for sentence in unread]
            violations += await _judge_workflows(stage, history)
            timings["settle"] = time.monotonic() - healed
        if rack is not None:
            await rack.read_end()
            watch.stories |= stories_of(history.machines)
    judging = time.monotonic()
    watch.look()
    violations += judge_history(history)
    violations += watch.judge(history)
    violations += await asyncio.to_thread(_judge_servers, stage, history)
    violations += judge_crashes(sorted(options.directory.rglob("*.log")))
    timings["judge"] = time.monotonic() - judging
    report = make_report(history, options.seconds, options.plant)
    report.violations, report.timings = violations, timings
    return report


async def _storm(
    options: CampaignOptions, stage: Stage, history: History, clients: Sequence[AnyClient], disturbance: Disturbance
) -> None:
    """Load and faults at once; then everything is healed while the load runs out."""
    hurting = threading.Thread(target=disturbance.run, name="faults")
    stopping = asyncio.Event()
    hurting.start()
    running = [asyncio.create_task(client.run(stopping), name=type(client).__name__) for client in clients]
    try:
        await asyncio.to_thread(hurting.join)
        await heal(stage)
        # The load goes on for the chosen duration.
        await pause(max(CALM_SECONDS, history.began + options.seconds - time.monotonic()), stopping)
        stopping.set()
        for client in clients:
            client.give_up_at(time.monotonic() + 60)
        ended, late = await asyncio.wait(running, timeout=CLIENT_END_SECONDS_MAX, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            task.result()
        if late:
            raise TimeoutError(f"{sorted(task.get_name() for task in late)} go on after the end of the load")
    finally:
        disturbance.stop()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _look_at_nodes(watch: NodeWatch, stage: Stage) -> None:
    while True:
        watch.follow(stage.agent_directories, stage.agent_logs)
        await to_thread_whole(watch.look)
        await pause(NODE_LOOK_SECONDS)


async def _judge_workflows(stage: Stage, history: History) -> list[Violation]:
    """The worker may still be taking the last events; what it has not taken after a while is lost."""

    async def judge() -> list[Violation]:
        try:
            return await judge_workflows(stage.endpoints.temporal_address, history)
        except RPCError as error:
            return [Violation("event led on", f"Temporal cannot be asked: {error}")]

    return await read_until(judge, lambda found: not found, WORKER_SECONDS_MAX)


def _judge_servers(stage: Stage, history: History) -> list[Violation]:
    """`berth verify`, on the database and on the stream."""
    verdicts = run_checks(stage.endpoints.database_url)
    with suppress(StreamUnreachable):
        verdicts.append(check_stream(stage.endpoints.database_url, stage.endpoints.nats_url))
    found = [Violation(f"verify {v.promise}", sentence) for v in verdicts for sentence in v.violations]
    found += check_refusals(ended_tasks(stage.endpoints.database_url))
    found += [Violation("replay", sentence) for sentence in _replay(stage.endpoints.database_url, history)]
    if not any(verdict.promise == "P3 on NATS" for verdict in verdicts):
        found.append(Violation("verify P3 on NATS", "the stream could not be asked"))
    return found


def _replay(database_url: str, history: History) -> list[str]:
    """The reference model, driven by the whole log, must end where the tables are (tests/model). What the log has dropped is
    taken from the stream.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        sequence(connection)
        kept = read_log(connection)
        first = kept[0].version if kept else 1
        dropped = [event for version, event in sorted(history.events().items()) if version < first]
        followed = replay([*map(_event_of, dropped), *kept], beginning(connection))
        return [*followed.divergences, *differences(followed.state, read_tables(connection))]


def _event_of(delivery: Delivery) -> Event:
    assert delivery.at is not None, "the stream has the time of each event"
    return Event(
        delivery.version,
        delivery.type,
        delivery.at,
        delivery.tenant_id or "",
        delivery.operation_key or "",
        delivery.data,
    )
