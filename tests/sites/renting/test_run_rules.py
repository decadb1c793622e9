"""The rule that moves runs, in every situation: no run waits for what is over, and none leaves a deploy system behind."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.nodes.deploy_systems.run_rules import (
    END_ATTEMPTS_MAX,
    ROTATION_ATTEMPTS_MAX,
    SWITCHING,
    Move,
    Next,
    Part,
    RunKind,
    RunStep,
    Standing,
    next_move,
)

PARTS = [
    None,
    *(Part(True, is_signed, None) for is_signed in (True, False)),
    *(Part(False, True, failure, is_unknown) for failure in (None, "f") for is_unknown in (True, False)),
]


def proven_of(part: Part | None) -> bool:
    """Whether the part completed."""
    return part is not None and not part.is_open and part.failure is None


def test_a_run_never_waits_for_what_is_over_and_never_leaves_a_deploy_system() -> None:
    ends: list[tuple[str | None, int]] = [(None, 1), ("x", 1), (None, END_ATTEMPTS_MAX), ("x", END_ATTEMPTS_MAX)]
    flags = list(itertools.product((True, False), repeat=4))
    steps = [step for step in RunStep if step is not RunStep.ROTATE]
    for step, part, flag, (failure, attempts), kind in itertools.product(steps, PARTS, flags, ends, RunKind):
        permitted, started, stopped, overdue = flag
        if permitted and kind in SWITCHING:
            continue  # it has no deploy system
        run = Standing(step, part, permitted, started, stopped, overdue, failure, attempts, kind)
        following = next_move(run)
        if following is None:
            assert part is not None
            assert part.is_open
            assert not overdue
            continue
        if following.move is Move.CLOSE:
            assert step in (RunStep.END, RunStep.REACH) or not permitted, run
            proven = part is not None and not part.is_open and part.failure is None
            assert proven or step is not RunStep.END or attempts == END_ATTEMPTS_MAX, run
            assert step is not RunStep.REACH or not permitted or (proven and not stopped), run
            assert proven or following.failure or failure or stopped, run
        if step is RunStep.END:
            goes_on = kind in (RunKind.DEPLOY, RunKind.START, RunKind.REBOOT) and failure is None and not stopped
            assert following.move in (Move.END_AGAIN, Move.POWER_ON if goes_on else Move.CLOSE, Move.CLOSE)
        if following.move is Move.EJECT:
            assert (kind, step, proven_of(part), stopped) == (RunKind.RESCUE, RunStep.WORK, True, False), run
        if following.move is Move.REACH:
            assert step in (RunStep.POWER_ON, RunStep.EJECT)
            assert not stopped
            assert step is not RunStep.EJECT or proven_of(part), "a machine is handed over without its medium alone"


def test_a_rotation_ends_whatever_happens_and_fails_no_release() -> None:
    flags = itertools.product((True, False), repeat=3)
    for part, (stopped, overdue, unsure), attempts in itertools.product(PARTS, flags, range(1, 5)):
        kept = None if part is None or not unsure else Part(part.is_open, part.is_signed, part.failure, True)
        run = Standing(RunStep.ROTATE, kept, True, True, stopped, overdue, None, attempts, RunKind.WIPE, True)
        following = next_move(run)
        is_open = kept is not None and kept.is_open and not overdue
        if following is None:
            assert is_open
            continue
        assert following.failure is None, "the wipe is proven, whatever the BMC does"
        assert following.move in (Move.CLOSE, Move.ROTATE_AGAIN)
        assert following.move is Move.CLOSE or (attempts < ROTATION_ATTEMPTS_MAX and not stopped)
        done = kept is not None and not kept.is_open and kept.failure is None
        found = following.finding is not None
        assert found is (following.move is Move.CLOSE and not done and not is_open), run


@pytest.mark.parametrize("rotates", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("failure", [None, "x"])
def test_a_proven_wipe_of_a_release_alone_is_followed_by_a_rotation(
    rotates: bool, stopped: bool, failure: str | None
) -> None:
    ended = Part(False, True, None)
    run = Standing(RunStep.END, ended, True, False, stopped, False, failure, 1, RunKind.WIPE, rotates)
    follows = rotates and not stopped and failure is None
    assert next_move(run) == Next(Move.ROTATE if follows else Move.CLOSE)
