"""A process of the API to listen to."""

from collections.abc import Iterator

import psycopg
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, insert_admin_key
from tests.api.processes import public_process
from tests.databases import copied_database
from tests.log.listening import SETTINGS, Listener


@pytest.fixture(scope="module")
def listener(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Listener]:
    """One process over one database for the module."""
    directory = tmp_path_factory.mktemp("notifications")
    with (
        copied_database(postgres_server, migrated_template) as url,
        public_process(url, directory, SETTINGS) as http,
        psycopg.connect(url, autocommit=True) as database,
    ):
        yield Listener(Caller(http, insert_admin_key(url)), database, directory / "api.log")
