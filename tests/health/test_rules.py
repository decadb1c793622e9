"""The rules of health: an outage begins once, becomes lost at most once, ends once, and lost is left only by a sight of life."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from hypothesis.strategies import sampled_from

from orchestrator.allocations.health import (
    HEALTHY,
    Cause,
    Condition,
    Health,
    HealthDeadlines,
    Sight,
    condition_after,
    condition_after_deadline,
)


class Outages(RuleBasedStateMachine):
    """Sights and deadlines in any order, compared with the changes that were announced."""

    def __init__(self) -> None:
        super().__init__()
        self.now = HEALTHY
        self.announced: list[Health] = []
        self.last_sight = Sight.ALIVE

    def _take(self, to: Condition | None) -> None:
        if to is not None:
            assert to.health is not self.now.health, "what is announced is a change"
            self.now = to
            self.announced.append(to.health)

    @rule(sight=sampled_from(Sight))
    def see(self, sight: Sight) -> None:
        was = self.now
        self.last_sight = sight
        self._take(condition_after(was, sight))
        assert (self.now.health is Health.HEALTHY) == (sight is Sight.ALIVE)
        if was.health is Health.LOST and sight is not Sight.ALIVE:
            assert self.now == was
        if sight is Sight.ENDED:
            assert self.now.health is Health.LOST
        assert condition_after(self.now, sight) is None, "a repeated sight changes nothing"

    @rule()
    def pass_deadline(self) -> None:
        was = self.now
        self._take(condition_after_deadline(was))
        assert (self.now.health is Health.HEALTHY) == (was.health is Health.HEALTHY)
        assert self.now.cause is was.cause
        assert condition_after_deadline(self.now) is None

    @invariant()
    def causes_belong_to_outages(self) -> None:
        assert (self.now.cause is None) == (self.now.health is Health.HEALTHY)

    @invariant()
    def recoveries_end_outages(self) -> None:
        begun = [h for h in self.announced if h is not Health.HEALTHY]
        recovered = self.announced.count(Health.HEALTHY)
        assert recovered <= len(begun)
        assert all(a is not b for a, b in zip(self.announced, self.announced[1:], strict=False))


TestOutages = Outages.TestCase


def test_each_sight_of_a_healthy_allocation_has_its_condition() -> None:
    found = {sight: condition_after(HEALTHY, sight) for sight in Sight}
    assert found == {
        Sight.ALIVE: None,
        Sight.DOWN: Condition(Health.DEGRADED, Cause.GUEST_DOWN),
        Sight.ENDED: Condition(Health.LOST, Cause.GUEST_DOWN),
        Sight.GONE: Condition(Health.DEGRADED, Cause.GUEST_GONE),
        Sight.SILENT: Condition(Health.DEGRADED, Cause.NODE_SILENT),
    }


def test_only_a_lost_allocation_may_be_kept_without_a_deadline() -> None:
    keep = HealthDeadlines(lost_seconds=5, release_seconds=0)
    assert [keep.seconds_of(health) for health in Health] == [None, 5, None]
    assert HealthDeadlines(lost_seconds=5, release_seconds=9).seconds_of(Health.LOST) == 9
