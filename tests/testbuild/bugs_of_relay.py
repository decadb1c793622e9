"""Bugs planted into the relay."""

from __future__ import annotations

from typing import Any

from tests.testbuild.planting import replace

_SEQUENCE = b"\r\nNats-Expected-Last-Sequence:"
# Renamed, not removed: the header's length is counted in what is sent.
_IGNORED = b"\r\nXats-Expected-Last-Sequence:"


def publish_without_sequence() -> None:
    """Publishes do not say which sequence they follow."""
    from outbox_relay import link

    genuine = vars(link)["frames"]

    def frames(*arguments: Any) -> bytes:
        sent: bytes = genuine(*arguments)
        return sent.replace(_SEQUENCE, _IGNORED)

    replace(link, "frames", frames)
