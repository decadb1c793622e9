"""An application with few connections, so that a test can have all of them in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient

from berth.local.servers import LocalPostgres
from orchestrator.app import build_services, public_listener
from tests.api.calling import Caller, insert_admin_key
from tests.databases import copied_database
from tests.support.public_api import PublicApi, settings_over

WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'berth-orchestrator'"
)


@pytest.fixture
def narrow(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PublicApi]:
    """One common connection of each kind and two reserved ones; waiting for a lock takes longer than the test."""
    directory: Path = tmp_path_factory.mktemp("authority")
    with copied_database(postgres_server, migrated_template) as url:
        bounds = {"database_pool_size": 1, "database_reserve_size": 2, "lock_timeout_seconds": 120.0}
        settings = settings_over(url, directory).model_copy(update={**bounds, "transaction_timeout_seconds": 150.0})
        services = build_services(settings)
        with TestClient(public_listener(services), raise_server_exceptions=False) as http:
            with psycopg.connect(url, autocommit=True) as database:
                yield PublicApi(Caller(http, insert_admin_key(url)), database, services)
            assert http.portal is not None
            http.portal.call(services.context.database.close)
