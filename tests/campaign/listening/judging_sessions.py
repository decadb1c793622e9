"""What must hold of the subscribers over HTTP: nothing missed, nothing repeated, nothing of another tenant, nothing altered.

Pure: the stream of the campaign's reader of NATS is the truth.
"""

from __future__ import annotations

import bisect
import json
from collections import defaultdict
from collections.abc import Iterator

from tests.campaign.history import Delivery, History
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.kept_log import KeptLog
from tests.campaign.listening.records import Session

PASSING = frozenset(
    {"log_truncated", "leader_changed", "stopping", "failed", "overloaded", "database_unavailable", "concurrency_limited",
     "request_timeout", "rate_limited", "outcome_unknown"}
)  # fmt: skip
"""Codes of refusals and of ends that faults, bounds and truncation explain (docs/reference/feed.md, notifications.md)."""


def judge_sessions(history: History) -> list[Violation]:
    """Every check on every connection."""
    log = KeptLog(history)
    owned: dict[str | None, list[Delivery]] = {}
    found: list[Violation] = []
    for session in history.sessions:
        if session.tenant not in owned:
            owned[session.tenant] = log.of(session.tenant)
        found += _check_own(session)
        found += _check_order(session)
        found += _check_chain(session)
        found += _check_missed(session, owned[session.tenant])
        found += _check_content(session, log)
        found += _check_offset(session)
        found += _check_refusal(session, log, owned[session.tenant])
        found += _check_policies(session, history)
    return found


def _named(session: Session) -> str:
    return f"{session.subscriber} (after {session.after})"


def _check_own(session: Session) -> Iterator[Violation]:
    for event in session.events:
        if session.tenant is not None and event.tenant_id != session.tenant:
            yield Violation(
                "own events only", f"{_named(session)} got version {event.version} of tenant {event.tenant_id}"
            )


def _check_order(session: Session) -> Iterator[Violation]:
    """Versions ascend, from the first one after the beginning: within a connection nothing is repeated."""
    before = session.after
    for event in session.events:
        if event.version <= before:
            yield Violation("no repetition", f"{_named(session)} got version {event.version} after {before}")
        before = max(before, event.version)


def _check_chain(session: Session) -> Iterator[Violation]:
    """Of the first event `prev_version` is no later than the beginning, of each other one the event before it."""
    before: int | None = None
    for event in session.events:
        if session.types:
            if event.prev_version is not None:
                yield Violation(
                    "chain", f"{_named(session)} is filtered, and version {event.version} has a prev_version"
                )
        elif event.prev_version is None or (
            event.prev_version > session.after if before is None else event.prev_version != before
        ):
            yield Violation(
                "chain", f"{_named(session)}: version {event.version} names {event.prev_version} as the one before it"
            )
        before = event.version


def _check_missed(session: Session, owned: list[Delivery]) -> Iterator[Violation]:
    """Every event of its audience between the beginning and what was reached has arrived."""
    got = {event.version for event in session.events}
    first = bisect.bisect_right(owned, session.after, key=lambda event: event.version)
    last = bisect.bisect_right(owned, session.reached, key=lambda event: event.version)
    wanted = [event.version for event in owned[first:last] if not session.types or event.type in session.types]
    missed = [version for version in wanted if version not in got]
    if missed:
        yield Violation(
            "nothing missed",
            f"{_named(session)} reached {session.reached} without versions {missed[:5]} ({len(missed)})",
        )


def _check_content(session: Session, log: KeptLog) -> Iterator[Violation]:
    for event in session.events:
        truth = log.events.get(event.version)
        if truth is None:
            yield Violation("as in the stream", f"{_named(session)}: version {event.version} is not in the stream")
            continue
        same = (event.event_id, event.type, event.tenant_id, event.operation_key, _text(event.data)) == (
            truth.event_id, truth.type, truth.tenant_id, truth.operation_key, _text(truth.data),
        )  # fmt: skip
        if not same:
            yield Violation("as in the stream", f"{_named(session)}: version {event.version} differs from the stream")


def _text(data: object) -> str:
    return json.dumps(data, sort_keys=True)


def _check_offset(session: Session) -> Iterator[Violation]:
    """A subscription resumes at what was acknowledged: not before what was confirmed, not after what was sent."""
    if session.acked is None or session.acknowledged is None or (session.refused and not session.events):
        return
    if not session.acked <= session.after <= session.acknowledged:
        yield Violation(
            "resumes where acknowledged",
            f"{session.subscriber} began after {session.after}; {session.acked} was confirmed, {session.acknowledged} sent",
        )


def _check_refusal(session: Session, log: KeptLog, owned: list[Delivery]) -> Iterator[Violation]:
    """`log_truncated` only where events of the audience were old enough to be dropped; no refusal without a cause."""
    if session.refused is None or session.ended is None:
        return
    if session.refused not in PASSING:
        yield Violation("refused with a cause", f"{_named(session)} was refused: {session.refused}")
    if session.refused != "log_truncated":
        return
    gone = [event for event in owned if event.version > session.reached]
    if not gone or not log.may_lack_at(gone[0].version, session.ended):
        yield Violation(
            "refused with a cause", f"{_named(session)}: log_truncated, and nothing that follows was old enough"
        )
    first = session.first_version
    if first is not None and (not gone or gone[0].version >= first):
        yield Violation(
            "refused with a cause", f"{_named(session)}: log_truncated, and the log still holds all from {first}"
        )


def _check_policies(session: Session, history: History) -> Iterator[Violation]:
    """While a policy holds, nothing from its version on is dropped."""
    if session.refused != "log_truncated" or session.ended is None:
        return
    for policy in history.policies:
        within = policy.since < session.began and session.ended < (policy.until or float("inf"))
        if within and session.reached + 1 >= policy.kept_from:
            yield Violation(
                "kept by a policy", f"{_named(session)}: log_truncated, and a policy kept {policy.kept_from}"
            )


def check_reached_the_end(history: History) -> Iterator[Violation]:
    """After the run each subscriber has received the last event of its audience."""
    log = KeptLog(history)
    sessions: dict[str, list[Session]] = defaultdict(list)
    for session in history.sessions:
        sessions[session.subscriber].append(session)
    for subscriber, found in sessions.items():
        types = found[0].types
        last = max((e.version for e in log.of(found[0].tenant) if not types or e.type in types), default=0)
        reached = max(session.reached for session in found)
        if reached < last:
            yield Violation("event received", f"{subscriber} reached {reached}, its last event is version {last}")
