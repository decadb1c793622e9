"""What must hold of the clients' own history, whatever the database says. Pure: a history in, violations out."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tests.campaign.history import CREATES, DEFINITE, EFFECTS, RELEASES, SETTLED, Attempt, History, Outcome, Sight

RANKS = {
    "requested": 0, "provisioning": 1, "active": 2, "releasing": 3, "release_failed": 3, "released": 4, "failed": 4,
}  # fmt: skip
FINAL = frozenset({"released", "failed"})
HARMLESS = frozenset({Outcome.NOT_DONE, Outcome.CONFLICT, Outcome.REFUSED, Outcome.FENCED})


@dataclass(frozen=True)
class Violation:
    """A broken promise. `check` names the check that found it."""

    check: str
    sentence: str

    def __str__(self) -> str:
        """One line for a person."""
        return f"{self.check}: {self.sentence}"


def judge_clients(history: History) -> list[Violation]:
    """Run every check on the responses to clients."""
    checks = (check_keys, check_effects, check_creates, check_releases, check_holders, check_sights, check_deadlines)
    return [violation for check in checks for violation in check(history)]


def check_keys(history: History) -> Iterator[Violation]:
    """Same key, same content: same answer. Another content under a used key is refused. Nothing stays unknown."""
    for key, attempts in history.by_key().items():
        definite = [attempt for attempt in attempts if attempt.outcome in DEFINITE]
        contents = {attempt.content for attempt in definite}
        if len(contents) > 1:
            yield Violation("same key", f"{key} was carried out with {len(contents)} contents: {sorted(contents)}")
        for content in contents:
            answers = {(a.outcome, a.answer) for a in definite if a.content == content}
            if len(answers) > 1:
                yield Violation("same answer", f"{key} was answered in {len(answers)} ways: {sorted(answers)}")
        settled = any(attempt.outcome in SETTLED for attempt in attempts)
        if not settled and any(attempt.outcome not in HARMLESS for attempt in attempts):
            last = attempts[-1]
            yield Violation(
                "outcome known", f"{key}: after {len(attempts)} attempts still {last.outcome} ({last.code})"
            )
        if not settled and any(attempt.outcome is Outcome.CONFLICT for attempt in attempts):
            yield Violation("same key", f"{key} conflicts with a content that no response confirmed")
        for attempt in attempts:
            if attempt.code in ("internal", "http_500", "unreadable_answer"):
                yield Violation("foreseen", f"{key}: {attempt.kind} was answered {attempt.code}: {attempt.answer}")


def check_effects(history: History) -> Iterator[Violation]:
    """A key has at most one effect; a write that was refused or surely not done has none; an acknowledged create, hold or
    commit has exactly one.
    """
    effects: dict[tuple[str | None, str], int] = defaultdict(int)
    for event in history.events().values():
        effects[event.operation_key, event.type] += 1
    for key, attempts in history.by_key().items():
        seen = sum(effects[key, event] for event in EFFECTS[attempts[0].kind])
        if seen > 1:
            yield Violation("one effect", f"{key} ({attempts[0].kind}) had {seen} effects")
        outcomes = {attempt.outcome for attempt in attempts}
        if seen and outcomes <= HARMLESS:
            yield Violation("refused, no effect", f"{key} returned {sorted(outcomes)} and had an effect")
        if attempts[0].kind in (*CREATES, "hold", "commit") and Outcome.DONE in outcomes and seen != 1:
            yield Violation("acknowledged", f"{key}: an acknowledged {attempts[0].kind} left {seen} events")


def check_creates(history: History) -> Iterator[Violation]:
    """An acknowledged create can be read from then on, as it was acknowledged, and its key made one allocation."""
    sights = history.by_allocation()
    by_birth: dict[UUID, set[str]] = defaultdict(set)
    for sight in history.sights:
        if sight.state is not None:
            by_birth[sight.allocation_id].add(sight.birth)
    for key, attempts in history.by_key().items():
        made = [a for a in attempts if a.kind in CREATES and a.outcome is Outcome.DONE and a.allocation_id]
        for allocation_id in {attempt.allocation_id for attempt in made if attempt.allocation_id}:
            known_at = min(a.ended for a in made if a.allocation_id == allocation_id)
            if any(s.state is None and s.asked > known_at for s in sights.get(allocation_id, ())):
                yield Violation("readable", f"{allocation_id} ({key}) was acknowledged and then not found")
            if allocation_id not in history.settled:
                yield Violation("readable", f"{allocation_id} ({key}) was acknowledged and is in no list at the end")
    for allocation_id, births in by_birth.items():
        if len(births) > 1:
            yield Violation("readable", f"{allocation_id} was read as {sorted(births)}")


def check_releases(history: History) -> Iterator[Violation]:
    """An acknowledged release ends released or release_failed, a forced one of a failed allocation failed; and no read
    shows the allocation active again.
    """
    sights = history.by_allocation()
    for attempt in history.attempts:
        if attempt.kind not in RELEASES or attempt.outcome is not Outcome.DONE or attempt.allocation_id is None:
            continue
        end = history.settled.get(attempt.allocation_id)
        wanted = ("released", "release_failed", *(("failed",) if attempt.kind == "force_release" else ()))
        if end is None or end.state not in wanted:
            state = None if end is None else end.state
            yield Violation("released", f"{attempt.allocation_id}: {attempt.kind} acknowledged, ended {state}")
        for sight in sights.get(attempt.allocation_id, ()):
            if sight.asked > attempt.ended and sight.state in ("requested", "provisioning", "active"):
                yield Violation("released", f"{attempt.allocation_id}: released, and then read as {sight.state}")
                break


@dataclass(frozen=True)
class _Held:
    allocation_id: UUID
    since: float
    until: float


def check_holders(history: History) -> Iterator[Violation]:
    """No two allocations were reported active on one slot at overlapping times: from the first response that said active
    until the first request for its release, or until the last such response if no request began its release: its end came,
    its node was drained, or its balance was used up.
    """
    by_request = _released_by_request(history)
    asked_back: dict[UUID, float] = {}
    for attempt in history.attempts:
        if attempt.kind in RELEASES and attempt.allocation_id is not None:
            before = asked_back.get(attempt.allocation_id, float("inf"))
            asked_back[attempt.allocation_id] = min(before, attempt.began)
    held: dict[tuple[str, int], list[_Held]] = defaultdict(list)
    for allocation_id, sights in history.by_allocation().items():
        active = [sight for sight in sights if sight.state == "active"]
        if not active:
            continue
        since = min(sight.told for sight in active)
        until = max(sight.asked for sight in active)
        if by_request.get(allocation_id, True):
            until = asked_back.get(allocation_id, until)
        if since < until:
            for slot in active[0].slots:
                held[active[0].node or "?", slot].append(_Held(allocation_id, since, until))
    for (node, slot), times in held.items():
        times.sort(key=lambda time: time.since)
        for one, next_ in itertools.pairwise(times):
            if next_.since < one.until:
                yield Violation(
                    "one holder",
                    f"{node} slot {slot} was reported for {one.allocation_id} and {next_.allocation_id} at once",
                )


def _released_by_request(history: History) -> dict[UUID, bool]:
    """Whether a request began the first release of an allocation, or the control plane by itself."""
    found: dict[UUID, bool] = {}
    for _, event in sorted(history.events().items()):
        if event.type in EFFECTS["release"] and event.allocation_id is not None:
            found.setdefault(event.allocation_id, event.operation_key is not None)
    return found


def check_sights(history: History) -> Iterator[Violation]:
    """What one read showed, a later read does not take back: row versions, states and final states only go on."""
    for allocation_id, sights in history.by_allocation().items():
        newest: Sight | None = None
        by_end = sorted((s for s in sights if s.state is not None), key=lambda sight: sight.told)
        for sight in sorted(by_end, key=lambda sight: sight.asked):
            newest = _newest_before(by_end, sight)
            if newest is not None and _goes_back(newest, sight):
                yield Violation(
                    "only forward",
                    f"{allocation_id} was {newest.state} (row version {newest.row_version}) and later {sight.state} "
                    f"({sight.row_version})",
                )
                break


OVERDUE_CODES = {
    "not_started": "requested", "units_not_free": "requested", "agent_silent": "provisioning", "node_offline": "provisioning",
}  # fmt: skip
"""Codes of allocations that failed because their time was up, and the state that had the time."""
EARLY_SECONDS_MAX = 0.3
"""A task's own deadline is computed a few milliseconds before the one in the response."""


