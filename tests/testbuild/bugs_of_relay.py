"""Bugs planted into the relay. Headers are renamed, not removed: their lengths are counted in what is sent."""

from __future__ import annotations

from typing import Any

from tests.testbuild.planting import replace

_SEQUENCE = (b"\r\nNats-Expected-Last-Sequence:", b"\r\nXats-Expected-Last-Sequence:")
_ID = (b"\r\nNats-Msg-Id:", b"\r\nXats-Msg-Id:")


def publish_without_sequence() -> None:
    """Publishes do not say which sequence they follow. NATS still knows the ids of two hours."""
    _rename(_SEQUENCE)


def publish_unfenced() -> None:
    """Nor do they carry the event's id: as without the sequence, once the window of known ids is over."""
    _rename(_SEQUENCE, _ID)


def _rename(*headers: tuple[bytes, bytes]) -> None:
    from outbox_relay import link

    genuine = vars(link)["frames"]

    def frames(*arguments: Any) -> bytes:
        sent: bytes = genuine(*arguments)
        for old, new in headers:
            sent = sent.replace(old, new)
        return sent

    replace(link, "frames", frames)
