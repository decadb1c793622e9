"""What can go wrong in reading the log that no single answer of the server tells."""

from __future__ import annotations

from berth.client.errors import BerthError


class LogGap(BerthError):
    """Events between `extra["after"]` and `extra["prev_version"]` were not told. Nothing behind the gap was handed on."""

    codes = ("log_gap",)


class EventStubbed(BerthError):
    """NATS could not carry the event at `extra["version"]`; the feed tells it whole, from the same position."""

    codes = ("event_stubbed",)


class PositionLost(BerthError):
    """The consumer's position was taken back or removed while it was at work; nothing more is done until it starts anew."""

    codes = ("position_lost",)


def log_gap(after: int, prev_version: int) -> LogGap:
    """Who is at `after` was told an event whose predecessor is `prev_version`."""
    return LogGap(
        f"the event after version {after} says that version {prev_version} is before it, which was not told",
        code="log_gap",
        extra={"after": after, "prev_version": prev_version},
    )
