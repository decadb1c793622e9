"""A stream and a socket of notifications under one interface: an iterator over messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tests.api.calling import Caller
from tests.log.notified import heard, notified
from tests.log.streaming import StreamedEvent, subscribed

Message = dict[str, Any]
Open = Callable[..., AbstractContextManager[Iterator[Message]]]


@contextmanager
def stream(caller: Caller, **query: Any) -> Iterator[Iterator[Message]]:
    """The messages of a server-sent stream; a checkpoint has `scanned_to`."""
    with subscribed(caller, **query) as found:
        yield (one.data for one in found if isinstance(one, StreamedEvent))


@contextmanager
def socket(caller: Caller, **query: Any) -> Iterator[Iterator[Message]]:
    """The messages of a socket behind its first; a checkpoint has `scanned_to`."""
    with notified(caller, **query) as opened:
        assert heard(opened)["type"] == "begin"
        yield iter(lambda: heard(opened), None)
