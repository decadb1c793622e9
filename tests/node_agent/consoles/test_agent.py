"""The agent serves a console to the process that proves itself, within bounds, until its task, its guest or that process ends."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psutil
import pytest

from node_agent.protocol import FailureCode, TaskType
from node_agent.wire.console import DATA, END
from tests.node_agent.agents import AgentProcess, Tenant, release
from tests.node_agent.conftest import Play
from tests.node_agent.consoles.played_process import PlayedProcess, report_of
from tests.node_agent.control_plane import ControlPlane

GROWTH_BYTES_MAX = 32 * 2**20


async def provisioned(plane: ControlPlane, tenant: Tenant, slot: int = 2) -> uuid.UUID:
    allocation = uuid.uuid4()
    task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([slot]), allocation))
    assert (await plane.result_of(task)).outcome == "completed"
    return allocation


def test_a_console_is_served_with_the_certificate_of_the_node(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        assert "console" in plane.heartbeats[-1].features
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(allocation)
            await link.output_until(f"sandbox console of {allocation}".encode())
            await link.send(DATA, b"typed\n")
            await link.output_until(b"typed\r\ntyped\r\n")
            await link.send(END, json.dumps({"reason": "tenant_ended"}).encode())
            report = report_of(await plane.result_of(task_id))
            assert (report.reason, report.bytes_to_guest, report.bytes_dropped) == ("tenant_ended", 6, 0)
            assert report.bytes_from_guest > 14
            assert process.peers == [plane.peers[-1]]
            assert "typed" not in agent.log

    play(scenario)


def test_a_process_that_does_not_know_the_secret_gets_nothing(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        async with PlayedProcess(plane).listening() as process:
            process.welcome = b"another secret"
            task_id, link = await process.attach(allocation)
            failure = (await plane.result_of(task_id)).failure
            assert failure is not None
            assert "did not prove" in failure.detail
            assert await link.end() is None, "no byte of the guest"

    play(scenario)


@pytest.mark.quick("changes0")
@pytest.mark.parametrize(
    "changes", [{"dial_until": "2020-01-01T00:00:00Z"}, {"port": 1}, {"host": "localhost.invalid"}]
)
def test_a_process_that_is_not_there_in_time_is_given_up(play: Play, changes: dict[str, Any]) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        task_id = await plane.hand_out(PlayedProcess(plane).task(allocation, **changes))
        assert (await plane.result_of(task_id)).outcome == "failed"

    play(scenario)


def test_parameters_that_are_none_are_refused(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        process = PlayedProcess(plane)
        for changes in ({"mode": "write"}, {"port": 0}, {"secret_sha256": "x"}, {"bytes_max": 2**40}):
            failure = (await plane.result_of(await plane.hand_out(process.task(uuid.uuid4(), **changes)))).failure
            assert failure is not None
            assert failure.code is FailureCode.TASK_REFUSED

    play(scenario)


def test_without_a_guest_there_is_no_console(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(uuid.uuid4())
            end = await link.end()
            assert end is not None
            assert end["reason"] == "no_guest"
            assert report_of(await plane.result_of(task_id)).reason == "no_guest"

    play(scenario)


def test_the_noop_driver_has_no_console(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        async with PlayedProcess(plane).listening() as process:
            _, link = await process.attach(uuid.uuid4())
            end = await link.end()
            assert end is not None
            assert end["reason"] == "no_console"

    play(scenario, BERTH_AGENT_DRIVER="noop")


@pytest.mark.full
def test_a_release_ends_the_session_and_does_not_wait_for_it(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(allocation, seconds=600.0)
            await link.output_until(b"sandbox console")
            released = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([2]), allocation))
            end = await link.end()
            assert end is not None
            assert end["reason"] == "guest_ended"
            assert (await plane.result_of(released)).outcome == "completed"
            assert report_of(await plane.result_of(task_id)).reason == "guest_ended"

    play(scenario)


@pytest.mark.full
def test_a_newer_session_takes_over_and_an_older_one_does_not(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        async with PlayedProcess(plane).listening() as process:
            older = process.task(allocation)
            _, first = await process.attach(allocation)
            await first.output_until(b"sandbox console")
            _, second = await process.attach(allocation)
            end = await first.end()
            assert end is not None
            assert end["reason"] == "superseded"
            await second.output_until(b"sandbox console")
            await plane.hand_out(older)
            end = await (await process.arrived.get()).end()
            assert end is not None
            assert end["reason"] == "superseded"
            await second.send(DATA, b"mine\n")
            await second.output_until(b"mine")
            released = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([2]), allocation))
            end = await second.end()
            assert end is not None
            assert end["reason"] == "guest_ended", "the older one did not take its place"
            assert (await plane.result_of(released)).outcome == "completed"

    play(scenario)


@pytest.mark.full
def test_the_session_ends_with_its_task(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(allocation, seconds=3.0)
            end = await link.end()
            assert end is not None
            assert end["reason"] == "deadline"
            assert report_of(await plane.result_of(task_id)).reason == "deadline"

    play(scenario)


@pytest.mark.full
def test_a_flood_beside_a_process_that_reads_nothing_is_dropped_and_counted(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        assert agent.process is not None
        watched = psutil.Process(agent.process.pid)
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(allocation, seconds=25.0)
            await link.output_until(b"sandbox console")
            before = watched.memory_info().rss
            link.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await link.send(DATA, b"print 30000000\n")
            peak = before
            for _ in range(200):  # the guest prints 10 MB each second at most
                beats = len(plane.heartbeats)
                await plane.until(lambda beats=beats: len(plane.heartbeats) > beats)  # type: ignore[misc]
                peak = max(peak, watched.memory_info().rss)
                if len(plane.heartbeats) > 40:
                    break
            assert peak - before < GROWTH_BYTES_MAX
            link.writer.transport.resume_reading()  # type: ignore[attr-defined]
            end = await link.end()
            assert end is not None
            report = report_of(await plane.result_of(task_id))
            assert report.bytes_dropped == link.dropped > 1_000_000
            assert report.bytes_from_guest + report.bytes_dropped >= 30_000_000

    play(scenario)


@pytest.mark.full
def test_a_killed_agent_ends_the_session_and_its_successor_reports_it(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        async with PlayedProcess(plane).listening() as process:
            task_id, link = await process.attach(allocation, seconds=600.0)
            await link.output_until(b"sandbox console")
            agent.kill()
            assert await link.end() is None
            agent.start()
            report = await plane.result_of(task_id)
            assert report.failure is not None
            assert report.failure.code is FailureCode.INTERRUPTED
            _, again = await process.attach(allocation)
            await again.output_until(b"sandbox console")

    play(scenario)


@pytest.mark.full
def test_the_log_is_sent_in_parts(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = await provisioned(plane, tenant)
        log = next(agent.guest_directory(allocation).glob("*.log"))
        log.write_bytes(b"0123456789" * 5_000)
        async with PlayedProcess(plane).listening() as process:
            for offset, bytes_max, begins, wanted in (
                (0, 40_000, 0, 40_000), (-10, 100, 49_990, 10), (-10**9, 5, 0, 5), (49_999, 10, 49_999, 1),
                (10**9, 10, 50_000, 0),
            ):  # fmt: skip
                task_id, link = await process.attach(allocation, mode="log", offset=offset, bytes_max=bytes_max)
                end = await link.end()
                assert end == {"reason": "log_sent", "detail": "", "offset": begins}
                assert report_of(await plane.result_of(task_id)).bytes_from_guest == wanted
            _, link = await process.attach(uuid.uuid4(), mode="log", bytes_max=10)
            end = await link.end()
            assert end is not None
            assert end["reason"] == "no_guest"

    play(scenario)
