"""Subscribers in the middle of what is dropped end with `log_truncated`, and 410 when they come again; others notice nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.log.retention.partitions import append, cut_log, first, head, published, truncate
from tests.log.streaming import StreamedEvent, events_of, refused, subscribed

PARTITION = 500
KEPT_FROM = 2 * PARTITION
# So large that the kernel's socket buffers, which a stopped reader fills, do not matter.
ENLARGE = "update log set payload = jsonb_build_object('text', repeat('x', 20000)) where version > %s"


@pytest.fixture
def url(postgres_server: LocalPostgres, migrated_template: str) -> Iterator[str]:
    """A database of the test's own."""
    with copied_database(postgres_server, migrated_template) as made:
        yield made


def rest_of(stream: Iterator[StreamedEvent | str]) -> list[StreamedEvent]:
    """What comes until the stream ends."""
    return [one for one in stream if isinstance(one, StreamedEvent)]


def require_chained(told: list[StreamedEvent], after: int) -> None:
    """Nothing was passed over."""
    for one in told:
        assert one.data["prev_version"] == after
        after = one.version


def test_a_reader_in_the_middle_gets_the_end_and_then_410(url: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        http = stack.enter_context(public_process(url, tmp_path))
        small = httpx.HTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)])
        slow = stack.enter_context(httpx.Client(base_url=http.base_url, timeout=60, transport=small))
        database: psycopg.Connection[Any] = stack.enter_context(psycopg.connect(url, autocommit=True))
        admin = Caller(slow, insert_admin_key(url))
        early, middle, late = (new_tenant(admin) for _ in range(3))
        cut_log(database, PARTITION)
        begin = append(database, 0)
        for tenant, number in ((early, 550), (middle, KEPT_FROM - begin - 550), (late, 60)):
            append(database, number, tenant.tenant_id)
        database.execute(ENLARGE, (begin,))
        streams = {
            caller: stack.enter_context(subscribed(caller, after=begin)) for caller in (admin, early, middle, late)
        }
        told = {caller: events_of(stream, 1) for caller, stream in streams.items()}
        published(database)
        while first(database) < KEPT_FROM:
            truncate(database)
        for caller in (admin, early, middle):
            told[caller] += rest_of(streams[caller])
            *events, end = told[caller]
            assert (end.event, end.data["reason"]) == ("end", "log_truncated"), caller
            assert 0 < len(events) < KEPT_FROM - begin
            require_chained(events, begin if caller is admin else 0)
            last = events[-1].version
            assert end.data["version"] == last
            gone = problem(refused(caller, after=last), 410, "log_truncated")
            assert (gone["first_version"], gone["version"]) == (KEPT_FROM, head(database))
        told[late] += events_of(streams[late], 59)
        require_chained(told[late], 0)
        assert told[late][-1].version == head(database), "no event of the reader was dropped"
        for caller, after in ((admin, KEPT_FROM - 1), (late, 0)):
            with subscribed(caller, after=after) as stream:
                assert events_of(stream, 1)[0].version == (KEPT_FROM if caller is admin else told[late][0].version)
        problem(refused(admin, after=KEPT_FROM - 2), 410, "log_truncated")
        problem(refused(early, after=0), 410, "log_truncated")
