"""The rules of health: an outage begins once, becomes lost at most once, ends once, and lost is left only by a sight of life."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import sampled_from

from node_agent.settings import Settings as AgentSettings
from orchestrator.allocations.health import (
    HEALTHY,
    Condition,
    Health,
    HealthDeadlines,
    OutageCause,
    Sight,
    condition_after,
    condition_after_deadline,
)
from orchestrator.operations.execution import Limits
from worker.settings import Settings as WorkerSettings

DEADLINES = HealthDeadlines(lost_seconds=5, release_seconds=9)


class Outages(RuleBasedStateMachine):
    """Sights and deadlines in any order, compared with the changes that were announced."""

    def __init__(self) -> None:
        super().__init__()
        self.now = HEALTHY
        self.announced: list[Condition] = []
        self.last_sight = Sight.ALIVE

    def _take(self, to: Condition | None) -> None:
        if to is not None:
            assert to != self.now, "what is announced is a change"
            assert to.health is not self.now.health or self.now.cause is OutageCause.GUEST_UNREACHABLE, (
                "or an outage begins"
            )
            self.now = to
            self.announced.append(to)

    @rule(sight=sampled_from(Sight))
    def see(self, sight: Sight) -> None:
        was = self.now
        self.last_sight = sight
        self._take(condition_after(was, sight))
        runs = sight in (Sight.ALIVE, Sight.UNREACHABLE)
        assert (self.now.health is Health.HEALTHY or self.now.cause is OutageCause.GUEST_UNREACHABLE) == runs
        if was.health is Health.LOST and not runs:
            assert self.now == was
        if sight is Sight.UNREACHABLE and was.cause not in (None, OutageCause.GUEST_UNREACHABLE):
            assert self.now == HEALTHY, "its outage is over"
            self._take(condition_after(self.now, sight))
        if sight is Sight.ENDED:
            assert self.now.health is Health.LOST
        assert condition_after(self.now, sight) is None, "a repeated sight changes nothing"

    @rule()
    def pass_deadline(self) -> None:
        was = self.now
        if DEADLINES.seconds_of(was) is None:
            assert was.health is Health.HEALTHY or was.cause is OutageCause.GUEST_UNREACHABLE
            return
        self._take(condition_after_deadline(was))
        assert (self.now.health is Health.HEALTHY) == (was.health is Health.HEALTHY)
        assert self.now.cause is was.cause
        assert condition_after_deadline(self.now) is None

    @invariant()
    def causes_belong_to_outages(self) -> None:
        assert (self.now.cause is None) == (self.now.health is Health.HEALTHY)

    @invariant()
    def recoveries_end_outages(self) -> None:
        begun = [c for c in self.announced if c != HEALTHY]
        recovered = self.announced.count(HEALTHY)
        assert recovered <= len(begun)
        assert all(a is not b for a, b in zip(self.announced, self.announced[1:], strict=False))


TestOutages = Outages.TestCase


def test_each_sight_of_a_healthy_allocation_has_its_condition() -> None:
    found = {sight: condition_after(HEALTHY, sight) for sight in Sight}
    assert found == {
        Sight.ALIVE: None,
        Sight.UNREACHABLE: Condition(Health.DEGRADED, OutageCause.GUEST_UNREACHABLE),
        Sight.DOWN: Condition(Health.DEGRADED, OutageCause.GUEST_DOWN),
        Sight.ENDED: Condition(Health.LOST, OutageCause.GUEST_DOWN),
        Sight.GONE: Condition(Health.DEGRADED, OutageCause.GUEST_GONE),
        Sight.SILENT: Condition(Health.DEGRADED, OutageCause.NODE_SILENT),
    }


def test_only_a_lost_allocation_may_be_kept_without_a_deadline_and_an_unreachable_one_runs() -> None:
    keep = HealthDeadlines(lost_seconds=5, release_seconds=0)
    outages = [cause for cause in OutageCause if cause is not OutageCause.GUEST_UNREACHABLE]
    for cause in outages:
        assert keep.seconds_of(Condition(Health.DEGRADED, cause)) == 5
        assert keep.seconds_of(Condition(Health.LOST, cause)) is None
        assert DEADLINES.seconds_of(Condition(Health.LOST, cause)) == 9
    assert DEADLINES.seconds_of(HEALTHY) is None
    assert DEADLINES.seconds_of(Condition(Health.DEGRADED, OutageCause.GUEST_UNREACHABLE)) is None


def test_by_default_an_outage_is_noticed_within_30_s_and_a_lost_allocation_is_released_after_a_day() -> None:
    agent, worker = AgentSettings.model_fields, WorkerSettings.model_fields
    seen, sent = (agent[name].default for name in ("agent_guest_check_seconds", "agent_heartbeat_seconds"))
    assert seen + sent <= 30
    assert sent < worker["node_silent_seconds"].default <= 30
    assert worker["lost_release_seconds"].default == Limits().lost_release_seconds == 24 * 3_600
