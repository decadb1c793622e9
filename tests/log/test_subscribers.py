"""A subscriber's position covers what was pushed to it, and nothing beyond its end."""

from __future__ import annotations

from orchestrator.log.feed.frames import Audience
from orchestrator.log.feed.subscribers import Subscriber


def new_subscriber() -> Subscriber:
    """A subscriber at version 4 with room for 100 bytes."""
    return Subscriber(Audience(None), 4, "leader", 100, lambda: None)


def test_the_position_advances_with_what_is_pushed() -> None:
    subscriber = new_subscriber()
    subscriber.push(b"event 5")
    subscriber.advance(5)
    subscriber.advance(3)
    assert subscriber.cursor == 5


def test_the_position_does_not_pass_the_end() -> None:
    """`end` names the position: events that arrive after a stream was ended are not sent, so they are not counted."""
    for reason in ("unauthenticated", "stopping", "failed"):
        subscriber = new_subscriber()
        subscriber.push(b"event 5")
        subscriber.advance(5)
        subscriber.finish(reason)
        subscriber.push(b"event 6")
        subscriber.advance(6)
        assert subscriber.cursor == 5


def test_the_position_does_not_pass_what_a_slow_consumer_was_sent() -> None:
    subscriber = new_subscriber()
    subscriber.push(b"x" * 90)
    subscriber.push(b"x" * 90)
    subscriber.advance(6)
    assert (subscriber.ended, subscriber.cursor) == ("slow", 4)
