"""Bounds of the feed (docs/reference/feed.md) and of notification sockets (docs/reference/notifications.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of the feed; each is a setting with the prefix `feed_`."""

    subscribers_max: int = 2_000
    tenant_subscribers_max: int = 200
    buffer_bytes_max: int = 8_388_608
    tenant_bytes_max: int = 67_108_864
    bytes_max: int = 268_435_456
    keepalive_seconds: float = 15.0
    stall_seconds: float = 30.0
    tick_seconds: float = 0.02
    checkpoint_seconds: float = 1.0
    readers_max: int = 2


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one socket; each is a setting with the prefix `notifications_`."""

    messages_per_second_max: int = 20
    recheck_seconds: float = 1.0
    ack_seconds: float = 0.5
