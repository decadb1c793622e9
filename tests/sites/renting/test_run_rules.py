"""The rule that moves runs, in every situation: no run waits for what is over, and none leaves a deploy system behind."""

from __future__ import annotations

import itertools

from orchestrator.nodes.deploy_systems.run_rules import (
    END_ATTEMPTS_MAX,
    SWITCHING,
    Move,
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


def test_a_run_never_waits_for_what_is_over_and_never_leaves_a_deploy_system() -> None:
    ends: list[tuple[str | None, int]] = [(None, 1), ("x", 1), (None, END_ATTEMPTS_MAX), ("x", END_ATTEMPTS_MAX)]
    flags = list(itertools.product((True, False), repeat=4))
    for step, part, flag, (failure, attempts), kind in itertools.product(RunStep, PARTS, flags, ends, RunKind):
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
            deployed = kind is RunKind.DEPLOY and failure is None and not stopped
            assert following.move in (Move.END_AGAIN, Move.POWER_ON if deployed else Move.CLOSE, Move.CLOSE)
