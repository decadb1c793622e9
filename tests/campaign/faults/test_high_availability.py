"""Each fault of three PostgreSQL and three NATS servers begins and ends on a stage that has them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.campaign.faults.act import Act
from tests.campaign.faults.acts import ACTS
from tests.campaign.faults.catalogue import CLUSTER, NATS_MEMBER, faults
from tests.campaign.faults.effects import EFFECTS, fault_of, well
from tests.campaign.faults.high_availability import Lag, _OfCluster
from tests.campaign.injuring import surely
from tests.campaign.schedule import FaultKind
from tests.campaign.stage import Stage
from tests.proxy import Mode
from tests.support.waiting import wait_for
from tests.support.whole_stack import Whole

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

TOGETHER = [(kind, sort) for kind, sort in faults() if sort in (CLUSTER, NATS_MEMBER)]


@pytest.fixture(scope="module")
def stage(server_directory: Path) -> Iterator[Stage]:
    """One stage for all of them."""
    directory = server_directory / "faults-ha"
    with Stage(directory / "var", agents=3, ha=True) as stage:
        yield stage
    shutil.rmtree(directory, ignore_errors=True)


def whole(stage: Stage) -> bool:
    """Whether everything runs, with two standbys that confirm."""
    assert stage.cluster is not None
    routes = all(link.mode is Mode.PASS for link in stage.routes.by_name.values())
    return routes and well(stage) and stage.cluster.confirmed_primary(2) is not None


def has_moved(stage: Stage, act: Act) -> bool:
    """Whether another member leads than at the beginning, and a standby confirms its commits."""
    assert isinstance(act, _OfCluster)
    return act.cluster.confirmed_primary(1) not in (None, act.primary)


def receives_nothing(stage: Stage, act: Act) -> bool:
    assert isinstance(act, Lag)
    return {process.status() for process in act._frozen if process.is_running()} == {psutil.STATUS_STOPPED}


def nothing_confirms(stage: Stage, act: Act) -> bool:
    assert isinstance(act, _OfCluster)
    return act.cluster.confirmed_primary(1) is None


def is_cut_off(stage: Stage, act: Act) -> bool:
    modes = {name: link.mode for name, link in stage.routes.by_name.items() if act.fault.target in name.split(" > ")}
    return len(modes) == 4 and set(modes.values()) == {Mode.CUT}


SEEN: dict[FaultKind, Callable[[Stage, Act], bool]] = {
    FaultKind.PRIMARY_KILLED: has_moved,
    FaultKind.PRIMARY_LOST: has_moved,
    FaultKind.PRIMARY_FROZEN: has_moved,
    FaultKind.SWITCHOVER: has_moved,
    FaultKind.LAG: receives_nothing,
    FaultKind.STANDBYS_LOST: nothing_confirms,
    FaultKind.PARTITION: is_cut_off,
}
"""What shows that the fault is there; of the other kinds as for single servers."""


def is_there(stage: Stage, act: Act) -> bool:
    kind = act.fault.kind
    return SEEN[kind](stage, act) if kind in SEEN else EFFECTS[kind](stage, act.fault)


@pytest.mark.parametrize(("kind", "sort"), TOGETHER, ids=[f"{kind} {sort}" for kind, sort in TOGETHER])
def test_a_fault_begins_and_ends(stage: Stage, kind: FaultKind, sort: str) -> None:
    wait_for(lambda: whole(stage), "all is well before")
    act = ACTS[kind](stage, fault_of(kind, sort, stage.targets))
    try:
        surely(act.begin, "begin", 60.0)
        wait_for(lambda: is_there(stage, act), "the effect")
    finally:
        surely(act.end, "end", 60.0)
    wait_for(lambda: whole(stage), "all is well afterwards", 120.0)
    if kind is FaultKind.SWITCHOVER:
        assert isinstance(act, _OfCluster)
        assert act.cluster.confirmed_primary(1) is act.primary, "failed back"


def test_after_all_faults_an_allocation_becomes_active(stage: Stage) -> None:
    wait_for(lambda: whole(stage), "all is well before")
    there = Whole(stage)
    tenant = there.tenant()
    made = tenant.create()
    assert tenant.wait(made, "active", "failed").status == "active"
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")
    wait_for(lambda: there.waiting_events() == 0, "every event has its place in the log")
    assert there.violations() == []
