"""An operation key has one answer: the first (P4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.model.state import Outcome, Remembered, State


def run_once(
    state: State, scope: str, key: str, content: str, run: Callable[[State], tuple[State, Outcome]]
) -> tuple[State, Outcome]:
    """Run it the first time; afterwards the same content is answered the same, and other content is refused."""
    known = state.operations.get((scope, key))
    if known is not None:
        same = known.content is None or known.content == content
        return state, Outcome(known.code if same else "operation_conflict")
    state, outcome = run(state)
    return remember(state, scope, key, content, outcome.code), outcome


def remember(state: State, scope: str, key: str, content: str | None, code: str) -> State:
    """What is answered under the key from now on. The first answer stays."""
    if (scope, key) in state.operations:
        return state
    return replace(state, operations=state.operations.insert((scope, key), Remembered(content, code)))
