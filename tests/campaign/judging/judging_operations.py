"""Checks on the status queries of operation keys (P12): a definite answer is true, and stays so. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.campaign.history import EFFECTS, Attempt, History, Outcome, Question
from tests.campaign.judging.judging_clients import Violation

DEFINITE = frozenset({"committed", "rejected", "unknown"})
TOLD = {Outcome.DONE: "committed", Outcome.REFUSED: "rejected", Outcome.FENCED: "unknown"}
"""The state that a status query returns for each definite outcome of an attempt."""


def judge_operations(history: History) -> list[Violation]:
    """Every check on questions and fences."""
    return [*check_questions(history), *check_fences(history)]


def check_questions(history: History) -> Iterator[Violation]:
    """Status queries agree with every attempt's response in any order; none returns `retired` within an hour."""
    attempts = history.by_key()
    by_key: dict[str, list[Question]] = defaultdict(list)
    for question in history.questions:
        by_key[question.key].append(question)
    for key, questions in by_key.items():
        definite = {(question.state, question.answer) for question in questions if question.state in DEFINITE}
        if len(definite) > 1 or any(question.state == "retired" for question in questions):
            yield Violation("asked", f"{key} returned {sorted({question.state for question in questions})}")
        for state, answer in definite:
            for attempt in attempts.get(key, ()):
                if _contradicts(attempt, state, answer):
                    yield Violation("asked", f"{key} is {state} ({answer}), and an attempt returned {attempt.outcome}")
                    break


def _contradicts(attempt: Attempt, state: str, answer: str) -> bool:
    told = TOLD.get(attempt.outcome)
    if told is None:
        # Another content under the key: it was used, so it cannot be unknown.
        return attempt.outcome is Outcome.CONFLICT and state == "unknown"
    return told != state or (state != "unknown" and attempt.answer != answer)


def check_fences(history: History) -> Iterator[Violation]:
    """A key reported `unknown` or `operation_fenced` never has an effect."""
    fenced = {question.key: question.kind for question in history.questions if question.state == "unknown"}
    fenced |= {attempt.key: attempt.kind for attempt in history.attempts if attempt.outcome is Outcome.FENCED}
    for event in history.events().values():
        kind = fenced.get(event.operation_key or "")
        if kind is not None and event.type in EFFECTS[kind]:
            yield Violation(
                "fenced, no effect", f"{event.operation_key} ({kind}) has the effect of version {event.version}"
            )
