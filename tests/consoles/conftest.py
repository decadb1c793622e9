"""A process with short bounds, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from berth.local.servers import LocalPostgres
from tests.consoles.stage import ConsoleStage, console_stage
from tests.databases import copied_database

BOUNDS = {
    "BERTH_CONSOLE_RECHECK_SECONDS": "0.2", "BERTH_CONSOLE_TENANT_SESSIONS_MAX": "3", "BERTH_CONSOLE_DIAL_SECONDS": "10",
    "BERTH_CREDENTIAL_CACHE_SECONDS": "0.1",
}  # fmt: skip


@pytest.fixture(scope="module")
def stage(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleStage]:
    """The process; each test makes its own allocation and keys."""
    directory = tmp_path_factory.mktemp("console")
    with (
        copied_database(postgres_server, migrated_template) as url,
        console_stage(url, directory, **BOUNDS) as running,
    ):
        yield running
