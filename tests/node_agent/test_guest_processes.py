"""Whatever a tenant starts or leaves lying about in a guest is gone after the release."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from pathlib import Path

import asyncssh
import pytest

from node_agent.drivers.sandbox.processes import start_ticks
from node_agent.drivers.sandbox.records import AllocationDirectory
from node_agent.drivers.wipe import wipe, wipe_content
from node_agent.protocol import TaskType
from tests.node_agent.agents import AgentProcess, Tenant, connection_of, release
from tests.node_agent.conftest import Play
from tests.node_agent.control_plane import ControlPlane
from tests.support.waiting import async_wait_for

DAEMON = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"


def test_daemons_end_with_their_allocation_gracefully_or_after_the_guest_crashed(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        for crash in (False, True):
            allocation = uuid.uuid4()
            task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation))
            connection = connection_of((await plane.result_of(task)).result)
            daemon = int(await tenant.run(connection, DAEMON))
            assert start_ticks(daemon) is not None
            guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
            assert guest is not None
            if crash:
                os.kill(guest.pid, signal.SIGKILL)
            task = await plane.hand_out(plane.body(TaskType.VM_RELEASE, release([0]), allocation))
            report = await plane.result_of(task)
            assert report.outcome == "completed", report
            assert report.result is not None
            assert report.result["evidence"]["guest"]["orphans_killed"] == int(crash)
            assert start_ticks(daemon) is None
            assert start_ticks(guest.pid) is None

    play(scenario)


def test_a_shell_on_a_terminal_and_exit_codes_and_streams(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0]), uuid.uuid4()))
        connection = connection_of((await plane.result_of(task)).result)
        known = asyncssh.import_known_hosts(f"[{connection.host}]:{connection.port} {connection.host_key}")
        async with asyncssh.connect(
            connection.host, connection.port, username="tenant", client_keys=[tenant.key], known_hosts=known,
            config=None, agent_path=None,
        ) as login:  # fmt: skip
            terminal = await login.run(
                "stty size; tty -s && echo terminal", term_type="vt100", term_size=(91, 37), stdin=asyncssh.DEVNULL
            )
            assert str(terminal.stdout).replace("\r", "") == "37 91\nterminal\n"
            shell = await login.run(term_type="vt100", input="cd /; pwd; exit 7\n")
            assert shell.exit_status == 7
            assert "/\n" in str(shell.stdout).replace("\r", ""), "what pwd says; the echo of the input has no such line"
            piped = await login.run("cat; echo wrong >&2; exit 3", input="through\n")
            assert (piped.stdout, piped.stderr, piped.exit_status) == ("through\n", "wrong\n", 3)
            big = await login.run("head -c 3000000 /dev/zero | tr '\\0' x")
            assert len(str(big.stdout)) == 3_000_000
            killed = await login.run("kill -9 $$")
            assert killed.exit_signal is not None
            assert killed.exit_signal[0] == "KILL"
            longest = await login.create_process("echo $$; exec sleep 1000")
            pid = int(await longest.stdout.readline())
        await async_wait_for(lambda: start_ticks(pid) is None, "the guest's process to end")

    play(scenario)


@pytest.mark.full
def test_a_guest_whose_directory_is_taken_away_ends_by_itself(play: Play) -> None:
    async def scenario(plane: ControlPlane, agent: AgentProcess, tenant: Tenant) -> None:
        allocation = uuid.uuid4()
        task = await plane.hand_out(plane.body(TaskType.VM_PROVISION, tenant.provision([0]), allocation))
        assert (await plane.result_of(task)).outcome == "completed"
        guest = AllocationDirectory(agent.guest_directory(allocation)).guest_state()
        assert guest is not None
        agent.kill()
        shutil.rmtree(agent.state_dir)
        await async_wait_for(lambda: start_ticks(guest.pid) is None, "the guest to end")

    play(scenario)


def test_wiping_removes_what_a_tenant_made_hard_to_remove(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("not the tenant's")
    directory = tmp_path / "allocation"
    locked = directory / "locked"
    locked.mkdir(parents=True)
    (locked / "file").write_bytes(b"x" * 1000)
    (directory / "link").symlink_to(kept)
    (directory / "dangling").symlink_to("nowhere")
    deep = directory
    for _ in range(300):
        deep = deep / "deeper"
        deep.mkdir()
    locked.chmod(0)
    wiped = wipe(directory)
    assert not directory.exists()
    assert wiped.files >= 2
    assert kept.read_text() == "not the tenant's"
    assert wipe(directory).files == 0, "wiping nothing is fine"


def test_emptying_a_directory_keeps_it_with_its_mode(tmp_path: Path) -> None:
    """QEMU's user passes through the directory of a guest that is rebuilt."""
    (tmp_path / "guest" / "inner").mkdir(parents=True)
    (tmp_path / "guest" / "inner" / "file").write_text("x")
    (tmp_path / "guest" / "link").symlink_to(tmp_path)
    (tmp_path / "guest").chmod(0o711)
    wipe_content(tmp_path / "guest")
    assert list((tmp_path / "guest").iterdir()) == []
    assert (tmp_path / "guest").stat().st_mode & 0o777 == 0o711
    assert wipe_content(tmp_path / "missing").files == 0
