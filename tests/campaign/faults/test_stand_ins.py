"""Acts on small stand-ins for the stage: what they do is there while they last, and gone afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import psycopg
import pytest

from migrations.roles import Role
from tests.campaign.faults import acts
from tests.campaign.faults.act import Act
from tests.campaign.faults.acts import ACTS
from tests.campaign.faults.disks import SmallDisk
from tests.campaign.history import History
from tests.campaign.injuring import Injurer, surely
from tests.campaign.schedule import Fault, FaultKind
from tests.databases import as_role
from tests.support.waiting import wait_for


def act_on(stage: object, kind: FaultKind, target: str, detail: str = "") -> Act:
    """An act on a stand-in."""
    return ACTS[kind](stage, Fault(0.0, kind, target, 0.5, detail))  # type: ignore[arg-type]


@pytest.fixture
def database_stage(database_url: str) -> Any:
    """A stage that has a database alone."""
    return SimpleNamespace(endpoints=SimpleNamespace(database_url=database_url))


def test_every_session_of_a_role_is_ended(database_stage: Any, database_url: str) -> None:
    with (
        psycopg.connect(as_role(database_url, Role.RELAY), autocommit=True) as relay,
        psycopg.connect(as_role(database_url, Role.WORKER), autocommit=True) as worker,
    ):
        act = act_on(database_stage, FaultKind.TERMINATE, "postgres", Role.RELAY)
        act.begin()
        with pytest.raises(psycopg.OperationalError):
            relay.execute("select 1")
        assert worker.execute("select 1").fetchone() == (1,)
        act.end()


def test_a_table_is_locked_until_the_end(database_stage: Any, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as client:
        client.execute("set lock_timeout = '100ms'")
        act = act_on(database_stage, FaultKind.LOCK, "postgres", "allocations")
        act.begin()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            client.execute("select from allocations")
        act.end()
        client.execute("select from allocations")


def test_an_open_transaction_sees_that_events_go_on(database_stage: Any, database_url: str) -> None:
    is_open = "select count(*) from pg_stat_activity where backend_xid is not null and datname = current_database()"
    with psycopg.connect(database_url, autocommit=True) as client:
        act = act_on(database_stage, FaultKind.OPEN_TRANSACTION, "postgres")
        act.begin()
        assert client.execute(is_open).fetchone() == (1,)
        act.end()
        wait_for(lambda: client.execute(is_open).fetchone() == (0,), "the session is over")
        assert act.observed == []


class OneProcess:
    """A stage that has one process."""

    def __init__(self, process: psutil.Process) -> None:
        self.process = process

    def family_of(self, _: str) -> list[psutil.Process]:
        return [self.process]

    def pause(self, _: str) -> None:
        self.process.suspend()

    def resume(self, _: str) -> None:
        self.process.resume()


@pytest.fixture
def sleeper() -> Iterator[psutil.Process]:
    """A process that waits for its input."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield psutil.Process(started.pid)
        started.kill()


@pytest.mark.parametrize("kind", [FaultKind.PAUSE, FaultKind.STARVE])
def test_a_process_is_stopped_and_goes_on(sleeper: psutil.Process, kind: FaultKind) -> None:
    act = act_on(OneProcess(sleeper), kind, "it")
    act.begin()
    wait_for(lambda: sleeper.status() == psutil.STATUS_STOPPED, "it is stopped")
    if kind is FaultKind.STARVE:
        wait_for(lambda: sleeper.status() != psutil.STATUS_STOPPED, "it runs for a moment")
        wait_for(lambda: sleeper.status() == psutil.STATUS_STOPPED, "it is stopped again")
    act.end()
    wait_for(lambda: sleeper.status() != psutil.STATUS_STOPPED, "it runs again")
    assert sleeper.is_running()


def test_a_disk_is_full_and_has_room_again(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    disk = SmallDisk.mount(directory, 1 << 20)
    if disk is None:
        pytest.skip("this user may not mount a tmpfs")
    content = os.urandom(100_000)
    try:
        (directory / "kept").write_bytes(content)
        disk.fill()
        with pytest.raises(OSError, match="No space left") as full:
            (directory / "more").write_bytes(content)
        assert full.value.errno == errno.ENOSPC
        disk.give_room()
        (directory / "more").write_bytes(content)
    finally:
        disk.leave()
    assert not os.path.ismount(directory)
    assert (directory / "kept").read_bytes() == (directory / "more").read_bytes() == content


def test_what_a_killed_campaign_left_is_unmounted(tmp_path: Path) -> None:
    directory = tmp_path / "disk"
    if SmallDisk.mount(directory, 1 << 20) is None:
        pytest.skip("this user may not mount a tmpfs")
    SmallDisk.forget(directory)
    assert not os.path.ismount(directory)
    SmallDisk.forget(directory)


class Noting(Act):
    """Fails twice to begin, and sees something."""

    calls: list[str] = []  # noqa: RUF012 - shared on purpose

    def begin(self) -> None:
        self.calls.append("begin")
        if self.calls.count("begin") < 3 or self.fault.target == "never":
            raise OSError("not yet")
        self.observed.append(("log moves", "events wait"))

    def end(self) -> None:
        self.calls.append("end")


def test_a_fault_is_begun_until_it_succeeds_ended_once_and_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noting, "calls", [])
    monkeypatch.setitem(acts.ACTS, FaultKind.KILL, Noting)
    history = History(seed=0)
    Injurer(SimpleNamespace(), history, [Fault(0.0, FaultKind.KILL, "it", 0.1)]).run()  # type: ignore[arg-type]
    assert Noting.calls == ["begin", "begin", "begin", "end"]
    assert history.observed == [("log moves", "events wait")]
    (injury,) = history.injuries
    assert (injury.error, injury.ended is not None) == (None, True)


def test_what_never_begins_raises_its_cause() -> None:
    act = act_on(SimpleNamespace(), FaultKind.KILL, "never")
    with pytest.raises(AttributeError):
        surely(act.begin, "begin", 0.1)
