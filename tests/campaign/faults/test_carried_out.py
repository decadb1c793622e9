"""Each fault of the catalogue begins and ends on a stage: its effect is there in between, and all runs afterwards."""

from __future__ import annotations

import re
import resource
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from migrations.roles import Role
from node_agent.identity import IdentityStore, validity
from tests.campaign.faults import catalogue
from tests.campaign.faults.acts import ACTS
from tests.campaign.faults.catalogue import CATALOGUE, faults, sort_of
from tests.campaign.faults.links import MODES
from tests.campaign.injuring import surely
from tests.campaign.schedule import DETAILS, SECONDS, Fault, FaultKind, Targets, candidates
from tests.campaign.stage import Stage
from tests.proxy import Mode
from tests.support.waiting import wait_for
from tests.support.whole_stack import Whole

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "campaign.md"
ALONE = [(kind, sort) for kind, sort in faults() if sort not in (catalogue.CLUSTER, catalogue.NATS_MEMBER)]


def test_every_kind_has_an_act_a_length_and_a_place_in_the_catalogue() -> None:
    assert set(ACTS) == set(SECONDS) == {entry.kind for entry in CATALOGUE} == set(FaultKind)


def test_there_are_as_many_faults_as_the_page_says() -> None:
    count = len(list(faults()))
    assert count >= 30
    assert f"{len(CATALOGUE)} kinds, {count} with their sorts of targets" in PAGE.read_text()


def test_the_page_has_the_table() -> None:
    assert "\n".join(catalogue.table()) in PAGE.read_text()


@pytest.fixture(scope="module")
def stage(server_directory: Path) -> Iterator[Stage]:
    """One stage for all faults but those of several servers."""
    directory = server_directory / "faults"
    with Stage(directory / "var", agents=3) as stage:
        yield stage
    shutil.rmtree(directory, ignore_errors=True)


def fault_of(kind: FaultKind, sort: str, targets: Targets, seconds: float = 2.0) -> Fault:
    """A fault of this kind at the first target of this sort."""
    target = next(target for target in candidates(kind, targets) if sort_of(kind, target) == sort)
    return Fault(0.0, kind, target, seconds, DETAILS[kind][0] if kind in DETAILS else "")


def statuses(stage: Stage, fault: Fault) -> set[str]:
    return {psutil.Process(stage.pid_of(fault.target)).status()}


def query(stage: Stage, statement: str, *values: object) -> list[tuple[object, ...]]:
    with psycopg.connect(stage.endpoints.database_url, autocommit=True, connect_timeout=5) as connection:
        return connection.execute(statement.encode(), values).fetchall()


def expired(stage: Stage, fault: Fault) -> bool:
    identity = IdentityStore(stage.state.agent(fault.target.removeprefix("agent "))).load()
    assert identity is not None
    return validity(identity.credentials.certificate_pem).not_after < datetime.now(UTC)


def cannot_grow(stage: Stage, fault: Fault) -> bool:
    if fault.target != "postgres":
        return resource.prlimit(stage.pid_of(fault.target), resource.RLIMIT_FSIZE)[0] == 1
    try:
        with psycopg.connect(stage.endpoints.database_url, connect_timeout=5) as connection:
            connection.execute("create table filling as select repeat('x', 1000) from generate_series(1, 100000)")
            connection.rollback()
    except psycopg.errors.DiskFull:
        return True
    except psycopg.Error:
        return False
    return False


def refused(stage: Stage, fault: Fault) -> bool:
    url = stage.endpoints.database_url_of(Role(fault.detail))
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError as error:
        return re.search("too many|reserved", str(error)) is not None
    return False


def locked(stage: Stage, fault: Fault) -> bool:
    found = query(stage, "select mode from pg_locks where relation = %s::regclass", fault.detail)
    return ("AccessExclusiveLock",) in found


def interposed(stage: Stage, fault: Fault) -> bool:
    return "interposed.so" in Path(f"/proc/{stage.pid_of(fault.target)}/maps").read_text()


