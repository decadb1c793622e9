"""The version at which a stream or a socket ends is that of the last event that was sent on it: a client resumes there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from berth.local.servers import LocalPostgres
from orchestrator.app import build_services, public_listener
from tests.api.calling import Caller, insert_admin_key
from tests.databases import copied_database
from tests.log.held_connections import HeldConnection, HeldSocket, HeldStream
from tests.log.streaming import leave
from tests.support.public_api import settings_over
from tests.support.waiting import wait_for

LATER = 20
CHECKS = {
    "feed_keepalive_seconds": 0.05,
    "notifications_recheck_seconds": 0.05,
    "credential_cache_seconds": 0.0,
}
"""A stream checks its key after what it sends, a socket all the time."""
_REVOKE = "update api_keys set revoked_at = clock_timestamp() where prefix = %s"


@dataclass(frozen=True)
class Checking:
    """The application, its database, an operator, and one whose key the test revokes."""

    admin: Caller
    revoked: Caller
    database: psycopg.Connection[Any]

    def emit(self, *connections: HeldConnection) -> None:
        """Emit an event, and wait until each of these connections has it."""
        before = [len(connection.versions()) for connection in connections]
        leave(self.database, None)
        wait_for(
            lambda: all(len(one.versions()) > had for one, had in zip(connections, before, strict=True)), "the event"
        )


@pytest.fixture
def checking(postgres_server: LocalPostgres, migrated_template: str, tmp_path: Path) -> Iterator[Checking]:
    """The application, in which a key that is revoked soon ends what it has opened."""
    with copied_database(postgres_server, migrated_template) as url:
        services = build_services(settings_over(url, tmp_path).model_copy(update=CHECKS))
        with TestClient(public_listener(services)) as http, psycopg.connect(url, autocommit=True) as database:
            yield Checking(Caller(http, insert_admin_key(url)), Caller(http, insert_admin_key(url)), database)
            assert http.portal is not None
            http.portal.call(services.context.database.close)


@pytest.mark.parametrize("kind", [HeldStream, HeldSocket])
def test_the_end_names_the_last_version_that_was_sent(checking: Checking, kind: type[HeldStream | HeldSocket]) -> None:
    """Although others are emitted between the end of the key and the last message, which waits for the client."""
    witness, held = HeldStream(checking.admin), kind(checking.revoked)
    wait_for(witness.begun, "the first stream")
    wait_for(held.begun, "the connection")
    checking.emit(witness, held)
    held.held = True
    checking.emit(witness, held)
    checking.emit(witness)
    assert checking.revoked.key is not None
    checking.database.execute(_REVOKE, (checking.revoked.key[6:14],))
    if kind is HeldStream:
        held.let_through()
        wait_for(lambda: held.versions() == witness.versions(), "the next message to wait")
    for _ in range(LATER):
        checking.emit(witness)
    held.held = False
    held.let_through()
    held.ended.result(60)
    assert held.end()["version"] == held.versions()[-1]
    assert held.versions()[-1] < witness.versions()[-1], "it ended before"
