"""The model keeps AllocDB's hard invariants under any history; a model that broke them could judge nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.model import allocations, reservations
from tests.model.operations import run_once
from tests.model.reservations import ByHolder, Hold, TurnOver
from tests.model.state import FINAL_ALLOCATIONS, LIVE_RESERVATIONS, NOOP, OK, Outcome, Quota, State

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
UNITS = tuple(range(4))
LIMIT = 6


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def one_hold(
    units: set[int] | frozenset[int] = frozenset({0}),
    *,
    starts: float = 0,
    ends: float | None = None,
    until: float = 10,
) -> Hold:
    rectangles = ((frozenset(units), len(units)),)
    return Hold("acme", "h1", rectangles, at(starts), None if ends is None else at(ends), at(until))


BEGINNING = State(quotas={"acme": Quota(LIMIT)})
BY = ByHolder("acme", "r1", "h1")


def held(command: Hold | None = None, state: State = BEGINNING, name: str = "r1") -> State:
    state, outcome = reservations.hold(state, name, command or one_hold(), at(0))
    assert outcome == OK, outcome
    return state


def code(outcome: tuple[State, Outcome]) -> str:
    return outcome[1].code


def test_windows_are_half_open() -> None:
    state = held(one_hold(starts=100, ends=200))
    for starts, ends, expected in (
        (200, 300, "ok"), (50, 100, "ok"), (199, 300, "resource_busy"), (50, 101, "resource_busy"), (50, None, "resource_busy"),
    ):  # fmt: skip
        rival = one_hold(starts=starts, ends=ends)
        assert code(reservations.hold(state, "r2", rival, at(0))) == expected, (starts, ends)


def test_a_bundle_is_all_or_nothing() -> None:
    state = held(one_hold({1}))
    after, outcome = reservations.hold(state, "r2", one_hold({0, 1}), at(0))
    assert outcome.code == "resource_busy"
    assert after is state


def test_a_deadline_is_judged_to_the_microsecond() -> None:
    state = held()
    assert code(reservations.confirm(state, BY, at(9.999999))) == "ok"
    refused, outcome = reservations.confirm(state, BY, at(10))
    assert outcome.code == "invalid_state"
    assert refused.reservations["r1"].state == "expired"
    assert code(reservations.expire(state, "r1", at(9.999999))) == "noop"
    assert code(reservations.expire(state, "r1", at(10))) == "ok"


def test_the_four_refusals_of_a_holder_are_different() -> None:
    state = held()
    expired, _ = reservations.expire(state, "r1", at(11))
    assert code(reservations.confirm(state, ByHolder("acme", "r1", "H1"), at(1))) == "holder_mismatch"
    assert code(reservations.confirm(state, ByHolder("other", "r1", "h1"), at(1))) == "reservation_not_found"
    assert code(reservations.confirm(expired, BY, at(12))) == "invalid_state"
    assert code(reservations.cancel(expired, BY, at(12))) == "noop"


def test_what_is_turned_over_is_paid_for_once_and_returned_once() -> None:
    two = Hold("acme", "h1", ((frozenset({0}), 1), (frozenset({1}), 1)), at(0), None, at(10))
    state = held(two)
    for n, expected in ((0, "hold"), (1, "consumed")):
        state, outcome = reservations.turn_over(state, TurnOver(BY, f"a{n}", frozenset({n})), at(1))
        assert outcome == OK
        assert state.reservations["r1"].state == expected
        assert state.quotas["acme"].used == 2
    for step in ("active", "releasing", "released"):
        state, outcome = allocations.advance(state, "a0", step)
        assert outcome == OK
    assert state.quotas["acme"].used == 1


def test_the_rest_of_a_hold_expires_without_what_was_turned_over() -> None:
    two = Hold("acme", "h1", ((frozenset({0}), 1), (frozenset({1}), 1)), at(0), None, at(10))
    state, _ = reservations.turn_over(held(two), TurnOver(BY, "a0", frozenset({0})), at(1))
    state, outcome = reservations.expire(state, "r1", at(10))
    assert (outcome, state.quotas["acme"].used) == (OK, 1)
    assert state.rights_to(frozenset({0, 1}), at(20), None) == ["allocations/a0"]


def test_what_finds_its_units_occupied_waits_until_they_are_free() -> None:
    units = frozenset({0})
    state, _ = allocations.create(BEGINNING, "a0", allocations.Create("acme", units, 1, at(0), at(5)))
    state = held(one_hold(starts=5, ends=50), state)
    assert code(reservations.turn_over(state, TurnOver(BY, "a1", units), at(4))) == "invalid_state"
    state, outcome = reservations.turn_over(state, TurnOver(BY, "a1", units, waits=True), at(6))
    assert outcome == OK
    assert code(allocations.start(state, "a1")) == "invalid_state"
    for step in ("releasing", "released"):
        state, outcome = allocations.advance(state, "a0", step)
        assert outcome == OK
    assert code(allocations.advance(state, "a1", "active")) == "invalid_state"
    state, outcome = allocations.start(state, "a1")
    assert outcome == OK
    assert code(allocations.advance(state, "a1", "active")) == "ok"


def test_the_cleanup_of_a_failed_one_begins_anew_until_another_holds_the_units() -> None:
    units = frozenset({0})
    state, _ = allocations.create(BEGINNING, "a0", allocations.Create("acme", units, 1, at(0)))
    state, _ = allocations.advance(state, "a0", "failed")
    again, outcome = allocations.advance(state, "a0", "releasing")
    assert (outcome, again) == (OK, state), "it stays failed, its quota returned once"
    state, _ = allocations.create(state, "a1", allocations.Create("acme", units, 1, at(1)))
    assert code(allocations.advance(state, "a0", "releasing")) == "invalid_state"


def test_a_claim_moves_to_units_that_are_free_in_its_window() -> None:
    state = held(one_hold({1}, starts=100), held(one_hold({0})), "r2")
    assert code(reservations.move(state, "r1", frozenset({0}), frozenset({1}), at(1))) == "resource_busy"
    state, outcome = reservations.move(state, "r1", frozenset({0}), frozenset({2}), at(1))
    assert outcome == OK
    assert state.rights_to(frozenset({0, 2}), at(1), None) == ["reservations/r1"]
    assert state.quotas["acme"].used == 2


def test_an_operation_runs_once() -> None:
    def run(state: State) -> tuple[State, Outcome]:
        return reservations.confirm(state, BY, at(1))

    state, first = run_once(held(), "acme", "k", "confirm r1", run)
    assert first == OK
    assert run_once(state, "acme", "k", "confirm r1", run) == (state, OK)
    assert code(run_once(state, "acme", "k", "confirm r2", run)) == "operation_conflict"
    assert run_once(state, "acme", "k2", "confirm r1", run)[1] == NOOP


names = st.sampled_from(["r1", "r2", "r3"])
commands = st.one_of(
    st.tuples(st.just("hold"), names, st.sets(st.sampled_from(UNITS), min_size=1), st.integers(-5, 20), st.integers(0, 30)),
    st.tuples(st.sampled_from(["confirm", "cancel"]), names, st.sampled_from(["h1", "h2"])),
    st.tuples(st.sampled_from(["expire", "release"]), names),
    st.tuples(st.just("turn_over"), names, st.sets(st.sampled_from(UNITS), min_size=1)),
    st.tuples(st.just("create"), st.sets(st.sampled_from(UNITS), min_size=1)),
    st.tuples(
        st.just("advance"), st.integers(0, 5),
        st.sampled_from(["active", "releasing", "released", "release_failed", "failed"]),
    ),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 4), commands), max_size=40))
def test_no_history_breaks_the_invariants(history: list[tuple[int, tuple[Any, ...]]]) -> None:
    state, clock, ids = BEGINNING, 0.0, iter(range(1000))
    for pause, command in history:
        clock += pause
        before = state
        state, outcome = _run(state, command, clock, ids)
        _check(state)
        if not outcome.done and outcome.code != "invalid_state":
            assert state is before, "a refusal changes nothing"
        for id_, one in before.reservations.items():
            if one.state not in LIVE_RESERVATIONS:
                assert state.reservations[id_] == one, "final is final"
            if one.state == "confirmed":
                assert state.reservations[id_].state != "expired", "a confirmed one never expires"
            if one.state == "hold" and state.reservations[id_].state == "expired":
                assert at(clock) >= one.hold_until, "late, never early"


def _run(state: State, command: tuple[Any, ...], clock: float, ids: Any) -> tuple[State, Outcome]:
    match command:
        case ("hold", name, units, starts, length):
            ends = None if length == 0 else clock + starts + length
            until = clock + 5 if ends is None else min(clock + 5, ends)
            wanted = one_hold(units, starts=clock + starts, ends=ends, until=until)
            return reservations.hold(state, name, wanted, at(clock))
        case ("confirm", name, holder):
            return reservations.confirm(state, ByHolder("acme", name, holder), at(clock))
        case ("cancel", name, holder):
            return reservations.cancel(state, ByHolder("acme", name, holder), at(clock))
        case ("expire", name):
            return reservations.expire(state, name, at(clock))
        case ("release", name):
            return reservations.release(state, name, at(clock))
        case ("turn_over", name, units):
            by = ByHolder("acme", name, "h1")
            return reservations.turn_over(state, TurnOver(by, f"a{next(ids)}", frozenset(units)), at(clock))
        case ("create", units):
            wanted_ = allocations.Create("acme", frozenset(units), len(units), at(clock))
            return allocations.create(state, f"a{next(ids)}", wanted_)
        case _:
            _, which, to = command
            known = sorted(state.allocations)
            return allocations.advance(state, known[which % len(known)] if known else "none", to)


def _check(state: State) -> None:
    claims = list(state.claims())
    for n, (owner, claim) in enumerate(claims):
        for other_owner, other in claims[n + 1 :]:
            if claim.units & other.units:
                overlap = claim.overlaps(other.starts_at, other.ends_at)
                assert not (claim.booked and other.booked and overlap), (owner, other_owner)
                assert not (claim.occupied and other.occupied), (owner, other_owner)
    live = sum(
        claim.gpus for one in state.reservations.values() if one.state in LIVE_RESERVATIONS for claim in one.claims
    ) + sum(one.claim.gpus for one in state.allocations.values() if one.state not in FINAL_ALLOCATIONS)
    assert state.quotas["acme"].used == live <= LIMIT


def test_another_end_moves_the_right_and_respects_other_rights() -> None:
    first = allocations.Create("acme", frozenset({0}), 1, at(0), at(100))
    state, outcome = allocations.create(BEGINNING, "a1", first)
    assert outcome == OK
    rival = held(one_hold(starts=200, ends=300, until=150), state)
    for ends, clock, expected in (
        (200, 10, "ok"), (50, 10, "ok"), (201, 10, "resource_busy"), (None, 10, "resource_busy"), (100, 10, "noop"),
        (10, 10, "window_invalid"), (200, 100, "invalid_state"),
    ):  # fmt: skip
        answer = allocations.change_end(rival, "a1", None if ends is None else at(ends), at(clock))
        assert code(answer) == expected, (ends, clock)
    moved, _ = allocations.change_end(rival, "a1", at(50), at(10))
    claims = [claim for owner, claim in moved.claims() if owner == "allocations/a1"]
    assert [(claim.starts_at, claim.ends_at, claim.booked, claim.occupied) for claim in claims] == [
        (at(0), at(100), False, False), (at(10), at(50), True, True),
    ]  # fmt: skip
    assert moved.quotas == rival.quotas
    released, _ = allocations.advance(moved, "a1", "releasing")
    assert code(allocations.change_end(released, "a1", at(60), at(20))) == "invalid_state"
