"""What the log, its keys and its retention are refused with, and what can go wrong in reading it."""

from __future__ import annotations

from berth.client.errors import BerthError, Refused


class VersionNotReached(BerthError):
    """The log did not reach `min_version` in time; `extra` holds its `version`."""

    codes = ("version_not_reached",)


class LogTruncated(BerthError):
    """Events after the given version have been dropped; `extra` holds the `first_version` still stored."""

    codes = ("log_truncated",)


class RangeInvalid(BerthError):
    """A range's end is not beyond its begin."""

    codes = ("range_invalid",)


class VersionMissing(BerthError):
    """A precondition names no version, and the commit no `read_version`."""

    codes = ("version_missing",)


class VersionInFuture(BerthError):
    """The version is beyond the end of the log; `extra` holds the newest `version`."""

    codes = ("version_in_future",)


class RetentionOutOfBounds(Refused):
    """A tenant's policy would hold too much of the log; `extra` holds the lowest allowed version, `prevent_truncate_min`."""

    codes = ("retention_out_of_bounds",)


class UpgradeRequired(BerthError):
    """The path speaks WebSocket, and the request asked for no upgrade to it."""

    codes = ("upgrade_required",)


class MessageRefused(BerthError):
    """The server took a message of this client's for none that may be sent."""

    codes = ("message_refused",)


class TooManyMessages(BerthError):
    """This client sent more messages in a second than it may."""

    codes = ("too_many_messages",)


class LeaderUnaccepted(BerthError):
    """No operator has accepted this Postgres as the writer of the log yet; until then no transaction commits."""

    codes = ("leader_unaccepted",)


class LogGap(BerthError):
    """Events between `extra["after"]` and `extra["prev_version"]` were not delivered. No event after the gap was yielded."""

    codes = ("log_gap",)


class EventStubbed(BerthError):
    """NATS could not carry the event at `extra["version"]`; the feed delivers it in full, from the same position."""

    codes = ("event_stubbed",)


class PositionLost(BerthError):
    """The consumer's position was taken back or removed while it was at work; nothing more is done until it starts anew."""

    codes = ("position_lost",)


def log_gap(after: int, prev_version: int) -> LogGap:
    """The error for a reader at `after` that received an event whose predecessor is `prev_version`."""
    return LogGap(
        f"the event after version {after} has the predecessor {prev_version}, which was not delivered",
        code="log_gap",
        extra={"after": after, "prev_version": prev_version},
    )
