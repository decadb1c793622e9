"""More events at once than one read of the log returns, and fewer than there are versions: a stream receives each of them."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.log.commands import SEQUENCED_MAX as BATCH_MAX
from orchestrator.log.queries import EVENTS_MAX
from tests.api.calling import Caller, new_tenant
from tests.log.listening import Listener
from tests.log.streaming import StreamedEvent, events_of, leave, subscribed
from tests.support.log_versions import version
from tests.support.streams import Open, socket, stream

EVENTS = 2 * max(EVENTS_MAX, BATCH_MAX) + 3


def versions(messages: Any, last: int) -> list[int]:
    """The versions of the next events, up to the first one that is not before `last`; checkpoints are passed over."""
    found: list[int] = []
    for one in messages:
        if "event_type" in one:
            found.append(one["version"])
            if one["version"] >= last:
                break
    return found


@pytest.mark.parametrize("query", [{}, {"types": ["node.online"]}], ids=["all", "filtered"])
@pytest.mark.parametrize("opened", [stream, socket], ids=["stream", "socket"])
@pytest.mark.parametrize("whose", ["operator", "tenant"])
def test_an_attached_stream_receives_more_events_than_one_read_returns(
    whose: str, opened: Open, query: dict[str, Any], listener: Listener
) -> None:
    tenant = new_tenant(listener.admin)
    caller: Caller = tenant if whose == "tenant" else listener.admin
    with opened(caller, **query) as messages:
        leave(listener.database, tenant, 1)
        (first,) = versions(messages, 0)
        leave(listener.database, tenant, EVENTS)  # one transaction: all of them between two ticks
        # In a later tick, so that a stream that skipped events does not wait for ever: its first event has arrived.
        received = versions(messages, first + 1)
        leave(listener.database, tenant, 1)
        last = first + EVENTS + 1
        assert received + versions(messages, last) == list(range(first + 1, last + 1))


def test_the_version_includes_more_events_than_one_statement_sequences(listener: Listener) -> None:
    before = version(listener.admin)["version"]
    leave(listener.database, None, EVENTS)
    assert version(listener.admin)["version"] == before + EVENTS


def test_versions_that_a_restore_has_skipped_are_one_event_of_the_chain(listener: Listener) -> None:
    leave(listener.database, None)
    before = version(listener.admin)["version"]
    with subscribed(listener.admin, after=before) as stream:
        listener.database.execute("select log_skip_versions(%s, %s, 5)", (before + 1, before))
        leave(listener.database, None)
        (end,) = [each for each in stream if isinstance(each, StreamedEvent) and each.event != "checkpoint"]
        # Another history began: the stream ends, and goes on from where it was.
        assert (end.event, end.data) == ("end", {"reason": "leader_changed", "version": before})
    last = before + 5
    # Of a reader that had got versions of the lost interval, and of one that had not.
    for after in (before, before + 3):
        with subscribed(listener.admin, after=after) as stream:
            told = events_of(stream, 2)
        assert [(t.event, t.version, t.data["prev_version"]) for t in told] == [
            ("log.versions_skipped", last, before), ("node.online", last + 1, last),
        ]  # fmt: skip
        assert told[0].data["data"] == {"first": before + 1, "last": last}
