"""Whether a standby may serve reads, judged by what it and the primary have. Pure.

A standby may be behind, of another installation, of a primary that was deposed, or of a schema that this code does not know. Its
content decides, not its address: the event at the head of its log must be the primary's, written under the same leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from berth.process.schema_window import why_unusable

CLOCK_SECONDS_MAX = 1.0
"""How far the standby's clock may be from the primary's: availability is evaluated by it."""
VERIFIED_SECONDS_MAX = 5.0
"""How long a judgement holds: so long after a failover a standby of the deposed primary may still serve."""


class Cause(StrEnum):
    """Why the primary serves a read that a standby may serve."""

    UNREACHABLE = "unreachable"
    NOT_A_STANDBY = "not_a_standby"
    OTHER_INSTALLATION = "other_installation"
    AHEAD = "ahead"
    OTHER_LEADER = "other_leader"
    SCHEMA = "schema"
    UNPRIVILEGED = "unprivileged"
    RESTORING = "restoring"
    CLOCK = "clock"
    LAGGING = "lagging"
    UNVERIFIED = "unverified"
    BEHIND = "behind"
    BUSY = "busy"
    CONFLICT = "conflict"
    SLOW = "slow"
    LOST = "lost"
    REFUSED = "refused"
    FAILED = "failed"


MEANINGS = {
    Cause.UNREACHABLE: "no standby can be connected to",
    Cause.NOT_A_STANDBY: "the server is no standby",
    Cause.OTHER_INSTALLATION: "the server has another history than the primary",
    Cause.AHEAD: "the standby has a version that the primary has not acknowledged; put it into synchronous_standby_names",
    Cause.OTHER_LEADER: "the primary, or what the standby has replayed, is not of the accepted leader",
    Cause.SCHEMA: "the standby's schema is not one that this process works on",
    Cause.UNPRIVILEGED: "the role of the standby's address may not read what it is compared by",
    Cause.RESTORING: "the database is being restored",
    Cause.CLOCK: "the standby's clock differs from the primary's by more than 1 s",
    Cause.LAGGING: "the standby is further behind than BERTH_READ_LAG_SECONDS_MAX",
    Cause.UNVERIFIED: "the primary was not reached to compare the standby with it",
    Cause.BEHIND: "the standby has not replayed the version that the read demands",
    Cause.BUSY: "every connection to a standby was in use",
    Cause.CONFLICT: "the standby cancelled the statement to replay what conflicts with it",
    Cause.SLOW: "the statement, or the whole read, took longer than it may on a standby",
    Cause.LOST: "the connection to the standby was lost",
    Cause.REFUSED: "the read ended with a refusal, which the primary decides",
    Cause.FAILED: "the statement failed on the standby",
}


class NotServed(Exception):
    """No standby served the read, and the primary can. `cause` says why."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class PrimaryFacts:
    """What the primary is. Read between two moments of this process's monotonic clock, in seconds.

    `written`: the position up to which its log (WAL) is flushed, in bytes. `clock`: its clock, in Unix seconds.
    """

    asked: float
    answered: float
    system: str
    leader_id: str
    accepted_leader_id: str
    version: int
    written: int
    clock: float


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """What a standby has. `event_id`: of the event at `version`, the head of its log. `replayed`: a position in bytes.

    `server`: the identity of one start of one server.
    """

    asked: float
    answered: float
    server: str
    in_recovery: bool
    system: str
    revision: str | None
    oldest_process: str | None
    restoring: bool
    leader_id: str
    version: int
    event_id: UUID | None
    replayed: int
    clock: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The standby may serve reads until `until`, a moment of the monotonic clock.

    `leader_id`: of what it serves. `lag_seconds`: it had everything that was committed so long ago.
    """

    leader_id: str
    until: float
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Unfit:
    """The standby must not serve."""

    cause: Cause


def judge_standby(
    history: Sequence[PrimaryFacts], standby: StandbyFacts, event_id: UUID | None, lag_seconds_max: float
) -> Fit | Unfit:
    """Judge a standby by the newest facts of the primary, the last of `history`, and by the earlier ones how far it is behind.

    `event_id`: what the primary's log has at the standby's version.
    """
    primary = history[-1]
    cause = _why_unfit(primary, standby, event_id)
    if cause is not None:
        return Unfit(cause)
    covered = [facts for facts in history if facts.written <= standby.replayed and facts.version <= standby.version]
    if not covered:
        return Unfit(Cause.LAGGING)
    # Everything that was committed before the primary was asked is before the position that it answered.
    until = min(covered[-1].asked + lag_seconds_max, primary.asked + VERIFIED_SECONDS_MAX)
    if until <= standby.answered:
        return Unfit(Cause.LAGGING)
    return Fit(standby.leader_id, until, max(0.0, standby.asked - covered[-1].asked))


def _why_unfit(primary: PrimaryFacts, standby: StandbyFacts, event_id: UUID | None) -> Cause | None:
    if not standby.in_recovery:
        return Cause.NOT_A_STANDBY
    if why_unusable(standby.revision, standby.oldest_process) is not None:
        return Cause.SCHEMA
    if standby.restoring:
        return Cause.RESTORING
    # A copy of a data directory has the same identifier: only the content differs.
    if standby.system != primary.system:
        return Cause.OTHER_INSTALLATION
    if standby.event_id != event_id:
        # A commit that waits for other standbys is visible on this one first; the primary shows nothing to compare with yet.
        is_ahead = event_id is None and standby.version > primary.version
        return Cause.AHEAD if is_ahead else Cause.OTHER_INSTALLATION
    # Until an operator or the relay accepts a new timeline, versions may still change.
    if not primary.leader_id == primary.accepted_leader_id == standby.leader_id:
        return Cause.OTHER_LEADER
    return Cause.CLOCK if _clocks_differ(primary, standby) else None


def _clocks_differ(primary: PrimaryFacts, standby: StandbyFacts) -> bool:
    """Whether the clocks certainly differ by more than `CLOCK_SECONDS_MAX`: each was read within an interval."""
    ahead_at_least = (standby.clock - standby.answered) - (primary.clock - primary.asked)
    ahead_at_most = (standby.clock - standby.asked) - (primary.clock - primary.answered)
    return ahead_at_least > CLOCK_SECONDS_MAX or ahead_at_most < -CLOCK_SECONDS_MAX