EFFECTS: dict[FaultKind, Callable[[Stage, Fault], bool]] = {
    FaultKind.KILL: lambda stage, fault: stage.ends(fault.target),
    FaultKind.RESTART: lambda stage, fault: stage.ends(fault.target),
    FaultKind.PAUSE: lambda stage, fault: statuses(stage, fault) == {"stopped"},
    FaultKind.STARVE: lambda stage, fault: statuses(stage, fault) == {"stopped"},
    FaultKind.CLOCK: interposed,
    FaultKind.SLOW_FSYNC: interposed,
    FaultKind.FULL: cannot_grow,
    FaultKind.EXPIRE: expired,
    FaultKind.EXHAUST: refused,
    FaultKind.LOCK: locked,
    FaultKind.OPEN_TRANSACTION: lambda stage, fault: bool(
        query(stage, "select from pg_stat_activity where backend_xid is not null and state = 'idle in transaction'")
    ),
    FaultKind.WIPE: lambda stage, fault: not (stage.server(fault.target).directory / "jetstream").exists(),
    FaultKind.VANISH: lambda stage, fault: stage.links.by_name[fault.target].vanished > 0,
    FaultKind.BREAK: lambda stage, fault: (
        query(stage, "select faults from nodes where name = %s", fault.target) == [({fault.detail: "1"},)]
    ),
    **dict.fromkeys(MODES, lambda stage, fault: stage.links.by_name[fault.target].mode is MODES[fault.kind]),
}
"""What shows that the fault is there."""
PAST = {FaultKind.ROLL, FaultKind.TERMINATE}
"""Over when they have begun: other processes, and other sessions, are there than before."""


def there_now(stage: Stage, fault: Fault) -> set[int]:
    """The processes of the sort, or the sessions of the role."""
    if fault.kind is FaultKind.TERMINATE:
        rows = query(stage, "select pid from pg_stat_activity where usename = %s", fault.detail)
        return {int(str(pid)) for (pid,) in rows}
    return {stage.pid_of(name) for name in stage.targets.rolls[fault.target.removeprefix("every ")]}


def well(stage: Stage) -> bool:
    """Whether everything runs and nothing is hurt any more."""
    answering = all(stage.answers(name) for name in stage.process_names)
    return answering and stage.dead() == [] and all(p.mode is Mode.PASS for p in stage.links.by_name.values())


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("kind", "sort"), ALONE, ids=[f"{kind} {sort}" for kind, sort in ALONE])
def test_a_fault_begins_and_ends(stage: Stage, kind: FaultKind, sort: str) -> None:
    wait_for(lambda: well(stage), "all is well before")
    fault = fault_of(kind, sort, stage.targets)
    act = ACTS[kind](stage, fault)
    before = there_now(stage, fault) if kind in PAST else set()
    try:
        surely(act.begin, "begin", 30.0)
        if kind in PAST:
            assert before
            wait_for(lambda: not before & there_now(stage, fault), "all are others")
        else:
            wait_for(lambda: EFFECTS[kind](stage, fault), "the effect", 30.0)
    finally:
        surely(act.end, "end", 60.0)
    wait_for(lambda: well(stage), "all is well afterwards", 60.0)
    if kind not in PAST and kind not in (FaultKind.VANISH, FaultKind.WIPE, FaultKind.CLOCK, FaultKind.SLOW_FSYNC):
        wait_for(lambda: not EFFECTS[kind](stage, fault), "the effect is over", 60.0)


@pytest.mark.full
@pytest.mark.timeout(180)
def test_after_all_faults_an_allocation_lives(stage: Stage) -> None:
    wait_for(lambda: well(stage), "all is well before")
    whole = Whole(stage)
    tenant = whole.tenant()
    made = tenant.create()
    assert tenant.wait(made, "active", "failed").status == "active"
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    assert whole.violations() == []


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", ["postgres", "agent eu-1-slice-1"])
def test_a_slow_fsync_is_felt(stage: Stage, name: str) -> None:
    wait_for(lambda: well(stage), "all is well before")
    fault = Fault(0.0, FaultKind.SLOW_FSYNC, name, 2.0)
    act = ACTS[fault.kind](stage, fault)
    act.begin()
    try:
        began = datetime.now(UTC)
        if name == "postgres":
            query(stage, "select pg_logical_emit_message(true, 'test', 'durable')")
            assert (datetime.now(UTC) - began).total_seconds() >= 0.2
        else:
            assert interposed(stage, fault)
    finally:
        act.end()


@pytest.mark.full
@pytest.mark.timeout(180)
@pytest.mark.parametrize("offset", ["+3600", "-3600"])
def test_the_clock_of_a_running_process_steps(stage: Stage, offset: str) -> None:
    wait_for(lambda: well(stage), "all is well before")
    fault = Fault(0.0, FaultKind.CLOCK, "api", 2.0, offset)
    act = ACTS[fault.kind](stage, fault)
    try:
        act.begin()
        problem = httpx.get(f"{stage.endpoints.api_url}/no/such/page").json()
        told = datetime.fromisoformat(problem["server_time"].replace("Z", "+00:00"))
        assert (told - datetime.now(UTC)).total_seconds() == pytest.approx(int(offset), abs=60)
    finally:
        act.end()