def check_deadlines(history: History) -> Iterator[Violation]:
    """Nothing failed for want of time before the deadline that a client had read; both by the server's clock."""
    for allocation_id, sights in history.by_allocation().items():
        end = next((sight for sight in sights if sight.failure in OVERDUE_CODES and sight.failed_at), None)
        if end is None or end.failed_at is None or end.failure is None:
            continue
        told = [sight.due for sight in sights if sight.due and sight.state == OVERDUE_CODES[end.failure]]
        if not told:
            continue
        early = (max(told) - end.failed_at).total_seconds()
        if early > EARLY_SECONDS_MAX:
            yield Violation(
                "late, never early", f"{allocation_id} failed ({end.failure}) {early:.2f} s before its time"
            )


def _newest_before(by_end: list[Sight], sight: Sight) -> Sight | None:
    """The most advanced sight whose answer had come before `sight` was asked for."""
    before = [other for other in by_end if other.told < sight.asked]
    return max(before, key=lambda other: other.row_version, default=None)


def _goes_back(earlier: Sight, later: Sight) -> bool:
    if later.row_version < earlier.row_version:
        return True
    if earlier.state in FINAL and later.state != earlier.state:
        return True
    return RANKS.get(later.state or "", 9) < RANKS.get(earlier.state or "", 0)


def ambiguous(attempts: list[Attempt]) -> bool:
    """Whether a key's outcome was unknown for a while."""
    return any(attempt.outcome is Outcome.UNKNOWN for attempt in attempts)
