"""Bugs planted into the feed, the notification sockets and the truncation of the log."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.testbuild.planting import replace, rewritten_function

FEED_SQL: dict[str, str] = {
    "policies_ignored": rewritten_function(
        "log_truncate", ("c.needs_from < oldest.upper", "c.needs_from < oldest.upper and c.kind <> 'policy'")
    ),
}


def skip_at_page_boundary() -> None:
    """A subscriber that reads older events continues one version too far behind each full page."""
    from orchestrator.log.feed.feed import Feed

    genuine = Feed.read

    async def read(self: Any, subscriber: Any) -> Any:
        scan = await genuine(self, subscriber)
        is_full = bool(scan.events) and scan.scanned_to < self._at.version
        return dataclasses.replace(scan, scanned_to=scan.scanned_to + 1) if is_full else scan

    replace(Feed, "read", read)


def send_to_every_tenant() -> None:
    """A tenant's stream has the events of all tenants."""
    from orchestrator.log.feed.feed import Feed
    from orchestrator.log.feed.frames import Audience

    genuine, distribute_genuine = Audience.frames, vars(Feed)["_distribute"]
    batch: list[Any] = []

    async def distribute(self: Any, events: Any, at: Any) -> None:
        batch[:] = events
        try:
            await distribute_genuine(self, events, at)
        finally:
            batch.clear()

    def frames(self: Any, events: Any, encoded: Any = None) -> bytes:
        everything: bytes = genuine(dataclasses.replace(self, tenant_id=None), batch or events, encoded)
        return everything

    replace(Feed, "_distribute", distribute)
    replace(Audience, "frames", frames)


def resume_one_too_far() -> None:
    """A socket of a known subscription begins one version behind its offset."""
    from orchestrator.notifications import endpoints

    genuine = vars(endpoints)["open_subscription"]

    async def open_subscription(context: Any, scope: Any, name: Any, begin: int, **rest: Any) -> int:
        offset: int = await genuine(context, scope, name, begin, **rest)
        return offset if offset == begin else offset + 1

    replace(endpoints, "open_subscription", open_subscription)


def pass_over_what_is_gone() -> None:
    """A subscriber behind the beginning of the log is served from there on."""
    from orchestrator.log import feed_endpoints
    from orchestrator.log.feed.delivery import SubscriberDelivery

    async def kept(*_: Any) -> tuple[int, bool]:
        return 1, False

    async def is_whole(*_: Any) -> bool:
        return False

    replace(feed_endpoints, "find_kept", kept)
    replace(SubscriberDelivery, "_is_truncated", is_whole)


def check_ahead() -> None:
    """A checkpoint names a version that is not there yet."""
    from orchestrator.log.feed.frames import Audience

    genuine = Audience.checkpoint

    def checkpoint(self: Any, version: int, leader_id: str) -> bytes:
        ahead: bytes = genuine(self, version + 3, leader_id)
        return ahead

    replace(Audience, "checkpoint", checkpoint)


def repeat_when_attached() -> None:
    """A subscriber that follows the tail gets the event at its position once more."""
    from orchestrator.log.feed.feed import Feed

    genuine = Feed.attach

    def attach(self: Any, subscriber: Any) -> Any:
        subscriber.cursor = max(0, subscriber.cursor - 1)
        attached = genuine(self, subscriber)
        if not attached:
            subscriber.cursor += 1
        return attached

    replace(Feed, "attach", attach)


def lose_operation_keys() -> None:
    """Events of the feed have no operation key."""
    from orchestrator.log.feed import frames

    genuine = vars(frames)["frame"]

    def frame(event: Any, prev_version: Any) -> bytes:
        sent: bytes = genuine(event, prev_version)
        return sent.replace(b'"operation_key"', b'"operation"')

    replace(frames, "frame", frame)
