"""Each fault of the catalogue begins and ends on a stage: its effect is there in between, and all runs afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from tests.campaign.faults import catalogue
from tests.campaign.faults.acts import ACTS
from tests.campaign.faults.catalogue import CATALOGUE, faults
from tests.campaign.faults.effects import EFFECTS, fault_of, interposed, query, well
from tests.campaign.injuring import surely
from tests.campaign.machines.stage import RackedStage
from tests.campaign.schedule import SECONDS, Fault, FaultKind
from tests.campaign.stage import Stage
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
    with RackedStage(directory / "var", agents=3, machines=1) as stage:
        yield stage
    shutil.rmtree(directory, ignore_errors=True)


PAST = {FaultKind.ROLL, FaultKind.TERMINATE}
"""Over when they have begun: other processes, and other sessions, are there than before."""


def there_now(stage: Stage, fault: Fault) -> set[int]:
    """The processes of the sort, or the sessions of the role."""
    if fault.kind is FaultKind.TERMINATE:
        rows = query(stage, "select pid from pg_stat_activity where usename = %s", fault.detail)
        return {int(str(pid)) for (pid,) in rows}
    return {stage.pid_of(name) for name in stage.targets.rolls[fault.target.removeprefix("every ")]}


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
def test_after_all_faults_an_allocation_becomes_active(stage: Stage) -> None:
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


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_deploy_system_dies_in_a_step_and_its_run_ends_undone(stage: Stage) -> None:
    assert isinstance(stage, RackedStage)
    wait_for(lambda: well(stage), "all is well before")
    (place,) = stage.places
    fault = Fault(0.0, FaultKind.DEPLOY_KILLED, place.name, 2.0)
    act = ACTS[fault.kind](stage, fault)
    with stage.admin() as admin:
        node = admin.get_node(place.name)
        admin.cordon_node(node.id)
        act.begin()
        try:
            admin.run_deploy_system(node.id)
            wait_for(lambda: any(line["what"] == "killed" for line in place.seen()), "it dies", 60.0)
        finally:
            act.end()
        wait_for(lambda: admin.get_deploy_run(node.id).outcome is not None, "the run ends by its deadline", 180.0)
        run, left = admin.get_deploy_run(node.id), place.read("bmc")
        assert (run.outcome, left["power"], left["image"]) == ("failed", "Off", None), run
        admin.uncordon_node(node.id)
