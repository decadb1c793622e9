"""The schedule is the seed's: replayable, inside its time, and no target is hurt twice at once."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from tests.campaign.schedule import DETAILS, SECONDS, Fault, FaultKind, Targets, parts_of, plan_faults

TARGETS = Targets(
    processes=["api", "worker", "worker-2", "agent a"],
    servers=["postgres", "nats"],
    links=["api > postgres"],
    nodes=["a"],
    agents=["agent a"],
    rolls={"worker": ["worker", "worker-2"]},
    clocks=["api", "worker-2"],
    fsyncs=["postgres"],
    disks=["postgres", "nats"],
    database=["postgres"],
    stores=["nats"],
    cluster=["postgres cluster"],
    members=["nats-1"],
    bmcs=["bmcs"],
    machines=["machine-1"],
)
SEEDS = st.integers(min_value=0, max_value=2**32)


@given(SEEDS, st.floats(min_value=0, max_value=120), st.floats(min_value=0.2, max_value=10))
def test_a_seed_is_a_schedule(seed: int, seconds: float, every_seconds: float) -> None:
    faults = plan_faults(seed, seconds, TARGETS, every_seconds)
    assert faults == plan_faults(seed, seconds, TARGETS, every_seconds)
    for fault in faults:
        low, high = SECONDS[fault.kind]
        assert low <= fault.seconds <= high
        assert 0 < fault.at <= fault.until <= seconds + 0.002
        assert bool(fault.detail) is (fault.kind in DETAILS)
    by_target: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        for part in parts_of(fault.target, TARGETS):
            by_target[part].append(fault)
    for hurt in by_target.values():
        for one, next_ in zip(hurt, hurt[1:], strict=False):  # noqa: RUF007
            assert one.until < next_.at


@given(SEEDS)
def test_only_what_is_there_is_hurt(seed: int) -> None:
    faults = plan_faults(seed, 60, Targets(processes=["api"], servers=["postgres"]))
    assert {fault.target for fault in faults} <= {"api", "postgres"}
    assert {fault.kind for fault in faults} <= {FaultKind.KILL, FaultKind.PAUSE, FaultKind.STARVE, FaultKind.RESTART}


def test_seeds_differ_and_every_kind_comes_up() -> None:
    schedules = [plan_faults(seed, 600, TARGETS) for seed in range(5)]
    assert len({tuple(schedule) for schedule in schedules}) == 5
    assert {fault.kind for schedule in schedules for fault in schedule} == set(FaultKind)
